"""The bounds of pyproject.toml are those that the first page states and that CI tests each Python of."""

from __future__ import annotations

import re
import tomllib

import yaml

from release import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CI = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
PYTHONS = [version for text in PROJECT["classifiers"] if re.match(r"3\.\d", version := text.rpartition(" :: ")[2])]
JAX = next(text.removeprefix("jax>=") for text in PROJECT["dependencies"] if text.startswith("jax>="))


def test_every_requirement_has_its_oldest_release():
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["numba"], *extras["warp"], *extras["test"]]
    open_below = [text for text in wanted if not re.search(r">=|==|\[", text)]
    assert open_below == ["numpy<2.5"], "the same package is bounded below among the dependencies"


def test_jax_and_jaxlib_begin_with_one_release():
    assert f"jaxlib>={JAX}" in PROJECT["dependencies"]


def test_the_classifiers_begin_with_the_oldest_python():
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_the_first_page_states_the_ranges():
    jax = re.sub(r"\.0$", "", JAX)
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}, JAX {jax} or newer." in (ROOT / "README.md").read_text()


def test_ci_tests_each_python_and_the_oldest_releases_with_the_first():
    rows = CI["jobs"]["ranges"]["strategy"]["matrix"]["include"]
    oldest, *newer = PYTHONS
    assert rows == [
        {"python": oldest, "resolution": "lowest-direct"},
        *({"python": version, "resolution": "highest"} for version in newer),
    ]
