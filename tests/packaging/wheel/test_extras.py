"""What the extras resolve to: components of one CUDA release, alone and beside jax's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from release import ROOT
from tests.packaging.wheel.conftest import Distribution, run, succeed, uv

pytestmark = pytest.mark.xdist_group("wheel")

CONSTRAINTS = ROOT / "constraints" / "cuda13.txt"
PYTHON = "3.12"
"""The newest jax[cuda13] is asked for, whatever Python runs the tests."""


def resolve(folder: Path, *requirements: str, constraints: Path | None = None) -> dict[str, Version]:
    """What an installer would install, by name; only metadata is downloaded."""
    wanted = folder / "requirements.in"
    wanted.write_text("\n".join(requirements), encoding="utf-8")
    options = ["--constraints", str(constraints)] if constraints else []
    platform = ("--python-version", PYTHON, "--python-platform", "x86_64-manylinux_2_28")
    command = (uv(), "pip", "compile", "--quiet", "--no-header", "--no-annotate", *platform, *options, str(wanted))
    lines = succeed(run(*command, cwd=folder)).splitlines()
    pairs = (line.split("==") for line in lines if "==" in line)
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def with_extra(distribution: Distribution, extra: str) -> str:
    """A requirement of the wheel that was built."""
    return f"brainevent-toolchain[{extra}] @ {distribution.wheel.as_uri()}"


def pins() -> dict[str, Requirement]:
    """The constraints, by name."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    parsed = [Requirement(line) for line in lines if not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in parsed}


def test_cuda13_alone_is_one_release(distribution: Distribution, tmp_path: Path):
    resolved = resolve(tmp_path, with_extra(distribution, "cuda13"))
    releases = {name: version.release[:2] for name, version in resolved.items() if name.startswith("nvidia-")}
    assert len(releases) >= 5
    assert set(releases.values()) == {(13, 0)}


@pytest.mark.full
def test_cuda12_is_what_nvidia_calls_one_release(distribution: Distribution, tmp_path: Path):
    ours = resolve(tmp_path, with_extra(distribution, "cuda12"))
    parts = {name: version for name, version in ours.items() if name.startswith("nvidia-")}
    release = resolve(tmp_path, "cuda-toolkit[nvcc,nvrtc,cudart,cccl]==12.9.*")
    assert len(parts) >= 4
    assert {name: release[name] for name in parts} == parts


def test_the_constraints_are_nvidia_s_own(tmp_path: Path):
    release = resolve(tmp_path, "cuda-toolkit[all]==13.0.2")
    libraries = {name: version for name, version in release.items() if name.startswith("nvidia-")}
    assert set(libraries) == set(pins())
    assert not [name for name, pin in pins().items() if not pin.specifier.contains(libraries[name])]


def test_beside_jax_the_constraints_make_one_release(distribution: Distribution, tmp_path: Path):
    wanted = (with_extra(distribution, "cuda13"), "jax[cuda13]")
    free = resolve(tmp_path, *wanted)
    bound = resolve(tmp_path, *wanted, constraints=CONSTRAINTS)
    assert bound["jax"] == free["jax"], "the constraints hold jax back"
    shared = [name for name in bound if name in pins()]
    assert len(shared) >= 10
    assert not [name for name in shared if not pins()[name].specifier.contains(bound[name])]
    assert [name for name in shared if not pins()[name].specifier.contains(free[name])], "pip alone can: drop the file"
