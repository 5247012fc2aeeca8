"""Programs that carry their kernels: exported here, and run by processes without sources, cache or compiler."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import be_runtime
from be_runtime import ArgumentError, CompiledModule, LoadError, RegistrationError
from be_runtime.cli.main import main
from be_runtime.store import images as images_module
from be_runtime.store.artifact import unpack
from tests.compile.be_runtime.processes import python
from tests.support.requirements import OPTIONAL
from tests.support.runtime import ROOT, run_python

SOURCE = """
#include "brainevent/common.h"
// @BE smooth arg[n] attr.by:float32 ret[n]:like(0)
void smooth(const BE::Tensor x, float by, BE::Tensor y) {
  const float* in = x.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = in[i] * by + in[i] * in[i];
}
// @BE sums arg[b k] ret[b]:like(0) parallel[b]
void sums(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.size(0); ++i) {
    y.data_ptr<float>()[i] = 0;
    for (int64_t j = 0; j < x.size(1); ++j) y.data_ptr<float>()[i] += x.data_ptr<float>()[i * x.size(1) + j];
  }
}
"""
X = np.linspace(-3, 3, 64, dtype=np.float32)
BARE = {"PYTHONPATH": str(ROOT), "BE_CACHE_DIR": "/proc/none", "HOME": "/proc/none", "PATH": "/nowhere"}
USE = """
import sys, numpy as np, jax, be_runtime
program = be_runtime.load_exported(sys.argv[1])
x = np.load(sys.argv[2])
np.save(sys.argv[3], jax.jit(program.call, donate_argnums=0)(jax.numpy.asarray(x)))
print(program, len(be_runtime.list_registered_targets()))
"""


@pytest.fixture(scope="module")
def module() -> CompiledModule:
    return be_runtime.load_cpp_inline("shipped_program", SOURCE)


@pytest.fixture(scope="module")
def program(module: CompiledModule) -> be_runtime.ExportedProgram:
    """A program with a call of a classic target, one under `vmap`, and one in a loop."""
    columns: Any = jax.vmap(lambda row: module.smooth(row, by=1.1), in_axes=1, out_axes=1)
    smooth: Any = jax.ffi.ffi_call("shipped_program.smooth", jax.ShapeDtypeStruct((64,), jnp.float32))

    def run(x: Any) -> Any:
        y = columns(x.reshape(8, 8)).ravel() + smooth(x, by=np.float32(0.5))
        return jax.lax.fori_loop(0, 3, lambda _, each: module.smooth(each, by=0.3), y)

    return be_runtime.export(jax.jit(run), X)


def use(path: Path, x: np.ndarray, code: str = USE, **environ: str) -> tuple[np.ndarray, str]:
    """Call a program in a process that has nothing but Python."""
    given, made = path.with_suffix(".x.npy"), path.with_suffix(".y.npy")
    np.save(given, x)
    done = run_python(
        code, str(path), str(given), str(made), env={**BARE, "JAX_PLATFORMS": "cpu", **environ}, cwd=path.parent
    )
    return np.load(made), done.stdout


def test_a_program_runs_where_nothing_is_and_gives_the_same_bits(program: be_runtime.ExportedProgram, tmp_path: Path):
    """They are the bits of code for the same instructions; this machine's usual code gives others."""
    found, said = use(program.save(tmp_path / "program.be"), X)
    assert said == "<program run(float32[64]) -> (float32[64]) for cpu> 1\n"

    def bits(*flags: str) -> bytes:
        built = be_runtime.load_cpp_inline("same", SOURCE, extra_cflags=flags, auto_register=False)
        y = jax.vmap(lambda row: built.smooth(row, by=1.1), in_axes=1, out_axes=1)(X.reshape(8, 8)).ravel()
        y = y + built.smooth(X, by=0.5)
        for _ in range(3):
            y = built.smooth(y, by=0.3)
        return np.asarray(y).tobytes()

    assert found.tobytes() == bits("-march=x86-64-v3")
    assert found.tobytes() != bits()


