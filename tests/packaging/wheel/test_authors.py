"""Authors' packages: built by each backend that their page names, and run by another user, with no compiler."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

from release import ROOT
from tests.packaging.wheel.conftest import python_m, run, succeed
from tests.support.accounts import STRANGER, needs_root

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("wheel")]

PAGE = (ROOT / "docs" / "packages.md").read_text(encoding="utf-8")
FILES = re.findall(r"```\w+\n(?:#|//) (\S+)\n(.*?)```", PAGE, re.DOTALL)
"""The files that the page for authors shows in full, by their paths."""

EDITABLE = ("pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", "to", "-e", ".")
CALL = """
import jax.numpy as jnp
import mykernels
print(mykernels.ops.fire(jnp.arange(2.0)).tolist())
"""


def write(folder: Path, backend: str) -> Path:
    """Write the project of the page for a build backend, and return the folder of its package."""
    for name, text in FILES:
        if name != "pyproject.toml" or backend in text:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return folder / "mykernels"


def known(folder: Path) -> dict[str, str]:
    return {"BE_CACHE_DIR": str(folder / "cache"), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}


def tag_of(wheel: Path) -> str:
    shown = run(sys.executable, "-m", "auditwheel", "show", wheel, cwd=wheel.parent)
    return shown.stdout.replace("\n", " ").partition('platform tag: "')[2].partition('"')[0]


@pytest.mark.parametrize("backend", ["hatchling.build", "setuptools.build_meta"])
def test_kernels_are_built_with_a_wheel_and_not_otherwise(backend: str, tmp_path: Path):
    package = write(tmp_path, backend)
    stale = package / "_kernels" / "images" / "stale.so"
    stale.parent.mkdir(parents=True)
    stale.write_text("what a developer built")
    said = python_m("build", "--no-isolation", cwd=tmp_path, **known(tmp_path))  # the wheel is built from the sdist
    assert "Package would be ignored" not in said
    (sdist,), (wheel,) = (tmp_path / "dist").glob("*.tar.gz"), (tmp_path / "dist").glob("*.whl")
    sources = {"mykernels/kernels.toml", "mykernels/neurons/fire.cc", "mykernels/__init__.py"}
    with tarfile.open(sdist) as archive:
        assert sources <= {name.partition("/")[2] for name in archive.getnames()}
    assert wheel.name == f"mykernels-1.0-py3-none-{tag_of(wheel)}.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert b"Root-Is-Purelib: false" in archive.read("mykernels-1.0.dist-info/WHEEL")
    assert sources | {"mykernels/_kernels/index.json"} <= set(names)
    assert sum(name.endswith(".so") for name in names) == 1
    shutil.rmtree(package / "_kernels")
    python_m(*EDITABLE, cwd=tmp_path, BE_CXX="/nowhere", **known(tmp_path))
    assert not (package / "_kernels").exists()


def test_an_error_of_ours_ends_the_build_with_its_text(tmp_path: Path):
    package = write(tmp_path, "setuptools.build_meta")
    with (package / "kernels.toml").open("a") as file:
        file.write('extra_ldflags = ["-Wl,-rpath,/opt/of/author"]\n')
    done = run(sys.executable, "-m", "build", "--no-isolation", "--wheel", cwd=tmp_path, BE_CACHE_DIR=str(tmp_path))
    assert done.returncode != 0
    assert "error: modules.neurons of mykernels" in done.stdout + done.stderr
    assert "searches for libraries in /opt/of/author" in done.stdout + done.stderr
    assert "be_runtime/ship" not in done.stdout + done.stderr, "a traceback of ours"
    assert not list(tmp_path.glob("dist/*.whl"))


def test_cmake_builds_kernels_and_knows_what_changed(tmp_path: Path):
    pytest.importorskip("scikit_build_core")
    package = write(tmp_path, "scikit_build_core.build")
    environ = known(tmp_path)
    python_m("pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", "dist", ".", cwd=tmp_path, **environ)
    (wheel,) = (tmp_path / "dist").glob("mykernels-1.0-py3-none-linux_*.whl")
    assert tag_of(wheel).startswith("manylinux_2_"), "auditwheel repair gives it this tag"
    python_m("zipfile", "-e", wheel, "site", cwd=tmp_path)
    shutil.rmtree(tmp_path / "cache")
    called = run(sys.executable, "-c", CALL, cwd=tmp_path / "site", BE_JIT="never", **environ)
    assert succeed(called) == "[0.0, 1.0]\n"
    python_m(*EDITABLE, cwd=tmp_path, BE_CXX="/nowhere", **environ)
    assert not list(tmp_path.rglob("to/**/_kernels"))

    def cmake(*argv: str) -> str:
        return succeed(run(Path(sys.executable).with_name("cmake"), *argv, cwd=tmp_path, **environ))

    root = python_m("be_runtime", "cmake-dir", cwd=tmp_path, **environ).strip()
    options = ("-G", "Ninja", f"-DBeRuntime_ROOT={root}", f"-DPython_EXECUTABLE={sys.executable}")
    cmake("-S", ".", "-B", "out", *options)
    assert "Building the kernels of mykernels" in cmake("--build", "out")
    assert "no work to do" in cmake("--build", "out")
    with (package / "neurons" / "fire.cc").open("a") as file:
        file.write("// changed\n")
    assert "Building the kernels of mykernels" in cmake("--build", "out")
    cmake("--install", "out", "--prefix", "installed")
    assert (tmp_path / "installed" / "mykernels" / "_kernels" / "index.json").is_file()


GUARDED = """
import json, os, sys

