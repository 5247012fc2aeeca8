"""The oldest and the newest of all that the metadata allows pass the tests of what touches jax."""

from __future__ import annotations

import json
import re
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from release import ROOT
from tests.packaging.wheel.conftest import Distribution, run, succeed, uv
from tests.support.requirements import in_full

pytestmark = pytest.mark.xdist_group("wheel-ranges")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE = (
    "tests/compile/be_runtime/include/test_arrays.py",
    "tests/compile/be_runtime/include/test_call_errors.py",
    "tests/compile/be_runtime/xla/test_transforms.py",
    "tests/cuda/be_runtime/load/test_registration.py::test_the_graph_trait_belongs_to_the_registration",
    "tests/unit/be_runtime/kernels/operation/test_transforms.py",
)
PROGRAM = ROOT / "tests" / "support" / "one_library.py"
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


class Range(NamedTuple):
    """The environment at one end of the ranges: its Python, and the releases in it by name."""

    interpreter: Path
    installed: dict[str, str]


ENDS = {"oldest": (0, "lowest-direct"), "newest": (-1, "highest")}


@pytest.fixture(scope="module")
def ranges(distribution: Distribution, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Range]:
    """The oldest and the newest of all that the metadata allows."""
    made = {}
    for end, (index, resolution) in ENDS.items():
        folder = tmp_path_factory.mktemp(end)
        succeed(run(uv(), "venv", "--quiet", "--python", list(pythons().values())[index], "env", cwd=folder))
        interpreter = folder / "env" / "bin" / "python"
        install = (uv(), "pip", "install", "--quiet", "--python", interpreter, "--only-binary", ":all:")
        # A requirement is direct, and its oldest release is taken, where it is named beside the wheel.
        wanted = (distribution.wheel, *PROJECT["dependencies"], *TOOLS)
        succeed(run(*install, "--resolution", resolution, *wanted, cwd=folder))
        frozen = succeed(run(uv(), "pip", "freeze", "--python", interpreter, cwd=folder))
        made[end] = Range(interpreter, dict(line.split("==") for line in frozen.splitlines() if "==" in line))
    return made


@pytest.mark.parametrize("end", ["oldest", in_full("newest")])
def test_the_core_tests_pass(end: str, ranges: dict[str, Range], tmp_path: Path):
    interpreter, installed = ranges[end]
    at_floor = {name for name, floor in floors().items() if f"{installed[name]}.".startswith(f"{floor}.")}
    assert at_floor == (set(floors()) if end == "oldest" else set()), installed
    environ = {
        "BE_CACHE_DIR": str(tmp_path / "cache"),
        "BE_REQUIRE_TIERS": "unit,compile,cuda",
        "CUDA_HOME": str(Path(sysconfig.get_path("purelib"), "nvidia", "cu13")),
        "JAX_PLATFORMS": "cpu",
    }
    done = run(interpreter, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE, cwd=ROOT, **environ)
    assert done.returncode == 0, f"jax {installed['jax']}\n{done.stdout[-8000:]}{done.stderr}"


@pytest.mark.parametrize(("builder", "user"), [("oldest", "newest"), ("newest", "oldest")])
def test_one_library_serves_both_whichever_built_it(builder: str, user: str, ranges: dict[str, Range], tmp_path: Path):
    """The user's environment finds what the builder's left in the cache, and each calls it."""
    environ = {"BE_CACHE_DIR": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    done = [run(ranges[end].interpreter, PROGRAM, cwd=ROOT, **environ) for end in (builder, user)]
    built, used = (json.loads(succeed(each)) for each in done)
    assert [built["jax"], used["jax"]] == [ranges[end].installed["jax"] for end in (builder, user)]
    assert (used["path"], used["sha256"]) == (built["path"], built["sha256"])
