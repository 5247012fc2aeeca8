"""Environments as they are found: without pip but with uv, and with the CUDA wheels and plugins that jax brings."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.errors import CudaNotFoundError
from be_toolchain.install.facts import gather_situation
from be_toolchain.report.doctor import examine_machine
from be_toolchain.report.report_text import render_report
from tests.support.fresh_environments import STRANGERS, Environment

pytestmark = pytest.mark.xdist_group("toolchain-environments")

Make = Callable[..., Environment]


def root_of(environment: Environment) -> Path:
    """The root of the toolkit that a search finds."""
    toolkit = resolve(ToolchainRequest(need_cuda=True), system=environment.system).cuda
    assert toolkit is not None
    return toolkit.root


@pytest.fixture(scope="module")
def uv(new_environment: Make) -> Path:
    """uv, in an environment of its own."""
    tools = new_environment()
    tools.pip("install", "uv")
    return tools.python.with_name("uv")


def test_uv_installs_where_there_is_no_pip(new_environment: Make, small_wheels: Path, uv: Path):
    bare = replace(new_environment("--without-pip"), path=f"{uv.parent}:/usr/bin:/bin")
    install = ("install", "--cuda", "13.0", "--yes", "--wheels", small_wheels)

    code, text = bare.run(*install, "--into", "managed")
    assert code == 0, text
    assert root_of(bare) == bare.store / "cuda-13.0.2" / "nvidia" / "cu13"
    code, text = bare.run(*install, "--into", "env")
    assert code == 0, text
    assert root_of(bare) == bare.site / "nvidia" / "cu13"
    assert bare.run("list", "--verify")[0] == 0
    assert not list(bare.site.glob("pip*"))


def test_uv_repairs_mixed_wheels(new_environment: Make, small_wheels: Path, uv: Path):
    mixed = replace(new_environment("--without-pip"), path=f"{uv.parent}:/usr/bin:/bin")
    command = (uv, "pip", "install", "--python", mixed.python, "--no-index", "--find-links", small_wheels, "--no-deps")
    subprocess.run([*command, "nvidia-cuda-nvcc==13.0.88", *STRANGERS], check=True, capture_output=True)
    with pytest.raises(CudaNotFoundError):
        root_of(mixed)
    code, text = mixed.run("doctor", "--fix", "--yes", "--wheels", small_wheels)
    assert code == 0, text
    assert root_of(mixed) == mixed.site / "nvidia" / "cu13"


def test_the_plugin_of_jax_says_which_releases_it_takes(new_environment: Make, small_wheels: Path):
    environment = new_environment()
    environment.pip("install", "--no-deps", "jax-cuda13-plugin")
    situation = gather_situation(environment.system, site=environment.site)
    assert situation.jax_cuda == "13"
    assert dict(situation.minimums)["nvidia-cuda-nvcc"].startswith("13.")
    code, text = environment.run("install", "--dry-run", "--json", "--wheels", small_wheels)
    assert code == 0, text
    (plan,) = json.loads(text)["plans"]
    assert (plan["version"], plan["into"]) == ("13.0.2", "env")


def test_the_wheels_of_jax_for_cuda_12_hold_no_nvcc_and_the_doctor_says_what_they_do(new_environment: Make):
    environment = new_environment()
    environment.pip("install", "--no-deps", "jax-cuda12-plugin", "nvidia-cuda-nvcc-cu12==12.9.*")
    assert (environment.site / "nvidia" / "cuda_nvcc" / "bin" / "ptxas").is_file()
    assert gather_situation(environment.system, site=environment.site).jax_cuda == "12"
    report = examine_machine(environment.system)
    text = render_report(report, verbose=True)
    assert report.exit_code == 1
    assert "holds ptxas and libdevice" in text
    assert any("python -m be_toolchain install" in hint for hint in report.problems[0].hints)