def test_several_kernels_share_an_image_and_may_be_exported_again(
    module: CompiledModule, program: be_runtime.ExportedProgram
):
    other = be_runtime.export(lambda x: module.sums(module.smooth(x, by=2.0).reshape(8, 8)), X)
    first, second = be_runtime.load_exported(program), be_runtime.load_exported(bytes(other))
    digests = {target.split(".")[1] for target in be_runtime.list_registered_targets() if "smooth" in target}
    again = be_runtime.load_exported(be_runtime.export(lambda x: second.call(first.call(x)), X))
    assert {each.split(".")[1] for each in be_runtime.list_registered_targets() if "smooth" in each} == digests
    np.testing.assert_array_equal(again.call(X), second.call(first.call(X)))
    assert (again.nr_devices, again.platforms, again.out_avals[0].shape) == (1, ("cpu",), (8,))


@pytest.mark.full
def test_numba_kernels_are_carried(tmp_path: Path):
    numba = pytest.importorskip("numba")

    @numba.njit
    def half(x, y):
        for i in range(x.size):
            y[i] = x[i] / 2

    kernel = be_runtime.numba_kernel(half, signature="arg[n] ret[n]:like(0)")
    found, _ = use(be_runtime.export(kernel, X).save(tmp_path / "numba.be"), X)
    np.testing.assert_array_equal(found, X / 2)


