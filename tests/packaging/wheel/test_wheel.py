"""The wheel and the sdist hold what they should, and the wheel works where there is no checkout."""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.packaging.wheel.conftest import ROOT, Distribution, run

if TYPE_CHECKING:
    from email.message import Message

pytestmark = pytest.mark.xdist_group("wheel")

SHIPPED = (".py", ".h", ".cc", ".ci")
USER_SCRIPT = '''
import jax, jax.numpy as jnp, numpy as np
import be_runtime as brainevent, be_toolchain

SOURCE = r"""
#include "brainevent/common.h"

// @BE scale arg ret attr.factor
void scale(const BE::Tensor x, BE::Tensor out, float factor) {
    for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i] * factor;
}
"""
module = brainevent.load_cpp_inline("from_wheel", SOURCE)
x = jnp.arange(4, dtype=jnp.float32)
call = jax.jit(lambda x: jax.ffi.ffi_call("from_wheel.scale", jax.ShapeDtypeStruct(x.shape, x.dtype))(
    x, factor=np.float32(3.0)))
print(brainevent.__file__)
print(be_toolchain.__file__)
print(np.asarray(call(x)).tolist())
'''


def _expected_files() -> set[str]:
    """Every source, header and type marker of the two packages, as a path in the wheel."""
    return {
        path.relative_to(ROOT).as_posix()
        for package in ("be_toolchain", "be_runtime")
        for path in (ROOT / package).rglob("*")
        if path.suffix in SHIPPED or path.name == "py.typed"
    }


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_holds_the_packages_and_nothing_else(distribution: Distribution):
    with zipfile.ZipFile(distribution.wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    info = {name.split("/", 1)[1] for name in names if ".dist-info/" in name}
    assert {name for name in names if ".dist-info/" not in name} == _expected_files()
    assert info == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}


def test_the_wheel_ships_headers_and_type_information(distribution: Distribution):
    with zipfile.ZipFile(distribution.wheel) as archive:
        names = set(archive.namelist())
    assert {
        "be_runtime/include/brainevent/common.h",
        "be_runtime/include/cuda_common.h",
        "be_runtime/native/handler.cc",
        "be_runtime/py.typed",
        "be_toolchain/py.typed",
    } <= names


def test_the_sdist_holds_the_same_packages(distribution: Distribution):
    with tarfile.open(distribution.sdist) as archive:
        names = {member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()}
    beside = {name for name in names if not name.startswith(("be_toolchain/", "be_runtime/"))}
    made = {"PKG-INFO", "setup.cfg"}
    assert {name for name in beside - made if ".egg-info/" not in name} == {
        "CHANGELOG.md",
        "LICENSE",
        "MANIFEST.in",
        "README.md",
        "pyproject.toml",
    }
    assert names & _expected_files() == _expected_files()


def test_the_wheel_suits_every_linux_machine(distribution: Distribution):
    assert distribution.wheel.name.endswith("-py3-none-any.whl")


def test_metadata_states_version_python_and_license(distribution: Distribution):
    import be_toolchain

    metadata = _metadata(distribution.wheel)
    assert metadata["Name"] == "brainevent-toolchain"
    assert metadata["Version"] == be_toolchain.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra", [])) == {"cuda12", "cuda13", "dev", "numba", "test"}


@pytest.mark.parametrize("extra", ["cuda12", "cuda13"])
def test_an_extra_pins_all_components_to_one_cuda_release(distribution: Distribution, extra: str):
    required = [r for r in _metadata(distribution.wheel).get_all("Requires-Dist", []) if f'"{extra}"' in r]
    releases = {match.group(1) for r in required if (match := re.search(r"==(\d+\.\d+)\.\*", r))}
    assert len(required) >= 4
    assert len(releases) == 1


def test_a_fresh_environment_compiles_and_runs_a_kernel(python: Path, tmp_path: Path):
    done = run(python, "-c", USER_SCRIPT, cwd=tmp_path, BE_CACHE_DIR=str(tmp_path / "cache"), JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    runtime, toolchain, result = done.stdout.splitlines()
    assert Path(runtime).is_relative_to(python.parents[1])
    assert Path(toolchain).is_relative_to(python.parents[1])
    assert json.loads(result) == [0.0, 3.0, 6.0, 9.0]


@pytest.mark.parametrize("command", [("python", "-m", "be_toolchain"), ("be-toolchain",)], ids=["module", "script"])
def test_the_doctor_runs_from_a_fresh_environment(python: Path, tmp_path: Path, command: tuple[str, ...]):
    program, *arguments = command
    done = run(
        python.parent / program, *arguments, "doctor", "--json", cwd=tmp_path, BE_CACHE_DIR=str(tmp_path / "cache")
    )
    assert isinstance(json.loads(done.stdout), dict), done.stdout + done.stderr
