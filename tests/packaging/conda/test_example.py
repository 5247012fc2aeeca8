"""The example package's recipe: its kernels are built with it, and run in a prefix that has no compiler."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from release import ROOT

if TYPE_CHECKING:
    from tests.support.conda.lab import Lab

pytestmark = pytest.mark.xdist_group("conda")

NAME = "mykernels"
BUILDS_WITH = ("auditwheel", "hatchling", "numba")
"""What the recipe names beside our packages. Without numba-cuda, which would bring a gigabyte into the channel."""


@pytest.fixture(scope="session")
def example(lab: Lab) -> Lab:
    """The lab with the example's package, built in a prefix that has the CUDA compilers."""
    from tests.support.conda import wheels
    from tests.support.conda.channel import Channel
    from tests.support.conda.lab import build_recipe

    home = lab.folder / "example"
    (home / "scratch").mkdir(parents=True)
    channel = Channel(home / "channel", home / "scratch")
    wheels.add_with_requirements(channel, *BUILDS_WITH)
    channel.index()
    out = home / "out"
    packages = build_recipe(_copy(home), lab.folder, out, [*lab.channels, channel.url], driver="13.0")
    return lab._replace(channels=(*lab.channels, out.as_uri()), packages=packages)


def _copy(home: Path) -> Path:
    """The recipe of the example as it is, but for one architecture, and without the kernel of Numba CUDA."""
    folder = home / NAME
    shutil.copytree(ROOT / "examples" / NAME, folder, ignore=shutil.ignore_patterns("_kernels", "__pycache__"))
    recipe = folder / "conda" / "recipe.yaml"
    declared = folder / NAME / "kernels.toml"
    _edit(declared, lambda text: text.partition("[kernels.wave]")[0])
    _edit(declared, lambda text: text.replace('["8.0", "9.0", "12.0"]', '["9.0"]'))
    _edit(recipe, lambda text: re.sub(r"    - (numba-cuda|cuda-nvrtc|libnvjitlink)\n", "", text))
    return recipe


def _edit(file: Path, change: Callable[[str], str]) -> None:
    before = file.read_text(encoding="utf-8")
    after = change(before)
    assert after != before, f"{file.name} has nothing to leave out"
    file.write_text(after, encoding="utf-8")


def test_the_recipe_s_own_tests_pass(example: Lab):
    results = example.run_tests(NAME)
    assert results
    failed = ["\n".join(result.output) for result in results if not result.success]
    assert not failed, failed[0]


def test_it_runs_in_a_prefix_without_a_compiler(example: Lab):
    prefix, records = example.install(NAME, NAME)
    assert not {"gxx", "cuda-nvcc", "numba"} & records.keys()
    done = prefix.run("python", "-m", NAME, BE_JIT="never", PATH="/nowhere")
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"^(\S+) +cpu 0 agrees", done.stdout, re.MULTILINE)
    assert ran == ["neurons.fire", "neurons.integrate", "decay"]
    # Neither the build's folders are in a kernel, nor did the package's installation write the prefix into it.
    images = list(prefix.path.glob(f"lib/python*/site-packages/{NAME}/_kernels/images/*"))
    assert {image.suffix for image in images} == {".so", ".cubin", ".ptx"}
    for image in images:
        data = image.read_bytes()
        assert hashlib.sha256(data).hexdigest() == image.stem
        assert str(example.folder).encode() not in data