def forbid(event, arguments):
    if event in ("subprocess.Popen", "os.exec", "os.fork", "os.posix_spawn", "os.system"):
        raise AssertionError(f"a process is started: {event} {arguments}")
    if event == "open" and arguments[2] is not None and arguments[2] & (os.O_WRONLY | os.O_RDWR):
        raise AssertionError(f"a file is written: {arguments}")

import contextlib, importlib, importlib.resources.readers, pkgutil, sysconfig
import jax, jax.numpy as jnp
import be_runtime, be_toolchain
for package in (be_runtime, be_toolchain):
    with contextlib.suppress(ImportError):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):  # where the user can't read
            with contextlib.suppress(ImportError):
                if not module.name.endswith("__main__") and "hooks" not in module.name:
                    importlib.import_module(module.name)
importlib.resources.files("be_runtime")
v = jnp.linspace(-1, 1, 5).block_until_ready()  # starts the backend
os.setgroups([]); os.setgid(UID); os.setuid(UID)
sys.addaudithook(forbid)
import mykernels
made = {name: mykernels.ops[name] for name in ("neurons", "decay", "scale", "wave")}
results = {"fire": mykernels.ops.fire(v).tolist(), "decay": mykernels.ops.decay(v).tolist()}
print(json.dumps({**results, "targets": be_runtime.list_registered_targets(), "file": mykernels.__file__}))
"""


@pytest.fixture(scope="session")
def author(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the example, built in a folder of its author's."""
    home = tmp_path_factory.mktemp("author")
    ignored = shutil.ignore_patterns("_kernels", "__pycache__")
    shutil.copytree(ROOT / "examples" / "mykernels", home / "src", ignore=ignored)
    words = ("pip", "wheel", "--no-build-isolation", "--no-deps", "--quiet", "-w", "dist", ".")
    python_m(*words, cwd=home / "src", BE_CACHE_DIR=str(home / "cache"))
    (wheel,) = (home / "src" / "dist").glob("*.whl")
    return wheel


def test_the_example_s_wheel_has_the_right_tag_and_says_nothing_of_its_author(author: Path):
    assert author.name.startswith("mykernels-0.1.0-py3-none-manylinux_2_")
    shown = run(sys.executable, "-m", "auditwheel", "show", author, cwd=author.parent)
    assert author.stem.split("-")[-1] in shown.stdout.replace("\n", " "), shown.stdout + shown.stderr
    with zipfile.ZipFile(author) as archive:
        names = archive.namelist()
        assert sum(name.startswith("mykernels/_kernels/images/") for name in names) == 13
        for name in names:
            assert str(author.parents[2]).encode() not in archive.read(name), name


@needs_root
def test_it_runs_for_another_user_without_a_compiler_or_a_place_to_write(author: Path, python: Path):
    with tempfile.TemporaryDirectory(prefix="be-shipped-") as folder:
        site = Path(folder)
        site.chmod(0o755)
        python_m("pip", "install", "--quiet", "--no-deps", "--target", site, author, cwd=author.parent)
        purelib = run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])", cwd=Path("/"))
        environ = {"PATH": "/nowhere", "HOME": "/proc/nowhere", "BE_CACHE_DIR": "/proc/nowhere/cache"}
        places = [str(site), succeed(purelib).strip()]
        script = f"UID = {STRANGER}\nimport sys\nsys.path[:0] = {places!r}\n{GUARDED}"
        done = run(sys.executable, "-S", "-c", script, cwd=Path("/"), JAX_PLATFORMS="cpu", **environ)
        said = json.loads(succeed(done))
    assert said["fire"] == [0, 0, 0, 0, 1]
    assert said["file"].startswith(str(site))
    assert {"mykernels.neurons.fire", "mykernels.neurons.integrate"} <= set(said["targets"])
