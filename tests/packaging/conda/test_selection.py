"""What the recipe's pins select on machines with other drivers, from a channel that has many versions of everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.conda.lab import Lab

pytestmark = pytest.mark.xdist_group("conda")

BASE, DEFAULT, CUDA = "brainevent-toolchain-base", "brainevent-toolchain", "brainevent-toolchain-cuda"
SHOWN = ("gxx", "jaxlib", "cuda-version", "cuda-nvcc")


@pytest.fixture(scope="session")
def channels(lab: Lab) -> tuple[str, ...]:
    """conda-forge in names, and the recipe's packages."""
    from tests.support.conda.catalogue import add_catalogue
    from tests.support.conda.channel import Channel

    channel = Channel(lab.folder / "names", lab.folder / "scratch")
    add_catalogue(channel)
    channel.index()
    return (channel.url, lab.channels[-1])


@pytest.mark.parametrize(
    ("specs", "driver", "expected"),
    [
        ((BASE,), None, {"jaxlib": "cpu"}),
        ((DEFAULT,), None, {"gxx": "14.3.0", "jaxlib": "cpu"}),
        ((DEFAULT,), "12.4", {"gxx": "14.3.0", "jaxlib": "cuda129", "cuda-version": "12.9"}),
        ((DEFAULT,), "13.0", {"gxx": "14.3.0", "jaxlib": "cuda130", "cuda-version": "13.2"}),
        ((CUDA,), "12.4", {"gxx": "14.3.0", "jaxlib": "cuda129", "cuda-version": "12.9", "cuda-nvcc": "12.9.86"}),
        ((CUDA,), "13.0", {"gxx": "14.3.0", "jaxlib": "cuda130", "cuda-version": "13.2", "cuda-nvcc": "13.2.78"}),
        (
            (CUDA, "cuda-version 13.0.*"),
            "13.0",
            {"gxx": "14.3.0", "jaxlib": "cuda130", "cuda-version": "13.0", "cuda-nvcc": "13.0.88"},
        ),
        (
            (CUDA, "cuda-version 12.*"),
            "13.0",
            {"gxx": "14.3.0", "jaxlib": "cuda129", "cuda-version": "12.9", "cuda-nvcc": "12.9.86"},
        ),
        (
            (DEFAULT, "cuda-nvcc", "jaxlib * cpu*"),
            None,
            {"gxx": "14.3.0", "jaxlib": "cpu", "cuda-version": "13.2", "cuda-nvcc": "13.2.78"},
        ),
    ],
)
def test_the_pins_select(
    channels: tuple[str, ...], specs: tuple[str, ...], driver: str | None, expected: dict[str, str]
):
    from tests.support.conda import solver

    assert solver.selection(solver.solve(channels, specs, cuda=driver), *SHOWN) == expected


@pytest.mark.parametrize(
    ("specs", "driver", "reason"),
    [
        ((CUDA,), None, "__cuda"),
        ((CUDA, "gxx 16.*"), "13.0", "gxx"),
        ((CUDA, "cuda-version 12.4.*"), "12.4", "cuda-version"),
        ((BASE, "python 3.10.*"), None, "python"),
    ],
)
def test_what_can_t_work_is_refused(channels: tuple[str, ...], specs: tuple[str, ...], driver: str | None, reason: str):
    from rattler.exceptions import SolverError

    from tests.support.conda import solver

    with pytest.raises(SolverError, match=reason):
        solver.solve(channels, specs, cuda=driver)
