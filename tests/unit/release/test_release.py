"""What stands against a release is found and named, and GitHub's workflows call make targets with few rights."""

from __future__ import annotations

import gzip
import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from release import ROOT
from release.check import State, find_problems, read_state
from release.dist import normalize_sdist, source_date_epoch
from release.feedstock import feedstock_recipe, sha256_of
from release.problems import ReleaseError

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.0] - 2026-01-31\n\n- First.\n"
GOOD = State({"be_toolchain": "1.0", "be_runtime": "1.0", "recipe/recipe.yaml": "1.0"}, CHANGELOG)


def run_release(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "release", *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_nothing_stands_against_a_good_state():
    assert find_problems(GOOD, "v1.0") == []
    assert find_problems(GOOD, "") == []


@pytest.mark.parametrize(
    ("state", "tag", "problem"),
    [
        (
            GOOD._replace(versions=GOOD.versions | {"recipe/recipe.yaml": "0.9"}),
            "",
            "recipe/recipe.yaml says version 0.9",
        ),
        (GOOD, "v1.1", "the tag is v1.1, the version 1.0"),
        (GOOD, "1.0", "the tag is 1.0"),
        (GOOD._replace(changelog=CHANGELOG.replace("1.0", "0.9")), "", "no section [1.0]"),
        (GOOD._replace(changelog=CHANGELOG.replace(" - 2026-01-31", "")), "", "[1.0] has no date"),
        (GOOD._replace(changelog=CHANGELOG.replace("ed]\n", "ed]\n\n- More.\n")), "", "what is under [Unreleased]"),
        (GOOD._replace(uncommitted=("a.py",)), "", "not committed: a.py"),
    ],
)
def test_a_problem_is_named(state: State, tag: str, problem: str):
    (found,) = find_problems(state, tag)
    assert problem in found


def test_this_checkout_names_one_version():
    versions = read_state(ROOT).versions
    assert len(versions) == 3
    assert len(set(versions.values())) == 1


def test_a_wrong_tag_ends_the_command_with_a_failure():
    done = run_release("check", "--tag", "v0.0.0")
    assert done.returncode == 1
    assert "error: the tag is v0.0.0" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "required: COMMAND"),
        (("upload",), "invalid choice: 'upload'"),
        (("feedstock", "out", "--sdist", "x", "--url", "u", "--homepage", "h"), "required: --maintainer"),
        (
            ("feedstock", "out", "--sdist", "/none.tar.gz", "--url", "u", "--homepage", "h", "--maintainer", "m"),
            "/none.tar.gz can't be read: No such file",
        ),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[str, ...], message: str):
    done = run_release(*arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("url", "sha256", "message"),
    [
        ("https://example.org/x-2.0.tar.gz", "0" * 64, "not that of an sdist of version 1.0"),
        ("https://example.org/x-1.0.tar.gz", "0" * 63, "no SHA-256"),
    ],
)
def test_a_feedstock_of_another_file_is_refused(url: str, sha256: str, message: str):
    recipe = 'context:\n  version: "1.0"\nsource:\n  path: ..\nabout:\n  license: MIT\n'
    with pytest.raises(ReleaseError, match=message):
        feedstock_recipe(recipe, url=url, sha256=sha256, homepage="https://example.org", maintainers=["octocat"])


def test_the_feedstock_command_writes_recipe_and_tests(tmp_path: Path):
    version = read_state(ROOT).versions["be_toolchain"]
    sdist = tmp_path / "brainevent_toolchain.tar.gz"
    sdist.write_bytes(b"content")
    url = f"https://example.org/brainevent_toolchain-{version}.tar.gz"
    facts = ("--sdist", str(sdist), "--url", url, "--homepage", "https://example.org", "--maintainer", "octocat")
    done = run_release("feedstock", str(tmp_path / "out"), *facts)
    assert done.returncode == 0, done.stderr
    assert f"sha256: {sha256_of(sdist)}" in (tmp_path / "out" / "recipe.yaml").read_text()
    assert {path.name for path in (tmp_path / "out" / "tests").iterdir()} == {"cpp_kernel.py", "cuda_kernel.py"}


def test_the_time_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "12")
    assert source_date_epoch(tmp_path) == 12
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ReleaseError, match="not 'yesterday'"):
        source_date_epoch(tmp_path)
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    with pytest.raises(ReleaseError, match="set SOURCE_DATE_EPOCH"):
        source_date_epoch(tmp_path)


def archive(*names: str, mtime: int, mode: int, owner: str) -> bytes:
    """A .tar.gz with a text in each file."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode, member.uname = 4, mtime, mode, owner
            tar.addfile(member, io.BytesIO(b"text"))
    return stream.getvalue()


def test_two_sdists_of_one_source_become_one():
    first = normalize_sdist(archive("a", "b", mtime=1, mode=0o600, owner="alice"), 99)
    second = normalize_sdist(archive("b", "a", mtime=2, mode=0o644, owner="bob"), 99)
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        assert [(m.name, m.mtime, m.mode, m.uname) for m in tar] == [("a", 99, 0o644, ""), ("b", 99, 0o644, "")]
    assert gzip.decompress(first)


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
