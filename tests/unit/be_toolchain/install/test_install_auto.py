"""What ``--cuda auto`` takes: drivers against the CUDA plugins of jax, and where it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_toolchain.errors import CudaUnavailableError
from be_toolchain.install.model import InstallRequest, Situation, Target
from be_toolchain.install.plan import choose_goals
from be_toolchain.known import catalog

PLUGINS = {
    "no jax": ("", ()),
    "jax[cuda12]": ("12", (("nvidia-cuda-nvcc-cu12", "12.6.85"), ("nvidia-cuda-runtime-cu12", "12.1.105"))),
    "jax[cuda13]": ("13", (("nvidia-cuda-nvcc", "13.0.48"), ("nvidia-cuda-runtime", "13.0.48"))),
    "a later jax[cuda13]": ("13", (("nvidia-cuda-nvcc", "13.1.80"), ("nvidia-cuda-runtime", "13.0.48"))),
}
DRIVERS = {"": "", "12.4": "550.54", "12.8": "570.86", "13.0": "580.82", "13.1": "590.44", "13.10": "640.10"}


def choose(driver: str, plugin: str, into: Target) -> str:
    """The version part of the requirement."""
    major, minimums = PLUGINS[plugin]
    situation = Situation(
        site=Path("/venv/lib/python3.11/site-packages"),
        store=Path("/home/ada/store"),
        driver_version=driver,
        driver_release=DRIVERS[driver],
        jax_cuda=major,
        minimums=minimums,
    )
    (goal,) = choose_goals(InstallRequest(cuda="auto", into=into), situation)
    assert goal.into == into
    assert any("jax here is for CUDA 12" in note for note in goal.notes) is (major == "12")
    return goal.requirement.removeprefix(catalog.PIP_TOOLKIT)


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("driver", ["12.4", "12.8"])
def test_a_driver_for_cuda_12_runs_nothing_that_pip_has(driver: str, plugin: str):
    for into in ("env", "managed"):
        with pytest.raises(CudaUnavailableError, match=rf"the driver supports CUDA {driver}") as caught:
            choose(driver, plugin, into)
        assert not any("install --cuda 13" in hint for hint in caught.value.hints)


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize(
    ("driver", "expected"),
    [("", "==13.0.*"), ("13.0", ">=13,<13.1"), ("13.1", ">=13,<13.2"), ("13.10", ">=13,<13.11")],
)
def test_in_a_folder_of_its_own_the_driver_alone_decides(driver: str, plugin: str, expected: str):
    assert choose(driver, plugin, "managed") == expected


@pytest.mark.parametrize(
    ("driver", "plugin", "expected"),
    [
        ("", "no jax", "==13.0.*"),
        ("", "jax[cuda12]", "==13.0.*"),
        ("", "jax[cuda13]", "==13.0.*"),
        ("", "a later jax[cuda13]", "==13.1.*"),
        ("13.0", "no jax", ">=13,<13.1"),
        ("13.0", "jax[cuda12]", ">=13,<13.1"),
        ("13.0", "jax[cuda13]", ">=13,<13.1"),
        ("13.1", "jax[cuda13]", ">=13,<13.2"),
        ("13.1", "a later jax[cuda13]", ">=13,<13.2"),
        ("13.10", "a later jax[cuda13]", ">=13,<13.11"),
    ],
)
def test_in_an_environment_the_jax_in_it_has_a_say(driver: str, plugin: str, expected: str):
    assert choose(driver, plugin, "env") == expected


def test_a_jax_that_is_newer_than_the_driver_is_said():
    with pytest.raises(CudaUnavailableError, match=r"the jax in this environment needs CUDA 13\.1.*supports 13\.0"):
        choose("13.0", "a later jax[cuda13]", "env")
