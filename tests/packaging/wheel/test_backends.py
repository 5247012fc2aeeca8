"""A package's kernels get into its wheel by setuptools and by CMake; hatchling's are those of the example."""

from __future__ import annotations

import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.wheel.conftest import run, succeed

pytestmark = pytest.mark.xdist_group("wheel")

SOURCE = """
#include "brainevent/common.h"
#include "factor.h"
// @BE twice arg[n] ret[n]
void twice(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = FACTOR * x.data_ptr<float>()[i];
}
"""
PROJECT = '[project]\nname = "shipped"\nversion = "1.0"\n[build-system]\n'
SETUPTOOLS = (
    PROJECT
    + """
requires = ["setuptools>=77", "brainevent-toolchain[build]"]
build-backend = "setuptools.build_meta"
[tool.setuptools]
packages = ["shipped"]
include-package-data = false
[tool.setuptools.package-data]
shipped = ["kernels.toml", "**/*.cc", "**/*.h"]
[tool.be-runtime]
packages = ["shipped"]
"""
)
CMAKE = (
    PROJECT
    + """
requires = ["scikit-build-core>=0.11", "brainevent-toolchain"]
build-backend = "scikit_build_core.build"
[tool.scikit-build]
wheel.py-api = "py3"
"""
)
CMAKE_LISTS = """
cmake_minimum_required(VERSION 3.26)
project(shipped LANGUAGES NONE)
find_package(BeRuntime REQUIRED)
be_add_kernels(kernels PACKAGE src/shipped STANDALONE)
"""
CALL = """
import jax, jax.numpy as jnp, sys
from shipped import _kernels
x = jnp.ones(2)
print(_kernels.twice(x, result=jax.ShapeDtypeStruct(x.shape, x.dtype)).tolist(), "be_runtime" in sys.modules)
"""


def _write(package: Path) -> None:
    (package / "include").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "ops.cc").write_text(SOURCE)
    (package / "include" / "factor.h").write_text("#define FACTOR 2\n")
    (package / "kernels.toml").write_text('[modules.ops]\nsources = "ops.cc"\nextra_include_paths = ["include"]\n')


def _python(folder: Path, *argv: str | Path, cwd: Path | None = None) -> str:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    return succeed(run(sys.executable, *argv, cwd=cwd or folder, BE_CACHE_DIR=str(folder / "cache"), PATH=path))


def _tag_of(wheel: Path) -> str:
    shown = run(sys.executable, "-m", "auditwheel", "show", wheel, cwd=wheel.parent)
    return shown.stdout.replace("\n", " ").partition('platform tag: "')[2].partition('"')[0]


def test_setuptools_builds_kernels_with_a_wheel_and_not_otherwise(tmp_path: Path):
    _write(tmp_path / "shipped")
    (tmp_path / "pyproject.toml").write_text(SETUPTOOLS)
    said = _python(tmp_path, "-m", "build", "--no-isolation")  # the wheel is built from the sdist
    assert "Package would be ignored" not in said
    (sdist,), (wheel,) = (tmp_path / "dist").glob("*.tar.gz"), (tmp_path / "dist").glob("*.whl")
    sources = {"shipped/kernels.toml", "shipped/ops.cc", "shipped/include/factor.h", "shipped/__init__.py"}
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert sources <= inside
    assert not [name for name in inside if "_kernels" in name]
    assert wheel.name == f"shipped-1.0-py3-none-{_tag_of(wheel)}.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert b"Root-Is-Purelib: false" in archive.read("shipped-1.0.dist-info/WHEEL")
    assert sources | {"shipped/_kernels/index.json"} <= set(names)
    assert sum(name.endswith(".so") for name in names) == 1
    _python(tmp_path, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", "to", "-e", ".")
    assert not (tmp_path / "shipped" / "_kernels").exists()


def test_an_error_of_ours_ends_the_build_with_its_text(tmp_path: Path):
    _write(tmp_path / "shipped")
    with (tmp_path / "shipped" / "kernels.toml").open("a") as file:
        file.write('extra_ldflags = ["-Wl,-rpath,/opt/of/author"]\n')
    (tmp_path / "pyproject.toml").write_text(SETUPTOOLS)
    done = run(sys.executable, "-m", "build", "--no-isolation", "--wheel", cwd=tmp_path)
    assert done.returncode != 0
    assert "modules.ops of shipped" in done.stdout + done.stderr
    assert "looks for libraries in /opt/of/author" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("dist/*.whl"))


def test_cmake_builds_standalone_kernels_and_knows_what_changed(tmp_path: Path):
    pytest.importorskip("scikit_build_core")
    _write(tmp_path / "src" / "shipped")
    (tmp_path / "pyproject.toml").write_text(CMAKE)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE_LISTS)
    _python(tmp_path, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", "dist", ".")
    (wheel,) = (tmp_path / "dist").glob("shipped-1.0-py3-none-linux_*.whl")
    assert _tag_of(wheel).startswith("manylinux_2_"), "auditwheel repair gives it this tag"
    _python(tmp_path, "-m", "zipfile", "-e", wheel, "site")
    shutil.rmtree(tmp_path / "cache")
    assert _python(tmp_path, "-c", CALL, cwd=tmp_path / "site") == "[2.0, 2.0] False\n"

    root = _python(tmp_path, "-m", "be_runtime", "cmake-dir").strip()
    options = ("-G", "Ninja", f"-DBeRuntime_ROOT={root}", f"-DPython_EXECUTABLE={sys.executable}")
    _python(tmp_path, "-m", "cmake", "-S", ".", "-B", "out", *options)
    build = ("-m", "cmake", "--build", "out")
    assert "Building the kernels of shipped" in _python(tmp_path, *build)
    assert "no work to do" in _python(tmp_path, *build)
    (tmp_path / "src" / "shipped" / "include" / "factor.h").write_text("#define FACTOR 3\n")
    assert "Building the kernels of shipped" in _python(tmp_path, *build)
    _python(tmp_path, "-m", "cmake", "--install", "out", "--prefix", "installed")
    assert (tmp_path / "installed" / "shipped" / "_kernels" / "index.json").is_file()
