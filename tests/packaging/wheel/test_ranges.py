"""The oldest and the newest of all that the metadata allows pass the tests of what touches jax."""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from release import ROOT
from tests.packaging.wheel.conftest import Distribution, run, succeed, uv

pytestmark = pytest.mark.xdist_group("wheel-ranges")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE = (
    "tests/compile/be_runtime/include/test_arrays.py",
    "tests/compile/be_runtime/include/test_call_errors.py",
    "tests/compile/be_runtime/xla/test_transforms.py",
    "tests/cuda/be_runtime/load/test_registration.py::test_the_graph_trait_belongs_to_the_registration",
    "tests/unit/be_runtime/kernels/operation/test_transforms.py",
)
TOOLS = tuple(
    text for text in PROJECT["optional-dependencies"]["test"] if text.startswith(("hypothesis", "pytest", "pyyaml"))
)
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


def floors() -> dict[str, str]:
    """The oldest release of each requirement."""
    matches = (re.fullmatch(r"([\w-]+)>=([\d.]+)", text) for text in PROJECT["dependencies"])
    return {match[1]: match[2] for match in matches if match}


@pytest.mark.parametrize(("end", "resolution"), [(0, "lowest-direct"), (-1, "highest")], ids=["oldest", "newest"])
def test_the_core_tests_pass(end: int, resolution: str, distribution: Distribution, tmp_path: Path):
    python = list(pythons().values())[end]
    succeed(run(uv(), "venv", "--quiet", "--python", python, "env", cwd=tmp_path))
    interpreter = tmp_path / "env" / "bin" / "python"
    install = (uv(), "pip", "install", "--quiet", "--python", interpreter, "--only-binary", ":all:")
    # A requirement is direct, and its oldest release is taken, where it is named beside the wheel.
    wanted = (distribution.wheel, *PROJECT["dependencies"], *TOOLS)
    succeed(run(*install, "--resolution", resolution, *wanted, cwd=tmp_path))
    frozen = succeed(run(uv(), "pip", "freeze", "--python", interpreter, cwd=tmp_path))
    installed = dict(line.split("==") for line in frozen.splitlines() if "==" in line)
    at_floor = {name for name, floor in floors().items() if f"{installed[name]}.".startswith(f"{floor}.")}
    assert at_floor == (set(floors()) if resolution == "lowest-direct" else set()), installed
    environ = {
        "BE_CACHE_DIR": str(tmp_path / "cache"),
        "BE_REQUIRE_TIERS": "unit,compile,cuda",
        "CUDA_HOME": str(Path(sysconfig.get_path("purelib"), "nvidia", "cu13")),
        "JAX_PLATFORMS": "cpu",
    }
    done = run(interpreter, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE, cwd=ROOT, **environ)
    assert done.returncode == 0, f"jax {installed['jax']}\n{done.stdout[-8000:]}{done.stderr}"