@pytest.mark.full
def test_a_program_over_several_devices(module: CompiledModule, tmp_path: Path):
    """The partitioner's call of the kernel names the image that is carried."""
    sharding = NamedSharding(Mesh(np.array(jax.devices("cpu")[:2]), "d"), PartitionSpec("d"))
    x = np.arange(64, dtype=np.float32).reshape(16, 4)
    split = jax.jit(module.sums, in_shardings=sharding, out_shardings=sharding)
    loads = """
import sys, jax, numpy as np, be_runtime
program = be_runtime.load_exported(sys.argv[1])
sharding = jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), "d"), jax.sharding.PartitionSpec("d"))
x = jax.device_put(np.load(sys.argv[2]), sharding)
np.save(sys.argv[3], jax.jit(program.call)(x))
print(program.nr_devices, jax.jit(program.call).lower(x).compile().as_text().count("all-gather"))
"""
    path = be_runtime.export(split, jax.device_put(x, sharding)).save(tmp_path / "sharded.be")
    found, said = use(path, x, loads, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    np.testing.assert_array_equal(found, x.sum(1))
    assert said == "2 0\n"


def test_every_flipped_byte_is_refused(program: be_runtime.ExportedProgram):
    data = bytearray(program)
    places = {*range(0, len(data), 97), *range(len(data) - 300, len(data))}
    for place in places:
        data[place] ^= 0x20
        with pytest.raises(LoadError):
            be_runtime.load_exported(bytes(data))
        data[place] ^= 0x20
    for end in (0, 10, 5000, len(data) - 1):
        with pytest.raises(LoadError, match=r"is not a complete exported|is damaged: "):
            be_runtime.load_exported(bytes(data[:end]))
    be_runtime.load_exported(bytes(data))


def test_files_of_other_machines(module: CompiledModule, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr("be_runtime.ship.programs.platform.machine", lambda: "riscv64")
        data = be_runtime.export(module.sums, X.reshape(8, 8))
    with pytest.raises(LoadError, match="was built for riscv64"):
        be_runtime.load_exported(data)
    data = be_runtime.export(lambda x: module.smooth(x, by=7.0), X, baseline="x86-64-v4")
    monkeypatch.setattr(images_module, "_flags", lambda _: images_module.required_flags("x86-64-v3"))
    with pytest.raises(LoadError, match=r"needs a CPU of level x86-64-v4, and this one lacks avx512bw"):
        be_runtime.load_exported(data)


def test_what_the_caller_checks_comes_first(program: be_runtime.ExportedProgram):
    seen: list[bytes] = []
    wrong = hashlib.sha256(b"").hexdigest()
    with pytest.raises(LoadError, match="not the expected program"):
        be_runtime.load_exported(b"garbage", expected_sha256=wrong, verify=seen.append)
    with pytest.raises(LoadError, match="verify returned False"):
        be_runtime.load_exported(b"garbage", verify=lambda data: data != b"garbage")
    assert not seen
    right = hashlib.sha256(program).hexdigest()
    be_runtime.load_exported(program, expected_sha256=right.upper(), verify=seen.append)
    assert seen == [program]


def test_a_file_that_others_may_write_or_that_is_not_there_is_refused(
    program: be_runtime.ExportedProgram, tmp_path: Path
):
    path = program.save(tmp_path / "program.be")
    be_runtime.load_exported(path)
    for changed, mode, message in (
        (path, 0o666, r"program.be can be written by other users \(mode 666\)"),
        (tmp_path, 0o777, f"{tmp_path} can be written by other users"),
        (tmp_path, 0o1777, "program.be is in a folder that other users may write to"),
    ):
        changed.chmod(mode)
        with pytest.raises(LoadError, match=message):
            be_runtime.load_exported(path)
        path.chmod(0o644)
    with pytest.raises(ArgumentError, match="can't be read: No such file"):
        be_runtime.load_exported(tmp_path / "absent")
    with pytest.raises(ArgumentError, match="can't be written: No such file"):
        program.save(tmp_path / "absent" / "program.be")


def test_what_can_not_be_exported_is_named(module: CompiledModule):
    x, out = X.reshape(8, 8), jax.ShapeDtypeStruct((8,), jnp.float32)
    be_runtime.register_ffi_target("bare_handler", module.get_handler("sums"))
    jax.ffi.register_ffi_target("not_ours", module.get_handler("sums"), platform="cpu")
    calls_python: Any = lambda x: jax.pure_callback(lambda y: y, x, x)  # noqa: E731
    for function, options, error, message in (
        (jax.ffi.ffi_call("bare_handler", out), {}, RegistrationError, "'bare_handler' can't be exported"),
        (jax.ffi.ffi_call("not_ours", out), {}, RegistrationError, "'not_ours' can't be exported"),
        (calls_python, {}, RegistrationError, r"a function of Python, as in jax\.pure_callback"),
        (module.sums, {"platforms": "tpu"}, ArgumentError, "platforms must be 'cpu' or 'cuda', not 'tpu'"),
        (module.sums, {"baseline": "v9"}, ArgumentError, "is not a level"),
        (module.sums, {"platforms": "cuda", "archs": "9.0"}, RegistrationError, "sums has no kernel for cuda"),
    ):
        with pytest.raises(error, match=message) as caught:
            be_runtime.export(function, x, **options)
    assert "or export the program for it: platforms='cpu'" in caught.value.hints


def test_without_flatbuffers_it_says_what_to_install(
    program: be_runtime.ExportedProgram, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(LoadError, match="needs the package flatbuffers") as caught:
        be_runtime.load_exported(program)
    assert caught.value.hints == ("pip install flatbuffers absl-py",)


@pytest.mark.parametrize("fields", [{"nr_devices": 0}, {"mlir_module_serialized": b"of a later StableHLO"}])
def test_a_program_of_a_later_jax_is_refused_when_it_is_loaded(
    module: CompiledModule, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
):
    """JAX itself says so when it is called, or speaks of a number of devices that is not the program's."""
    monkeypatch.setattr(jax, "__version__", "99.0")
    data = be_runtime.export(module.sums, X.reshape(8, 8))
    monkeypatch.undo()
    read = jax.export.deserialize
    monkeypatch.setattr(jax.export, "deserialize", lambda data: dataclasses.replace(read(data), **fields))
    with pytest.raises(LoadError, match=r"can't read the program, which JAX 99.0 exported") as caught:
        be_runtime.load_exported(data)
    assert "or install jax==99.0" in caught.value.hints


def test_equal_functions_are_equal_files_that_name_no_places(module: CompiledModule, tmp_path: Path):
    made = []
    for folder in ("here", "there"):
        path = tmp_path / folder / "author.py"
        path.parent.mkdir()
        path.write_text("def run(x):\n    return jax.numpy.sin(module.smooth(x, by=3.0))\n")
        names: dict[str, Any] = {"jax": jax, "module": module}
        exec(compile(path.read_text(), str(path), "exec"), names)  # noqa: S102
        made.append(be_runtime.export(jax.jit(names["run"]), X))
    first, second = made
    assert first == second
    artifact = unpack(first, "here")
    program = artifact.image(artifact.table.program["image"])
    assert b"jit(run)/sin" in program
    assert b"author.py" not in program
    assert str(ROOT).encode() not in program + first


def test_a_hundred_calls_cost_little(module: CompiledModule, tmp_path: Path):
    def run(x: Any) -> Any:
        for index in range(100):
            x = module.smooth(x, by=float(index))
        return x

    path = be_runtime.export(run, X).save(tmp_path / "long.be")
    images = sum(image.size for image in unpack(path.read_bytes(), "here").table.images.values())
    assert path.stat().st_size <= 1.05 * images + 300 * 100


def test_what_a_program_calls_has_the_kernels_content_and_name_so_that_jaxs_cache_and_errors_tell_kernels_apart():
    def target(source: str) -> str:
        module = be_runtime.load_cpp_inline("named", source, auto_register=False)
        (found,) = re.findall(
            r"@(be\.\w+\.be_ffi_named_smooth)", jax.jit(lambda x: module.smooth(x, by=2)).lower(X).as_text()
        )
        return str(found)

    assert target(SOURCE) == target(SOURCE)
    assert target(SOURCE) != target(SOURCE.replace("in[i] * by", "in[i] + by"))


def test_show_lists_what_is_inside(
    program: be_runtime.ExportedProgram, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = program.save(tmp_path / "program.be")
    assert main(["show", str(path)]) == 0
    said = capsys.readouterr().out
    assert "program  run(float32[64]) -> (float32[64]) for cpu\n" in said
    assert f"sha256   {hashlib.sha256(program).hexdigest()}" in said
    assert ".be_ffi_shipped_program_smooth for cpu" in said
    assert "library cpu x86-64-v3" in said
    assert main(["show", "--json", str(path)]) == 0
    (bundle,) = json.loads(capsys.readouterr().out)["bundles"]
    assert (bundle["program"]["function"], len(bundle["images"])) == ("run", 2)

    wheel, rows = tmp_path / "kernels-1-py3-none-any.whl", ("targets", "kernels", "modules", "functions", "program")
    image = {"kind": "library", "platform": "cpu", "size": 3, "archs": [], "baseline": ""}
    index = {"format": 1, "abi": 1, "machine": "x86_64", "images": {"0" * 64: image}, **{key: {} for key in rows}}
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("kernels/_kernels/index.json", json.dumps(index))
        archive.writestr(f"kernels/_kernels/images/{'0' * 64}.so", "abc")
    assert main(["show", str(wheel)]) == 1
    assert "kernels/_kernels is damaged: the image 0000000000000000" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["show", str(tmp_path / "empty")]) == 1
    assert "has no kernels that were built ahead of time" in capsys.readouterr().err


FIRST = """
import json, jax.numpy as jnp, be_runtime, first_release
x = jnp.arange(4.0)
program = be_runtime.load_exported("first_release.be")
print(json.dumps([first_release.ops.thrice(x).tolist(), program.call(x).tolist()]))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason=f"{OPTIONAL}the machine that the files were made on")
def test_files_of_the_first_release_are_read(tmp_path: Path):
    """All releases that read format 1 and ABI 1 run them."""
    shutil.copytree(ROOT / "tests" / "data" / "format1", tmp_path / "files")
    bare: dict[str, Any] = {"BE_JIT": "never", "BE_CACHE_DIR": "/proc/none", "PATH": "/nowhere"}
    said = python(tmp_path / "files", "-c", FIRST, **bare).stdout
    assert json.loads(said) == [[1, 4, 7, 10], [0.5, 3.5, 6.5, 9.5]]
