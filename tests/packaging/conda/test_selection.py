"""What the recipe, rendered, selects on machines with other drivers, from a channel of many versions of everything."""

from __future__ import annotations

import pytest

from release import ROOT
from tests.support import requirements

pytestmark = pytest.mark.skipif(requirements.missing_conda_tools() is not None, reason="no rattler; extra packaging")

BASE, DEFAULT, CUDA = "brainevent-toolchain-base", "brainevent-toolchain", "brainevent-toolchain-cuda"
ON_129 = {"gxx": "14.3.0", "jaxlib": "cuda129", "cuda-version": "12.9"}
ON_132 = {"gxx": "14.3.0", "jaxlib": "cuda130", "cuda-version": "13.2"}
NVCC_129, NVCC_132 = {"cuda-nvcc": "12.9.86"}, {"cuda-nvcc": "13.2.78"}


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """conda-forge in names, and the recipe's packages as it renders them: nothing is built."""
    import rattler_build

    from tests.packaging.conda.channels.catalogue import add_catalogue
    from tests.packaging.conda.channels.channel import Channel, Package

    folder = tmp_path_factory.mktemp("conda")
    channel = Channel(folder / "channel", folder)
    add_catalogue(channel)
    recipe = rattler_build.Stage0Recipe.from_file(ROOT / "recipe" / "recipe.yaml")
    for variant in recipe.render(rattler_build.VariantConfig.from_file(ROOT / "recipe" / "variants.yaml")):
        made = variant.recipe.to_dict()
        name, version = made["package"]["name"], made["package"]["version"]
        depends = [
            text if isinstance(text, str) else f"{text['pin_subpackage']['name']} =={version}"
            for text in made["requirements"]["run"]
        ]
        channel.add(Package(name, version, tuple(depends), noarch="generic"))
    channel.index()
    return channel.url


@pytest.mark.parametrize(
    ("specs", "driver", "expected"),
    [
        ((BASE,), None, {"jaxlib": "cpu"}),
        ((DEFAULT,), None, {"gxx": "14.3.0", "jaxlib": "cpu"}),
        ((DEFAULT,), "12.4", ON_129),
        ((DEFAULT,), "13.0", ON_132),
        ((CUDA,), "12.4", ON_129 | NVCC_129),
        ((CUDA,), "13.0", ON_132 | NVCC_132),
        ((CUDA, "cuda-version 13.0.*"), "13.0", ON_132 | {"cuda-version": "13.0", "cuda-nvcc": "13.0.88"}),
        ((CUDA, "cuda-version 12.*"), "13.0", ON_129 | NVCC_129),
        ((DEFAULT, "cuda-nvcc", "jaxlib * cpu*"), None, ON_132 | {"jaxlib": "cpu"} | NVCC_132),
        ((CUDA,), None, "__cuda"),
        ((CUDA, "gxx 16.*"), "13.0", "gxx"),
        ((CUDA, "cuda-version 12.4.*"), "12.4", "cuda-version"),
        ((BASE, "python 3.10.*"), None, "python"),
    ],
)
def test_the_pins(channel: str, specs: tuple[str, ...], driver: str | None, expected: dict[str, str] | str):
    """They select what works, and refuse the rest."""
    from rattler.exceptions import SolverError

    from tests.packaging.conda.channels import solver

    if isinstance(expected, str):
        with pytest.raises(SolverError, match=expected):
            solver.solve([channel], specs, cuda=driver)
        return
    shown = ("gxx", "jaxlib", "cuda-version", "cuda-nvcc")
    assert solver.selection(solver.solve([channel], specs, cuda=driver), *shown) == expected
