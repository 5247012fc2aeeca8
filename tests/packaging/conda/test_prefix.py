"""What a user has after `conda install`: a prefix that compiles, activated or not, here or moved elsewhere."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from release import ROOT

if TYPE_CHECKING:
    from tests.support.conda.lab import Lab
    from tests.support.conda.solver import Prefix

pytestmark = pytest.mark.xdist_group("conda")

CPP, CUDA = (str(ROOT / "recipe" / "tests" / name) for name in ("cpp_kernel.py", "cuda_kernel.py"))
ACTIVATION = pytest.mark.parametrize("activated", [False, True], ids=["as it is", "activated"])


@pytest.fixture(scope="session")
def cpu(lab: Lab) -> Prefix:
    prefix, records = lab.install("cpu", "brainevent-toolchain")
    assert str(records["jaxlib"].build).startswith("cpu_")
    assert "cuda-nvcc-tools" not in records
    return prefix


@pytest.fixture(scope="session")
def cuda(lab: Lab) -> Prefix:
    prefix, records = lab.install("cuda", "brainevent-toolchain-cuda", driver="13.0")
    assert str(records["jaxlib"].build).startswith("cuda130_")
    return prefix


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def doctor(prefix: Prefix, *, activated: bool) -> dict[str, tuple[str, str]]:
    """Status and message of each finding, by its subject; it may miss CUDA, never C++."""
    done = prefix.run("python", "-m", "be_toolchain", "doctor", "--json", activated=activated)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    report = json.loads(done.stdout)
    return {finding["subject"]: (finding["status"], finding["message"]) for finding in report["findings"]}


@ACTIVATION
def test_cpp_compiles_with_the_prefix_s_compiler(cpu: Prefix, activated: bool):
    status, message = doctor(cpu, activated=activated)["C++ compiler"]
    assert status == "ok"
    assert f"{cpu.path}/bin/" in message
    assert "called from JAX" in succeeded(cpu.run("python", CPP, activated=activated))


@ACTIVATION
def test_cuda_compiles_for_sm_90_with_the_prefix_s_nvcc(cuda: Prefix, activated: bool):
    findings = doctor(cuda, activated=activated)
    failed = {subject: message for subject, (status, message) in findings.items() if status == "fail"}
    assert not failed
    assert str(cuda.path) in findings["CUDA toolkit"][1]
    assert findings["components"][1].startswith("all of one release: nvcc 13.0")
    assert "called from JAX" in succeeded(cuda.run("python", CPP, activated=activated))
    assert "compiled for sm_90" in succeeded(cuda.run("python", CUDA, activated=activated))


def test_without_a_driver_the_cuda_package_says_what_it_needs(lab: Lab):
    from rattler.exceptions import SolverError

    from tests.support.conda import solver

    with pytest.raises(SolverError, match="__cuda"):
        solver.solve(lab.channels, ["brainevent-toolchain-cuda"])


def test_moved_to_a_path_with_spaces(lab: Lab):
    prefix, _ = lab.install("before", "brainevent-toolchain-cuda", driver="13.0")
    moved = prefix.moved(lab.folder / "after the move")
    findings = doctor(moved, activated=False)
    assert str(moved.path) in findings["CUDA toolkit"][1]
    for activated in (False, True):
        assert str(moved.path) in succeeded(moved.run("python", CPP, activated=activated))
    assert str(moved.path) in succeeded(moved.run("python", CUDA))
    # conda's activation names the compiler in NVCC_PREPEND_FLAGS without quotes: nvcc itself splits it at the spaces.
    refused = moved.run("python", CUDA, activated=True)
    assert "nvcc fatal" in refused.stderr
    assert "NVCC_PREPEND_FLAGS" in doctor(moved, activated=True)["environment"][1]
    # An entry point names the interpreter's folder in its first line; `python -m be_toolchain` names none.
    script = (moved.path / "bin" / "be-toolchain").read_text().splitlines()[0]
    assert str(prefix.path) in script
