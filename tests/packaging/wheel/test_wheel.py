"""The wheel and the sdist hold what they should, and the wheel works where there is no checkout."""

from __future__ import annotations

import json
import os
import re
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import be_toolchain
from release import ROOT
from release.dist import build, copy_sources
from release.native import MACHINES
from release.problems import ReleaseError
from tests.packaging.wheel.conftest import EPOCH, Distribution, files_below, run

pytestmark = pytest.mark.xdist_group("wheel")

USER_SCRIPT = '''
import jax, jax.numpy as jnp
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
like = jax.ShapeDtypeStruct(x.shape, x.dtype)
scaled = jax.jit(lambda x: module.scale(x, outs=like, factor=3.0))(x)
print(brainevent.__file__, be_toolchain.__file__, scaled.tolist(), sep="\\n")
'''


TYPED = """\
import be_runtime
import be_toolchain

module = be_runtime.load_cpp_inline("typed", "void f() {}", verbose=True)
path: str = str(module.path)
found: be_toolchain.Toolchain = be_toolchain.resolve(be_toolchain.ToolchainRequest(need_cuda=False))
be_runtime.load_cpp_inline("typed", "", verbose=0.5)
"""
WRONG = 'user.py:7: error: Argument "verbose" to "load_cpp_inline" has incompatible type "float"; expected "bool"'


def test_the_wheel_and_the_sdist_hold_the_packages_and_nothing_else(distribution: Distribution):
    """Every file of the two that is no by-product: headers and type information above all."""
    packages = files_below(ROOT)
    assert {"be_runtime/include/brainevent/common.h", "be_runtime/native/handler.cc", "be_runtime/py.typed"} <= packages
    with zipfile.ZipFile(distribution.wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    info = {name.split("/", 1)[1] for name in names if ".dist-info/" in name}
    assert {name for name in names if ".dist-info/" not in name} == packages
    assert info == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}
    assert distribution.wheel.name.endswith("-py3-none-any.whl")
    with tarfile.open(distribution.sdist) as archive:
        names = {member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()}
    made = {name for name in names if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    beside = {"CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"}
    release = {f"release/{path.name}" for path in (ROOT / "release").iterdir() if path.is_file()}
    assert names - made == packages | beside | release


def test_metadata_states_version_python_license_and_extras_of_one_cuda_release(distribution: Distribution):
    with zipfile.ZipFile(distribution.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    said = [metadata[name] for name in ("Name", "Version", "Requires-Python", "License-Expression")]
    assert said == ["brainevent-toolchain", be_toolchain.__version__, ">=3.11", "Apache-2.0"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])
    for extra in ("cuda12", "cuda13", "cuda13-newest"):
        required = [r for r in metadata.get_all("Requires-Dist", []) if f'"{extra}"' in r]
        assert len(required) >= 4
        assert len({match[1] for r in required if (match := re.search(r"==(\d+\.\d+)\.\*", r))}) == 1


@pytest.mark.full
@pytest.mark.needs("x86_64-linux-gnu-g++", "aarch64-linux-gnu-g++")
def test_the_same_source(
    distribution: Distribution, wheels: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It gives the same bytes, and with the same compilers the same platform wheels."""
    tree = tmp_path / "a checkout of another age"
    copy_sources(ROOT, tree)
    for path in tree.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.utime(path, (0, 0))
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    monkeypatch.setenv("LC_ALL", "C")
    before = os.umask(0o077)
    try:
        again = build(tree, tmp_path / "out", EPOCH, MACHINES)
    finally:
        os.umask(before)
    made = (*distribution, *(wheels[machine] for machine in MACHINES))
    assert [path.name for path in again] == [path.name for path in made]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in made]


@pytest.mark.full
@pytest.mark.needs("unshare")
def test_building_needs_no_network(tmp_path: Path):
    command = (
        "unshare",
        "--map-root-user",
        "--net",
        sys.executable,
        "-m",
        "release",
        "dist",
        "--pure",
        tmp_path / "out",
    )
    done = run(*command, cwd=ROOT, SOURCE_DATE_EPOCH=str(EPOCH))
    if "unshare failed" in done.stderr:
        pytest.skip("a network can't be taken away here: unshare is not permitted")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_what_stands_against_a_build_is_named(tmp_path: Path):
    copy_sources(ROOT, tmp_path / "tree")
    with (tmp_path / "tree" / "pyproject.toml").open("a") as stream:
        stream.write("[project.wrong]\n")
    with pytest.raises(ReleaseError, match=r"python -m build --sdist failed:(?s:.*)project"):
        build(tmp_path / "tree", tmp_path / "out", EPOCH)
    (tmp_path / "tree" / "LICENSE").unlink()
    with pytest.raises(ReleaseError, match=r"tree/LICENSE is missing"):
        build(tmp_path / "tree", tmp_path / "out", EPOCH)


def test_a_fresh_environment_compiles_and_runs_a_kernel(python: Path, tmp_path: Path):
    environ = {"BE_CACHE_DIR": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"}
    done = run(python, "-c", USER_SCRIPT, cwd=tmp_path, **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    *files, result = done.stdout.splitlines()
    assert [Path(file).is_relative_to(python.parents[1]) for file in files] == [True, True]
    assert json.loads(result) == [0.0, 3.0, 6.0, 9.0]
    for command in ((python, "-m", "be_toolchain"), (python.with_name("be-toolchain"),)):
        done = run(*command, "doctor", "--json", cwd=tmp_path, **environ)
        assert json.loads(done.stdout)["schema"] == 1, done.stdout + done.stderr
    for command in ((python, "-m", "be_runtime"), (python.with_name("be-runtime"),)):
        done = run(*command, "explain", "be301", cwd=tmp_path)  # what an error says to run
        assert done.stdout.startswith("`BuildError`: "), done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.parametrize("python", ["pip"], indirect=True)
def test_a_user_s_type_checker_knows_the_types(python: Path, tmp_path: Path):
    pytest.importorskip("mypy", reason="mypy is not installed; it comes with the extra dev")
    (tmp_path / "user.py").write_text(TYPED)
    # The types of what we depend on are not ours, and reading them takes most of a minute.
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-jax.*,jaxlib.*,numba.*,numpy.*,rich.*]\nfollow_imports = skip\n")
    options = ("--strict", "--python-executable", python, "--cache-dir", tmp_path / "cache")
    done = run(sys.executable, "-m", "mypy", *options, "user.py", cwd=tmp_path)
    errors = [line.partition("  [")[0] for line in done.stdout.splitlines() if " error: " in line]
    assert errors == [WRONG], done.stdout + done.stderr
