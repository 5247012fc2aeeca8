"""The distribution, built once, and installed by each installer into an environment outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

from release import ROOT
from release.dist import build
from release.native import MACHINES, platform_wheel
from tests.support.fresh_environments import NO_INDEX
from tests.support.requirements import in_full

Factory = pytest.TempPathFactory
EPOCH = 1_700_000_000


class Distribution(NamedTuple):
    """The two files that a release uploads."""

    sdist: Path
    wheel: Path


def run(*command: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a user outside the checkout would, without our PYTHONPATH."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean | environ, capture_output=True, text=True, check=False, timeout=840
    )


def uv() -> str:
    """The uv of this environment; the test is skipped without."""
    path = Path(sys.executable).with_name("uv")
    if not path.is_file():
        pytest.skip("uv is not installed; it comes with the extra packaging")
    return str(path)


def succeed(done: subprocess.CompletedProcess[str]) -> str:
    """What a program printed; the test is skipped when it found no package index, and fails when it failed."""
    if done.returncode and any(sign in done.stderr for sign in NO_INDEX):
        pytest.skip("no package index can be reached, and the environment is made from one")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python_m(*argv: str | Path, cwd: Path, **environ: str) -> str:
    """What a module of this environment printed."""
    return succeed(run(sys.executable, "-m", *argv, cwd=cwd, **environ))


def files_below(folder: Path) -> set[str]:
    """Every file of the two packages that is no by-product, and that was not compiled by ``release native``."""
    paths = (path for package in ("be_toolchain", "be_runtime") for path in (folder / package).rglob("*"))
    found = (path for path in paths if path.is_file() and not {"__pycache__", "shipped"} & {*path.parts})
    return {path.relative_to(folder).as_posix() for path in found}


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: Factory) -> Distribution:
    """The sdist, and the wheel built from that sdist, as a release makes them."""
    return Distribution(*build(ROOT, tmp_path_factory.mktemp("dist"), EPOCH))


@pytest.fixture(scope="session")
def wheels(distribution: Distribution, tmp_path_factory: Factory) -> dict[str, Path]:
    """The wheel without compiled files, as ``any``, and one for each kind of machine, all in one folder."""
    pytest.importorskip("ziglang", reason="zig is not installed; it comes with the extra packaging")
    folder = tmp_path_factory.mktemp("wheels")
    pure = Path(shutil.copy2(distribution.wheel, folder))
    with tarfile.open(distribution.sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = (path for path in folder.iterdir() if path.is_dir())
    return {"any": pure} | {machine: platform_wheel(pure, tree, machine, EPOCH) for machine in MACHINES}


@pytest.fixture(scope="session", params=["uv", in_full("pip")])
def python(distribution: Distribution, tmp_path_factory: Factory, request: pytest.FixtureRequest) -> Path:
    """The Python of a fresh environment with the wheel and what it asks for, installed where PATH has no compiler."""
    folder = tmp_path_factory.mktemp(f"fresh-{request.param}")
    interpreter = folder / "env" / "bin" / "python"
    if request.param == "pip":
        python_m("venv", "--without-pip", "env", cwd=folder)
        install: tuple[str | Path, ...] = (sys.executable, *("-m", "pip", "--python"), interpreter)
        install += ("--no-input", "install", "--no-compile")
    else:
        succeed(run(uv(), "venv", "--quiet", "--python", sys.executable, "env", cwd=folder))
        install = (uv(), "pip", "install", "--python", interpreter)
    (folder / "empty").mkdir()
    options = ("--quiet", "--only-binary", ":all:", distribution.wheel)
    succeed(run(*install, *options, cwd=folder, PATH=str(folder / "empty"), CXX=""))
    return interpreter
