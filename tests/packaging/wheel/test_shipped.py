"""An author's package: built in one folder, run from another, by another user, with no compiler or place to write."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from release import ROOT
from tests.packaging.wheel.conftest import run, succeed
from tests.support.accounts import STRANGER, needs_root

pytestmark = pytest.mark.xdist_group("wheel")

EXAMPLE = ROOT / "examples" / "mykernels"

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
made = {name: mykernels.ops[name] for name in ("neurons", "spikes", "decay", "scale", "wave")}
results = {"fire": mykernels.ops.fire(v).tolist(), "decay": mykernels.ops.decay(v).tolist()}
import be_runtime
print(json.dumps({**results, "targets": be_runtime.list_registered_targets(), "file": mykernels.__file__}))
"""


@pytest.fixture(scope="session")
def author(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the example, built in a folder of its author's."""
    home = tmp_path_factory.mktemp("author")
    shutil.copytree(EXAMPLE, home / "src", ignore=shutil.ignore_patterns("_kernels", "__pycache__"))
    command = (sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--quiet", "-w", "dist", ".")
    succeed(run(*command, cwd=home / "src", BE_CACHE_DIR=str(home / "cache")))
    (wheel,) = (home / "src" / "dist").glob("*.whl")
    return wheel


def test_the_wheel_has_the_right_tag_and_says_nothing_of_its_author(author: Path):
    assert author.name.startswith("mykernels-0.1.0-py3-none-manylinux_2_")
    shown = run(sys.executable, "-m", "auditwheel", "show", author, cwd=author.parent)
    tag = author.stem.split("-")[-1]
    assert tag in shown.stdout.replace("\n", " "), shown.stdout + shown.stderr
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
        install = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, author)
        succeed(run(*install, cwd=author.parent))
        environ = {"PATH": "/nowhere", "HOME": "/proc/nowhere", "BE_CACHE_DIR": "/proc/nowhere/cache"}
        places = [str(site), _site_of(python)]
        script = f"UID = {STRANGER}\nimport sys\nsys.path[:0] = {places!r}\n{GUARDED}"
        done = run(sys.executable, "-S", "-c", script, cwd=Path("/"), JAX_PLATFORMS="cpu", **environ)
        said = json.loads(succeed(done))
    assert said["fire"] == [0, 0, 0, 0, 1]
    assert said["file"].startswith(str(site))
    assert {"mykernels.neurons.fire", "mykernels.neurons.integrate", "mykernels.spikes.fire_gpu"} <= set(
        said["targets"]
    )


def _site_of(python: Path) -> str:
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    return succeed(run(python, "-c", code, cwd=Path("/"))).strip()
