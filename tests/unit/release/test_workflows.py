"""GitHub's workflows call make targets, with pinned actions and no more permissions than they need."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from release import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
ALLOWED = ("make ", "gh release create ", "sudo apt-get update && sudo apt-get install ")
PROMISED = re.search(r"BE_REQUIRE_TIERS=(\S+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))


def load(path: Path) -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in load(path)["jobs"].values() for step in job["steps"]]


def tool(name: str) -> str:
    """A checker of this environment."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{name} is not installed; it comes with the extra packaging")
    return found


def test_there_are_workflows():
    assert {path.name for path in WORKFLOWS} == {"ci.yml", "docs.yml", "release.yml"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit(path: Path):
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line]
    assert lines
    loose = [line for line in lines if not re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)]
    assert not loose


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_permissions_are_granted_job_by_job(path: Path):
    workflow = load(path)
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert job["permissions"]
        builds = any("make " in step.get("run", "") for step in job["steps"])
        assert not builds or job["permissions"] == {"contents": "read"}, "what runs our code can write nothing"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_run_make_targets(path: Path):
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    commands = [step["run"] for step in steps(path) if "run" in step]
    called = {match[1] for command in commands if (match := re.fullmatch(r"make ([a-z-]+)", command.strip()))}
    assert called
    assert called <= targets
    assert [command for command in commands if not command.startswith(ALLOWED)] == []
    assert not [command for command in commands if "${{" in command], "values reach a shell as variables"


def test_the_site_is_deployed_from_the_main_branch_once_it_is_built_and_its_links_lead_somewhere():
    workflow = load(ROOT / ".github" / "workflows" / "docs.yml")
    assert workflow[True] == {"push": {"branches": ["main"]}, "pull_request": None}, "YAML reads `on` as true"
    jobs = workflow["jobs"]
    assert {"run": "make docs-links"} in jobs["links"]["steps"]
    assert "make docs" in [step.get("run") for step in jobs["build"]["steps"]]
    assert jobs["deploy"]["if"] == "github.event_name == 'push'"
    assert set(jobs["deploy"]["needs"]) == {"build", "links"}


def test_ci_promises_the_same_tiers_everywhere():
    assert PROMISED is not None
    promised = [step["env"]["BE_REQUIRE_TIERS"] for step in steps(WORKFLOWS[0]) if "env" in step]
    assert promised == [PROMISED[1], "faults", PROMISED[1].removesuffix(",packaging")]
    assert f"BE_REQUIRE_TIERS := {PROMISED[1]}\n" in MAKEFILE


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_they_fit_github_s_schema(path: Path):
    command = (tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", str(path))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_auditor_finds_nothing():
    command = (tool("zizmor"), "--offline", "--no-progress", "--pedantic", str(ROOT / ".github"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
