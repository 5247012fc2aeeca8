"""The headers by themselves: programs that a compiler alone builds with every warning, and what they cost it."""

from __future__ import annotations

import importlib.metadata
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from be_runtime.own_files import INCLUDE_DIR
from tests.support.runtime import real_compiler
from tests.support.small_types import FLOAT8, PACKED

PROGRAMS = Path(__file__).parent / "programs"
NAMES = ("tensor", "element_types", "check", "dispatch", "check_streams")
STANDARDS = [pytest.param("c++17"), *(pytest.param(each, marks=pytest.mark.full) for each in ("c++20", "c++2b"))]
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")
# XLA's c_api.h, which ffi_compat.h includes, is no pedantic C++; it has a test of its own.
HEADERS = sorted(p.name for p in (INCLUDE_DIR / "brainevent").glob("*.h") if p.name != "ffi_compat.h")


def run(*command: str | Path, stdin: bytes = b"") -> bytes:
    """Standard output; a failure shows both streams."""
    done = subprocess.run(command, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
    return done.stdout


def build(name: str, folder: Path, *flags: str | Path, cxx: str | None = None) -> Path:
    run(cxx or real_compiler(), *flags, "-I", INCLUDE_DIR, PROGRAMS / f"{name}.cc", "-o", folder / name)
    return folder / name


@pytest.mark.parametrize("standard", STANDARDS)
@pytest.mark.parametrize("name", NAMES)
def test_program(name: str, standard: str, tmp_path: Path):
    run(build(name, tmp_path, f"-std={standard}", "-O3", *STRICT))


@pytest.mark.full
@pytest.mark.needs("clang++")
@pytest.mark.parametrize("standard", ["c++17", "c++20", "c++2b"])
@pytest.mark.parametrize("name", NAMES)
def test_program_with_clang(name: str, standard: str, tmp_path: Path):
    run(build(name, tmp_path, f"-std={standard}", "-O1", *STRICT, cxx="clang++"))


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES[:4])
def test_program_without_run_time_type_information(name: str, tmp_path: Path):
    run(build(name, tmp_path, "-std=c++17", "-O0", "-fno-rtti", *STRICT))


def test_xla_types_and_headers_together(tmp_path: Path):
    xla = str(importlib.metadata.distribution("jaxlib").locate_file("jaxlib/include"))
    run(build("ffi_compat", tmp_path, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-isystem", xla))


@pytest.mark.parametrize("standard", STANDARDS)
def test_each_header_compiles_by_itself(standard: str, tmp_path: Path):
    for header in HEADERS:
        (tmp_path / f"{header}.cc").write_text(f'#include "brainevent/{header}"\n#include "brainevent/{header}"\n')
    run(real_compiler(), f"-std={standard}", "-fsyntax-only", *STRICT, "-I", INCLUDE_DIR, *tmp_path.glob("*.cc"))


def test_dispatch_brings_all_of_common(tmp_path: Path):
    source = tmp_path / "dispatch.cc"
    body = "{ BE_CHECK(x.ndim() == 1); BE_DISPATCH_ALL(x.dtype(), T, { x.data_ptr<T>(); }); }"
    source.write_text(f'#include "brainevent/dispatch.h"\nvoid f(const BE::Tensor& x) {body}\n')
    run(real_compiler(), "-std=c++17", "-fsyntax-only", *STRICT, "-I", INCLUDE_DIR, source)


def test_a_type_without_a_way_to_print_it_is_named_with_advice(tmp_path: Path):
    source = tmp_path / "unprintable.cc"
    source.write_text('#include "brainevent/common.h"\nstruct Opaque {};\nvoid f() { BE_CHECK(false) << Opaque(); }\n')
    command = (real_compiler(), "-std=c++17", "-fsyntax-only", "-I", INCLUDE_DIR, source)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "include <ostream>, and define operator<< for it" in done.stderr


def test_common_brings_none_of_the_slow_headers(tmp_path: Path):
    source = tmp_path / "common.cc"
    source.write_text('#include "brainevent/common.h"\n')
    rule = run(real_compiler(), "-std=c++17", "-M", "-I", INCLUDE_DIR, source).decode()
    slow = {"string", "iostream", "ostream", "sstream", "complex", "memory", "stdexcept", "exception", "iosfwd"}
    slow |= {"type_traits", "utility", "vector", "cuda_runtime.h", "cuda_fp16.h", "complex.h", "half.h"}
    assert not {Path(word).name for word in rule.replace("\\\n", " ").split()[2:]} & slow
    text = run(real_compiler(), "-std=c++17", "-E", "-P", "-I", INCLUDE_DIR, source).decode()
    lines = sum(1 for line in text.splitlines() if line.strip())
    assert lines < 1300, f"{lines} lines reach the compiler in every build; what joined them?"


def points(exact: Any, *ties: int) -> Any:
    """The bits of float32 values, of the ties above them, and of the neighbors of both."""
    bits = exact.astype(np.float32).view(np.uint32)
    all_bits = np.concatenate([bits, *(bits + np.uint32(tie) for tie in ties)])
    return np.concatenate([all_bits + np.uint32(step % 2**32) for step in (-1, 0, 1)])


def told_apart(values: Any) -> Any:
    """The bits of float32 values, the same for all NaNs."""
    return np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))


def test_types_that_cpp_lacks_round_as_numpy_s_do(tmp_path: Path):
    rows = [*FLOAT8, *(row for row in PACKED if row.kind == "float")]
    small = {row.name: np.dtype(getattr(ml_dtypes, row.name)) for row in rows}
    codes = [np.arange(2**row.bits, dtype=np.uint8).view(small[row.name]).astype(np.float32) for row in rows]
    exact, every, random = np.concatenate(codes), np.arange(2**16, dtype=np.uint16), np.random.default_rng(0)
    special = np.array([0, 1, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000], np.uint32)
    among = np.concatenate([special, random.integers(90 << 23, 150 << 23, 200_000, dtype=np.uint32)])
    bits = [
        points(exact, *(1 << dropped for dropped in range(18, 23))),
        *(points(every.view(dtype), 0x1000, 0x8000) for dtype in (np.float16, ml_dtypes.bfloat16)),
        *(random.integers(0, 2**32, 200_000, dtype=np.uint32), among, among + np.uint32(1 << 31)),
    ]
    values = np.concatenate(bits).view(np.float32)
    ours = run(build("rounding", tmp_path, "-std=c++17", "-O2", *STRICT), stdin=values.tobytes())
    assert np.array_equal(told_apart(np.frombuffer(ours[: exact.nbytes], np.float32)), told_apart(exact))
    wide = {"half": np.dtype(np.float16), "brain": np.dtype(ml_dtypes.bfloat16)}
    codes_of = [(name, f"u{dtype.itemsize}") for name, dtype in (wide | small).items()]
    layout = np.dtype([*codes_of[:2], ("from_half", "f4"), ("from_brain", "f4"), *codes_of[2:]])
    found = np.frombuffer(ours[exact.nbytes :], layout)
    for name, dtype in (wide | small).items():
        with np.errstate(over="ignore", invalid="ignore"):
            expected = values.astype(dtype)
        compared = ~np.isnan(values) if name in wide else slice(None)
        assert np.array_equal(found[name][compared], expected.view(found[name].dtype)[compared]), name
        if name in wide:
            back = np.ascontiguousarray(found[f"from_{name}"])
            assert np.array_equal(told_apart(back), told_apart(expected.astype(np.float32))), name
