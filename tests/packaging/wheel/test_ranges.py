"""The oldest and the newest jax that the metadata allows pass the tests of what touches jax."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from release import ROOT
from tests.packaging.wheel.conftest import Distribution, run, succeed, uv

pytestmark = pytest.mark.xdist_group("wheel-jax")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE = (
    "tests/compile/runtime/test_arrays.py",
    "tests/compile/runtime/test_attributes.py",
    "tests/compile/runtime/test_call_errors.py",
    "tests/compile/runtime/test_transforms.py",
    "tests/cuda/runtime/test_registration.py",
)
TOOLS = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
"""The extra `test` has more, which could hold jax back."""


def pythons() -> dict[str, Path]:
    """The Pythons of this machine that the metadata promises, by minor version, the oldest first."""
    promised = sorted(
        (version for text in PROJECT["classifiers"] if (version := text.rpartition(" :: ")[2]).startswith("3.")),
        key=lambda version: int(version.partition(".")[2]),
    )
    here = Path(sys.base_prefix).parent
    found = {}
    for version in promised:
        on_path = shutil.which(f"python{version}")
        beside = sorted(here.glob(f"{version}.*/bin/python{version}"))
        for place in (*beside, *([Path(on_path)] if on_path else ())):
            if run(place, "-c", "", cwd=ROOT).returncode == 0:
                found[version] = place
    return found


def floor() -> str:
    """The oldest jax of the metadata."""
    return next(match[1] for text in PROJECT["dependencies"] if (match := re.fullmatch(r"jax>=([\d.]+)", text)))


@pytest.mark.parametrize("end", ["oldest", "newest"])
def test_the_core_tests_pass(end: str, distribution: Distribution, tmp_path: Path):
    if end == "oldest" and metadata.version("jax") == floor():
        return  # all tests of this run are run with it
    available = list(pythons().values())
    python, jax = (available[0], f"jax=={floor()}") if end == "oldest" else (available[-1], "jax")
    succeed(run(uv(), "venv", "--quiet", "--python", python, "env", cwd=tmp_path))
    interpreter = tmp_path / "env" / "bin" / "python"
    install = (uv(), "pip", "install", "--quiet", "--python", interpreter, "--only-binary", ":all:")
    succeed(run(*install, distribution.wheel, jax, *TOOLS, cwd=tmp_path))
    version = succeed(run(interpreter, "-c", "import jax; print(jax.__version__)", cwd=tmp_path)).strip()
    if end == "oldest":
        assert version == floor()
    environ = {"BE_CACHE_DIR": str(tmp_path / "cache"), "BE_REQUIRE_TIERS": "compile", "JAX_PLATFORMS": "cpu"}
    done = run(interpreter, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE, cwd=ROOT, **environ)
    assert done.returncode == 0, f"jax {version}\n{done.stdout[-8000:]}{done.stderr}"
