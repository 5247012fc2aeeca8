"""The recipe, built against a channel of what this machine has, and what a user's client does with the result."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import rattler_build

from release import ROOT
from release.dist import copy_sources
from tests.packaging.conda.channels import compilers, cuda, interpreter, solver, wheels
from tests.packaging.conda.channels.channel import Channel

NEEDED = (
    "flatbuffers",
    "jax",
    "jaxlib",
    "ninja",
    "numpy",
    "packaging",
    "pip",
    "platformdirs",
    "rich",
    "setuptools",
    "shtab",
)
"""All that the recipe names, but for Python and compilers."""


OURS = ("BE_", "BRAINEVENT_", "CONDA_", "CUDA_", "NVCC_", "PYTHON", "VIRTUAL_ENV", "CXX", "CC", "XLA_", "JAX_")
"""Variables of the process that tests, which a user does not have."""


class Lab(NamedTuple):
    """Channels and packages.

    Parameters
    ----------
    folder : Path
        Everything is below it, package caches too: none is shared, or an old package of the same name would be tested.
    channels : tuple of str
        The local stand-in for conda-forge, and the one of what was built.
    packages : dict
        What the recipe gave, by name.
    """

    folder: Path
    channels: tuple[str, ...]
    packages: dict[str, Path]

    def install(self, name: str, spec: str, *, driver: str | None = None) -> tuple[solver.Prefix, solver.Records]:
        """Solve for one package under some driver, and install the answer into a fresh prefix."""
        records = solver.solve(self.channels, [spec], cuda=driver)
        prefix = solver.install(records, self.folder / name, self.folder / f"home-{name}", self.folder / "cache")
        return prefix, records

    def run_tests(self, name: str, *, driver: str | None = None) -> None:
        """Run the tests that the recipe has for one of its packages."""
        with client_environment(self.folder, driver):
            results = rattler_build.Package.from_file(self.packages[name]).run_tests(channel=list(self.channels))
        assert results
        assert ["\n".join(result.output) for result in results if not result.success] == []


def missing() -> str | None:
    """Why the lab can't be set up on this machine, or None."""
    return interpreter.unsuitable() or cuda.missing() or compilers.missing()


def make_lab(folder: Path, root: Path = ROOT) -> Lab:
    """Make the channel, and build the recipe of a checkout."""
    (folder / "scratch").mkdir()
    channel = Channel(folder / "channel", folder / "scratch")
    interpreter.add_python(channel)
    wheels.add_with_requirements(channel, *NEEDED)
    cuda.add_cuda(channel)
    compilers.add_compilers(channel)
    channel.index()
    copy_sources(root, folder / "tree")
    shutil.copytree(root / "recipe", folder / "tree" / "recipe")
    out = folder / "out"
    packages = build_recipe(folder / "tree" / "recipe" / "recipe.yaml", folder, out, [channel.url])
    return Lab(folder, (channel.url, out.as_uri()), packages)


def build_recipe(recipe: Path, folder: Path, out: Path, channels: Sequence[str], driver: str = "") -> dict[str, Path]:
    """Build the outputs of a recipe with the one Python that the channel has, whose version is put into the recipe."""
    text = recipe.read_text(encoding="utf-8")
    recipe.write_text(text.replace('python_min: "3.11"', f'python_min: "{interpreter.VERSION}"'), encoding="utf-8")
    made: dict[str, Path] = {}
    variants = rattler_build.VariantConfig.from_file(ROOT / "recipe" / "variants.yaml")
    with client_environment(folder, driver):
        for variant in rattler_build.Stage0Recipe.from_file(recipe).render(variants):
            result = variant.run_build(output_dir=out, channels=list(channels))
            (made[result.name],) = map(Path, result.packages)
    return made


@contextlib.contextmanager
def client_environment(folder: Path, driver: str | None) -> Iterator[None]:
    """Give a builder caches of its own, a driver and a short PATH, and nothing else of this process's environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(OURS)]:
            patch.delenv(name)
        patch.setenv("RATTLER_CACHE_DIR", str(folder / "cache"))
        for name in ("HOME", "TMPDIR"):
            patch.setenv(name, str(folder / "scratch"))
        patch.setenv("PATH", solver.SYSTEM_PATH)
        patch.setenv("CONDA_OVERRIDE_CUDA", driver or "")
        yield
