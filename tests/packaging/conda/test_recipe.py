"""The recipe's packages: what they hold, and the recipe's own tests of them."""

from __future__ import annotations

import shutil
from email.parser import Parser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import be_toolchain
from release import ROOT
from release.dist import build
from release.feedstock import feedstock_recipe, sha256_of

if TYPE_CHECKING:
    from tests.support.conda.lab import Lab

pytestmark = pytest.mark.xdist_group("conda")

BASE, DEFAULT, CUDA = "brainevent-toolchain-base", "brainevent-toolchain", "brainevent-toolchain-cuda"
EPOCH = 1_700_000_000
TESTS = "etc/conda/test-files/"
"""Below it a package keeps the recipe's tests."""


def shipped() -> set[str]:
    """Every file of the two packages that is no by-product."""
    return {
        path.relative_to(ROOT).as_posix()
        for package in ("be_toolchain", "be_runtime")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def code_in(package: Path) -> list[str]:
    """The paths of the code in a package."""
    import rattler_build

    files = rattler_build.Package.from_file(package).files
    return sorted(file for file in files if "/be_" in f"/{file}")


def test_three_packages_for_any_python_and_machine(lab: Lab):
    import rattler_build

    packages = {name: rattler_build.Package.from_file(path) for name, path in lab.packages.items()}
    assert {name: package.noarch for name, package in packages.items()} == {
        BASE: "python",
        DEFAULT: "generic",
        CUDA: "generic",
    }
    assert {package.version for package in packages.values()} == {be_toolchain.__version__}
    assert {package.license for package in packages.values()} == {"Apache-2.0"}
    own = {name: [file for file in package.files if TESTS not in file] for name, package in packages.items()}
    assert [name for name, files in own.items() if not files] == [DEFAULT, CUDA]
    assert all("__linux" in package.depends for package in packages.values())


def test_the_base_holds_the_code_and_its_metadata(lab: Lab, tmp_path: Path):
    prefix, records = lab.install("base", BASE)
    site = next(prefix.path.glob("lib/python*/site-packages"))
    installed = {
        path.relative_to(site).as_posix()
        for package in ("be_toolchain", "be_runtime")
        for path in (site / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert installed == shipped()
    assert "gxx" not in records
    (metadata,) = site.glob("brainevent_toolchain-*.dist-info/METADATA")
    required = Parser().parsestr(metadata.read_text()).get_all("Requires-Dist", [])
    plain = {text.partition(">")[0] for text in required if "extra ==" not in text}
    known = {"flatbuffers", "jax", "jaxlib", "numpy", "packaging", "rich", "shtab"}
    assert plain == known, "conda's ninja is a program that pip does not know"
    said = prefix.run("be-toolchain", "--version")
    assert said.stdout == f"be_toolchain {be_toolchain.__version__}\n", said.stderr


@pytest.mark.parametrize(("name", "driver"), [(BASE, None), (DEFAULT, None), (CUDA, "13.0")])
def test_the_recipe_s_own_tests_pass(lab: Lab, name: str, driver: str | None):
    results = lab.run_tests(name, driver=driver)
    assert results
    failed = ["\n".join(result.output) for result in results if not result.success]
    assert not failed, failed[0]


def test_the_feedstock_s_recipe_builds_the_same_from_the_sdist(lab: Lab):
    from tests.support.conda.lab import build_recipe

    sdist, _ = build(ROOT, lab.folder / "dist", EPOCH)
    recipe = feedstock_recipe(
        (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"),
        url=sdist.as_uri(),
        sha256=sha256_of(sdist),
        homepage="https://example.org",
        maintainers=["octocat"],
    )
    folder = lab.folder / "feedstock"
    shutil.copytree(ROOT / "recipe" / "tests", folder / "tests")
    (folder / "recipe.yaml").write_text(recipe, encoding="utf-8")
    packages = build_recipe(folder / "recipe.yaml", lab.folder, lab.folder / "from-sdist", lab.channels[:1])
    assert set(packages) == set(lab.packages)
    assert code_in(packages[BASE]) == code_in(lab.packages[BASE])
