"""The distribution, built once and installed once into an environment outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("be_toolchain", "be_runtime", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in")
NO_INDEX = ("No matching distribution found", "Temporary failure in name resolution", "Connection refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The two files that a release uploads."""

    wheel: Path
    sdist: Path


def run(*command: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a user outside the checkout would, without our PYTHONPATH."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean | environ, capture_output=True, text=True, check=False, timeout=280
    )


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    """The sdist, and the wheel built from that sdist, as a release makes them."""
    tree = tmp_path_factory.mktemp("tree")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, tree / name)
    out = tmp_path_factory.mktemp("dist")
    built = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree, cwd=out)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    return Distribution(wheel=wheel, sdist=sdist)


@pytest.fixture(scope="session")
def python(distribution: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment that has the wheel and what it asks for, nothing else."""
    folder = tmp_path_factory.mktemp("fresh") / "env"
    made = run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    assert made.returncode == 0, made.stderr
    interpreter = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", interpreter, "--disable-pip-version-check", "--no-input")
    done = run(*pip, "install", "--quiet", "--no-compile", distribution.wheel, cwd=folder.parent)
    if done.returncode and any(sign in done.stderr for sign in NO_INDEX):
        pytest.skip("no package index can be reached, and the environment is made from one")
    assert done.returncode == 0, done.stdout + done.stderr
    return interpreter
