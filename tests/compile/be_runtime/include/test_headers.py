"""The headers on the host: small programs that hold expectations, compiled and run with real compilers."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.support import requirements
from tests.support.small_types import FLOAT8, PACKED

ROOT = Path(__file__).resolve().parents[4]
INCLUDE = ROOT / "be_runtime" / "include"
PROGRAMS = Path(__file__).parent / "programs"
NAMES = ("dtype", "tensor", "element_types", "check", "check_streams", "dispatch", "dtypes")
STANDARDS = ("c++17", "c++20", "c++2b")
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")
# XLA's c_api.h, which ffi_compat.h includes, is no pedantic C++; it has a test of its own.
HEADERS = sorted(p.name for p in (INCLUDE / "brainevent").glob("*.h") if p.name != "ffi_compat.h")


def run(*command: str | Path, stdin: bytes = b"") -> bytes:
    """Standard output; a failure shows both streams."""
    done = subprocess.run(command, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
    return done.stdout


def compiler() -> str:
    found = requirements.host_compiler()
    assert found is not None
    return found


def jaxlib_include() -> Path:
    return Path(str(importlib.metadata.distribution("jaxlib").locate_file("jaxlib/include")))


def build(source: Path, folder: Path, *flags: str | Path, cxx: str | None = None) -> Path:
    program = folder / source.stem
    run(cxx or compiler(), *flags, "-I", INCLUDE, source, "-o", program)
    return program


@pytest.mark.parametrize("standard", STANDARDS)
@pytest.mark.parametrize("name", NAMES)
def test_program(name: str, standard: str, tmp_path: Path):
    run(build(PROGRAMS / f"{name}.cc", tmp_path, f"-std={standard}", "-O3", *STRICT))


@pytest.mark.needs("clang++")
@pytest.mark.parametrize("standard", STANDARDS)
@pytest.mark.parametrize("name", NAMES)
def test_program_with_clang(name: str, standard: str, tmp_path: Path):
    run(build(PROGRAMS / f"{name}.cc", tmp_path, f"-std={standard}", "-O1", *STRICT, cxx="clang++"))


@pytest.mark.parametrize("name", ["tensor", "element_types", "check", "dispatch"])
def test_program_without_run_time_type_information(name: str, tmp_path: Path):
    run(build(PROGRAMS / f"{name}.cc", tmp_path, "-std=c++17", "-O0", "-fno-rtti", *STRICT))


def test_xla_types_and_headers_together(tmp_path: Path):
    flags = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-isystem", jaxlib_include())
    run(build(PROGRAMS / "ffi_compat.cc", tmp_path, *flags))


@pytest.mark.parametrize("standard", STANDARDS)
@pytest.mark.parametrize("header", HEADERS)
def test_header_compiles_by_itself(header: str, standard: str, tmp_path: Path):
    source = tmp_path / "alone.cc"
    source.write_text(f'#include "brainevent/{header}"\n#include "brainevent/{header}"\n')
    run(compiler(), f"-std={standard}", "-fsyntax-only", *STRICT, "-I", INCLUDE, source)


def test_a_type_without_a_way_to_print_it_is_named_with_advice(tmp_path: Path):
    source = tmp_path / "unprintable.cc"
    source.write_text('#include "brainevent/common.h"\nstruct Opaque {};\nvoid f() { BE_CHECK(false) << Opaque(); }\n')
    command = (compiler(), "-std=c++17", "-fsyntax-only", "-I", INCLUDE, source)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "include <ostream>, and define operator<< for it" in done.stderr


def included_headers(source: Path) -> set[str]:
    rule = run(compiler(), "-std=c++17", "-M", "-I", INCLUDE, source).decode()
    return {Path(word).name for word in rule.replace("\\\n", " ").split()[2:]}


def test_common_brings_none_of_the_slow_headers(tmp_path: Path):
    source = tmp_path / "common.cc"
    source.write_text('#include "brainevent/common.h"\n')
    slow = {"string", "iostream", "ostream", "sstream", "complex", "memory", "stdexcept", "exception", "iosfwd"}
    slow |= {"type_traits", "utility", "vector", "cuda_runtime.h", "cuda_fp16.h", "complex.h", "half.h"}
    assert not included_headers(source) & slow
    text = run(compiler(), "-std=c++17", "-E", "-P", "-I", INCLUDE, source).decode()
    lines = sum(1 for line in text.splitlines() if line.strip())
    assert lines < 1300, f"{lines} lines reach the compiler in every build; what joined them?"


def test_int64_t_is_a_global_name(tmp_path: Path):
    source = tmp_path / "global.cc"
    source.write_text('#include "brainevent/common.h"\nvoid f(const BE::Tensor, BE::Tensor, int64_t stream);\n')
    run(compiler(), "-std=c++17", "-fsyntax-only", "-I", INCLUDE, source)


def test_sixteen_bit_types_round_as_numpy_does(tmp_path: Path):
    program = build(PROGRAMS / "round_floats.cc", tmp_path, "-std=c++17", "-O2", *STRICT)
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    brains = (np.arange(2**16, dtype=np.uint32) << 16).view(np.float32)
    exact = np.concatenate([halves, brains]).view(np.uint32)
    # Every representable value, its neighbours in float32, the ties between two, and bits at random.
    ties = np.concatenate([exact + np.uint32(0x1000), exact + np.uint32(0x8000)])
    noise = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32)
    near = [bits + np.uint32(step % 2**32) for bits in (exact, ties) for step in (-1, 0, 1)]
    values = np.concatenate([*near, noise]).view(np.float32)
    layout = np.dtype(
        [("half", np.uint16), ("brain", np.uint16), ("from_half", np.float32), ("from_brain", np.float32)]
    )
    ours = np.frombuffer(run(program, stdin=values.tobytes()), layout)
    with np.errstate(over="ignore", invalid="ignore"):
        half = values.astype(np.float16)
        brain = values.astype(ml_dtypes.bfloat16)
    number = ~np.isnan(values)
    assert np.array_equal(ours["half"][number], half.view(np.uint16)[number])
    assert np.array_equal(ours["brain"][number], brain.view(np.uint16)[number])
    assert np.array_equal(ours["from_half"], half.astype(np.float32), equal_nan=True)
    assert np.array_equal(ours["from_brain"], brain.astype(np.float32), equal_nan=True)


def test_small_types_round_as_jax_does(tmp_path: Path):
    program = build(PROGRAMS / "round_small.cc", tmp_path, "-std=c++17", "-O2", *STRICT)
    rows = [*FLOAT8, *(row for row in PACKED if row.kind == "float")]
    dtypes = [np.dtype(getattr(ml_dtypes, row.name)) for row in rows]
    codes = [np.arange(2**row.bits, dtype=np.uint8).view(dtype) for row, dtype in zip(rows, dtypes, strict=True)]
    exact = np.concatenate([each.astype(np.float32) for each in codes])
    # Every representable value, the ties above it, their neighbours in float32, and numbers of every size at random.
    bits = exact.view(np.uint32)
    points = np.concatenate([bits, *(bits + np.uint32(1 << dropped) for dropped in range(18, 23))])
    near = [points + np.uint32(step % 2**32) for step in (-1, 0, 1)]
    noise = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32)
    among = np.random.default_rng(1).integers(90 << 23, 150 << 23, 200_000, dtype=np.uint32)
    signs = np.array([0, 1 << 31], np.uint32)
    special = np.add.outer(signs, np.array([0, 1, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000], np.uint32)).ravel()
    values = np.concatenate([*near, noise, among, among + signs[1], special]).view(np.float32)
    ours = run(program, stdin=values.tobytes())
    numbers = np.frombuffer(ours[: exact.nbytes], np.float32)
    is_number = ~np.isnan(exact)
    assert np.array_equal(np.isnan(numbers), ~is_number)
    assert np.array_equal(numbers.view(np.uint32)[is_number], bits[is_number])
    encoded = np.frombuffer(ours[exact.nbytes :], np.uint8).reshape(-1, len(rows))
    for index, dtype in enumerate(dtypes):
        with np.errstate(over="ignore", invalid="ignore"):
            expected = values.astype(dtype).view(np.uint8)
        assert np.array_equal(encoded[:, index], expected), dtype


def test_headers_name_no_place_outside_the_product():
    for header in INCLUDE.rglob("*.h"):
        assert not re.search(r"/home/|\.\./|shared/", header.read_text()), header
