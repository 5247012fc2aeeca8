"""The recipe and the bounds say what pyproject.toml and the packages say, and keep the rules of conda-forge's linter.

The rules are those that conda-smithy documents for recipes of version 1; its names for them are given.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import be_toolchain
from release import ROOT
from release.dist import SOURCES
from release.feedstock import feedstock_recipe

TEXT = (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
RECIPE: dict[str, Any] = yaml.safe_load(TEXT)
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
OUTPUTS = {output["package"]["name"]: output for output in RECIPE["outputs"]}
BASE, DEFAULT, CUDA = "brainevent-toolchain-base", "brainevent-toolchain", "brainevent-toolchain-cuda"
NATIVE, PINNED = (
    "brainevent-toolchain-native",
    '${{ pin_subpackage("brainevent-toolchain-native", upper_bound="x.x.x") }}',
)
URL = "https://example.org/brainevent_toolchain-{}.tar.gz"
FACTS = {"url": URL.format(be_toolchain.__version__), "sha256": "ab" * 32, "homepage": "https://example.org"}
FEEDSTOCK = feedstock_recipe(TEXT, maintainers=["octocat"], **FACTS)


OTHERWISE = {"flatbuffers": "python-flatbuffers"}


def spaced(requirement: str) -> str:
    """A requirement of pip as conda writes it: a space before the version, and some names of its own."""
    found = Requirement(requirement)
    return f"{OTHERWISE.get(found.name, found.name)} {found.specifier}".strip()


def requirements(name: str, section: str) -> list[str]:
    texts: list[str] = OUTPUTS[name]["requirements"][section]
    return texts


def test_it_says_what_the_project_and_its_wheel_say():
    assert RECIPE["context"]["version"] == be_toolchain.__version__
    assert RECIPE["about"]["license"] == PROJECT["license"]
    assert RECIPE["about"]["license_file"] in PROJECT["license-files"]
    assert PROJECT["requires-python"] == f">={RECIPE['context']['python_min']}"
    run = set(requirements(BASE, "run"))
    assert run - {"__linux", "python >=${{ python_min }}", PINNED} == {spaced(text) for text in PROJECT["dependencies"]}
    wanted = {spaced(text) for text in PYPROJECT["build-system"]["requires"]}
    assert wanted <= set(requirements(BASE, "host"))
    included = {pattern.partition("/")[0] for pattern in RECIPE["source"]["filter"]["include"]}
    assert included == set(SOURCES)
    programs = {f"be-{name}": f"be_{name}.cli.main:main" for name in ("runtime", "toolchain")}
    assert PROJECT["scripts"] == programs
    entries = OUTPUTS[BASE]["build"]["python"]["entry_points"]
    assert entries == [f"{name} = {value}" for name, value in PROJECT["scripts"].items()]


def test_the_cuda_releases_are_those_of_the_extras():
    texts = [PROJECT["optional-dependencies"][extra][0] for extra in ("cuda12", "cuda13-newest")]
    (oldest, _), (_, newest) = (re.findall(r"==((\d+)\.\d+)\.\*", text)[0] for text in texts)
    assert f"cuda-version >={oldest},<{int(newest) + 1}" in requirements(CUDA, "run")


def test_each_output_builds_on_the_one_before():
    assert PINNED in requirements(BASE, "run")
    for name, base in ((DEFAULT, BASE), (CUDA, DEFAULT)):
        assert f'${{{{ pin_subpackage("{base}", exact=True) }}}}' in requirements(name, "run")
    assert [text for text in requirements(DEFAULT, "run") if text.startswith("gxx ")]


@pytest.mark.parametrize("text", [TEXT, FEEDSTOCK], ids=["repository", "feedstock"])
def test_sections_are_in_conda_forge_s_order(text: str):
    """R-000, R-001, R-011 and R-012."""
    order = ("schema_version", "context", "recipe", "source", "build", "outputs", "about", "extra")
    sections = list(yaml.safe_load(text))
    assert sections == [name for name in order if name in sections]
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_the_feedstock_s_recipe_has_all_that_is_asked_for():
    """R-002, R-003, R-004, R-013 and R-019."""
    recipe = yaml.safe_load(FEEDSTOCK)
    assert {"homepage", "license", "license_file", "summary"} <= set(recipe["about"])
    assert recipe["extra"] == {"recipe-maintainers": ["octocat"]}
    assert recipe["source"] == {"url": URL.format("${{ version }}"), "sha256": "ab" * 32}
    assert recipe["outputs"] == RECIPE["outputs"]


@pytest.mark.parametrize("name", OUTPUTS)
def test_each_output(name: str):
    """R-006, R-008, R-009, R-014, R-020, R-022 and R-048."""
    output = OUTPUTS[name]
    assert re.fullmatch(r"[a-z0-9._-]+", name)
    assert output["tests"]
    assert output["build"].get("noarch") in ({None} if name == NATIVE else {"python", "generic"})
    assert "skip" not in output["build"]
    assert isinstance(RECIPE["build"]["number"], int)
    sections = list(output["requirements"])
    assert sections == [section for section in ("build", "host", "run", "run_constraints") if section in sections]
    pattern = r"\$\{\{ .+ \}\}|[\w-]+(?: [^\s=]\S*| \* \S+)?|python [>]?=?\$\{\{ python_min \}\}(?:\.\*)?"
    texts = [text for section in sections for text in requirements(name, section)]
    assert [text for text in texts if not re.fullmatch(pattern, text)] == []


def test_python_is_pinned_as_conda_forge_pins_it():
    """R-023, R-026, R-046 and R-047."""
    assert {"python ${{ python_min }}.*", "pip"} <= set(requirements(BASE, "host"))
    assert "python >=${{ python_min }}" in requirements(BASE, "run")
    assert OUTPUTS[BASE]["tests"][0]["python"]["python_version"] == "${{ python_min }}.*"
    assert OUTPUTS[BASE]["tests"][0]["python"]["pip_check"] is True


def test_the_tests_that_it_names_are_there():
    tests = [test for output in RECIPE["outputs"] for test in output["tests"]]
    contents = [file for test in tests for file in test.get("package_contents", {}).get("site_packages", ())]
    assert [file for file in contents if not (ROOT / file).exists()] == []
    named = {file for test in tests for file in test.get("files", {}).get("recipe", ())}
    assert named == {f"tests/{path.name}" for path in (ROOT / "recipe" / "tests").glob("*.py")}


def test_ci_and_the_first_page_have_the_bounds_of_the_project():
    """CI tests each Python, the last also free-threaded, and the oldest releases with the first."""
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["numba"], *extras["warp"], *extras["test"]]
    open_below = [text for text in wanted if not re.search(r">=|==|\[", text)]
    assert open_below == []
    pythons = [version for text in PROJECT["classifiers"] if re.match(r"3\.\d", version := text.rpartition(" :: ")[2])]
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    jax = next(text.removeprefix("jax>=") for text in PROJECT["dependencies"] if text.startswith("jax>="))
    assert f"jaxlib>={jax}" in PROJECT["dependencies"]
    first_page = (ROOT / "README.md").read_text()
    assert f"Python {pythons[0]} to {pythons[-1]} and JAX {jax.removesuffix('.0')} or newer." in first_page
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert ci["jobs"]["ranges"]["strategy"]["matrix"]["include"] == [
        {"python": pythons[0], "resolution": "lowest-direct"},
        *({"python": version, "resolution": "highest"} for version in (*pythons[1:], f"{pythons[-1]}t")),
    ]
