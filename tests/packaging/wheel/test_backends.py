"""The projects of the page for authors: their kernels get into wheels, by each build backend that it names."""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from release import ROOT
from tests.packaging.wheel.conftest import run, succeed

pytestmark = pytest.mark.xdist_group("wheel")

PAGE = (ROOT / "docs" / "packages.md").read_text(encoding="utf-8")
FILES = re.findall(r"```\w+\n(?:#|//) (\S+)\n(.*?)```", PAGE, re.DOTALL)
"""The files that the page for authors shows in full, by their paths."""

CALL = """
import jax, jax.numpy as jnp, sys
sys.modules["mykernels"] = package = type(sys)("mykernels")  # its own file imports be_runtime
package.__path__ = ["mykernels"]
from mykernels import _kernels
x = jnp.arange(2.0)
print(_kernels.fire(x, result=jax.ShapeDtypeStruct(x.shape, x.dtype)).tolist(), "be_runtime" in sys.modules)
"""


def _write(folder: Path, backend: str) -> Path:
    """Write the project of the page for a build backend, and return the folder of its package."""
    for name, text in FILES:
        if name != "pyproject.toml" or backend in text:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return folder / "mykernels"


def _python(folder: Path, *argv: str | Path, cwd: Path | None = None, **environ: str) -> str:
    known = {"BE_CACHE_DIR": str(folder / "cache"), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    return succeed(run(sys.executable, *argv, cwd=cwd or folder, **known, **environ))


def _cmake(folder: Path, *argv: str | Path) -> str:
    program = shutil.which("cmake", path=str(Path(sys.executable).parent))
    assert program is not None, "the extra packaging has it"
    known = {"BE_CACHE_DIR": str(folder / "cache"), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    return succeed(run(program, *argv, cwd=folder, **known))


def _tag_of(wheel: Path) -> str:
    shown = run(sys.executable, "-m", "auditwheel", "show", wheel, cwd=wheel.parent)
    return shown.stdout.replace("\n", " ").partition('platform tag: "')[2].partition('"')[0]


@pytest.mark.parametrize("backend", ["hatchling.build", "setuptools.build_meta"])
def test_kernels_are_built_with_a_wheel_and_not_otherwise(backend: str, tmp_path: Path):
    package = _write(tmp_path, backend)
    stale = package / "_kernels" / "images" / "stale.so"
    stale.parent.mkdir(parents=True)
    stale.write_text("what a developer built")
    said = _python(tmp_path, "-m", "build", "--no-isolation")  # the wheel is built from the sdist
    assert "Package would be ignored" not in said
    (sdist,), (wheel,) = (tmp_path / "dist").glob("*.tar.gz"), (tmp_path / "dist").glob("*.whl")
    sources = {"mykernels/kernels.toml", "mykernels/neurons/fire.cc", "mykernels/__init__.py"}
    with tarfile.open(sdist) as archive:
        assert sources <= {name.partition("/")[2] for name in archive.getnames()}
    assert wheel.name == f"mykernels-1.0-py3-none-{_tag_of(wheel)}.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert b"Root-Is-Purelib: false" in archive.read("mykernels-1.0.dist-info/WHEEL")
    assert sources | {"mykernels/_kernels/index.json"} <= set(names)
    assert sum(name.endswith(".so") for name in names) == 1
    shutil.rmtree(package / "_kernels")
    install = ("-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", "to", "-e", ".")
    _python(tmp_path, *install, BE_CXX="/nowhere")
    assert not (package / "_kernels").exists()


def test_an_error_of_ours_ends_the_build_with_its_text(tmp_path: Path):
    package = _write(tmp_path, "setuptools.build_meta")
    with (package / "kernels.toml").open("a") as file:
        file.write('extra_ldflags = ["-Wl,-rpath,/opt/of/author"]\n')
    done = run(sys.executable, "-m", "build", "--no-isolation", "--wheel", cwd=tmp_path, BE_CACHE_DIR=str(tmp_path))
    assert done.returncode != 0
    assert "error: modules.neurons of mykernels" in done.stdout + done.stderr
    assert "looks for libraries in /opt/of/author" in done.stdout + done.stderr
    assert "be_runtime/ship" not in done.stdout + done.stderr, "a traceback of ours"
    assert not list(tmp_path.glob("dist/*.whl"))


def test_cmake_builds_standalone_kernels_and_knows_what_changed(tmp_path: Path):
    pytest.importorskip("scikit_build_core")
    package = _write(tmp_path, "scikit_build_core.build")
    lists = tmp_path / "CMakeLists.txt"
    lists.write_text(lists.read_text().replace("PACKAGE mykernels)", "PACKAGE mykernels STANDALONE)"))
    _python(tmp_path, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", "dist", ".")
    (wheel,) = (tmp_path / "dist").glob("mykernels-1.0-py3-none-linux_*.whl")
    assert _tag_of(wheel).startswith("manylinux_2_"), "auditwheel repair gives it this tag"
    _python(tmp_path, "-m", "zipfile", "-e", wheel, "site")
    shutil.rmtree(tmp_path / "cache")
    assert _python(tmp_path, "-c", CALL, cwd=tmp_path / "site") == "[0.0, 1.0] False\n"

    install = ("-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", "to", "-e", ".")
    _python(tmp_path, *install, BE_CXX="/nowhere")
    assert not list(tmp_path.rglob("to/**/_kernels"))

    root = _python(tmp_path, "-m", "be_runtime", "cmake-dir").strip()
    options = ("-G", "Ninja", f"-DBeRuntime_ROOT={root}", f"-DPython_EXECUTABLE={sys.executable}")
    _cmake(tmp_path, "-S", ".", "-B", "out", *options)
    assert "Building the kernels of mykernels" in _cmake(tmp_path, "--build", "out")
    assert "no work to do" in _cmake(tmp_path, "--build", "out")
    with (package / "neurons" / "fire.cc").open("a") as file:
        file.write("// changed\n")
    assert "Building the kernels of mykernels" in _cmake(tmp_path, "--build", "out")
    _cmake(tmp_path, "--install", "out", "--prefix", "installed")
    assert (tmp_path / "installed" / "mykernels" / "_kernels" / "index.json").is_file()
