"""What stands against a release is found and named, and GitHub's workflows call make targets with few rights."""

from __future__ import annotations

import gzip
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from release import ROOT
from release.check import State, find_problems, prepare, read_state
from release.dist import normalize_sdist, source_date_epoch
from release.feedstock import feedstock_recipe, recipe_version, sha256_of
from release.problems import ReleaseError
from tests.support.docker import find_nothing

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.0] - 2026-01-31\n\n- First.\n"
GOOD = State({"be_toolchain": "1.0", "be_runtime": "1.0", "recipe/recipe.yaml": "1.0"}, CHANGELOG)


def run_release(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "release", *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("state", "tag", "problem"),
    [
        (GOOD, "v1.0", ""),
        (GOOD, "", ""),
        (GOOD._replace(versions=GOOD.versions | {"recipe": "0.9"}), "", "recipe says version 0.9"),
        (GOOD, "v1.1", "the tag is v1.1, the version 1.0"),
        (GOOD, "1.0", "the tag is 1.0"),
        (GOOD._replace(changelog=CHANGELOG.replace("1.0", "0.9")), "", "no section [1.0]"),
        (GOOD._replace(changelog=CHANGELOG.replace(" - 2026-01-31", "")), "", "[1.0] has no date"),
        (GOOD._replace(changelog=CHANGELOG.replace("ed]\n", "ed]\n\n- More.\n")), "", "what is under [Unreleased]"),
        (GOOD._replace(uncommitted=("a.py",)), "", "not committed: a.py"),
    ],
)
def test_a_problem_is_named(state: State, tag: str, problem: str):
    found = find_problems(state, tag)
    assert len(found) == bool(problem)
    assert problem in "".join(found)


NAMED = ("be_toolchain/__init__.py", "recipe/recipe.yaml", "CHANGELOG.md")


def test_a_new_version_is_written_where_it_is_named(tmp_path: Path):
    for name in NAMED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    assert prepare(tmp_path, "7.1.0", "2027-01-31") == [tmp_path / name for name in NAMED]
    code, recipe, changelog = ((tmp_path / name).read_text() for name in NAMED)
    assert '\n__version__ = "7.1.0"\n' in code
    versions = {"be_toolchain": "7.1.0", "recipe": recipe_version(recipe)}
    assert find_problems(State(versions, changelog), "v7.1.0") == []
    (tmp_path / NAMED[0]).write_text((ROOT / NAMED[0]).read_text())
    (tmp_path / NAMED[1]).write_text((ROOT / NAMED[1]).read_text())
    for version, message in (("7.2", "nothing new in CHANGELOG.md"), ("0.0.1", "not a version"), ("x", "'x' is not")):
        with pytest.raises(ReleaseError, match=message):
            prepare(tmp_path, version, "2027-01-31")
    assert (tmp_path / NAMED[0]).read_text() == (ROOT / NAMED[0]).read_text(), "all or nothing"


def test_this_checkout_names_one_version():
    versions = read_state(ROOT).versions
    assert len(versions) == 3
    assert len(set(versions.values())) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("check --tag v0.0.0", "error: the tag is v0.0.0"),
        ("feedstock out --sdist /none --url u --homepage h --maintainer m", "/none can't be read: No such file"),
    ],
)
def test_wrong_arguments_are_named(words: str, message: str):
    done = run_release(*words.split())
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--machine=aarch64",), "aarch64-linux-gnu-g++ is not installed, which compiles the handler: apt-get install"),
        (("--cc=/bin/false", "--cxx=/bin/false"), "handler.o failed:"),
    ],
)
def test_compiled_files_that_can_t_be_made(
    options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", "/nowhere")
    done = run_release("native", str(tmp_path), *options)
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
    for message in ("not 'yesterday'", "set SOURCE_DATE_EPOCH"):
        with pytest.raises(ReleaseError, match=message):
            source_date_epoch(tmp_path)
        monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)


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
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in WORKFLOWS}
LOADED: dict[str, dict[Any, Any]] = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
ALLOWED = ("make ", "gh release create ", "sudo apt-get update && sudo apt-get install ")
PROMISED = re.search(r"BE_REQUIRE_TIERS=(\S+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("name", ["ci.yml", "docs.yml", "release.yml"])
def test_a_workflow_calls_make_with_pinned_actions_and_permissions_job_by_job(name: str):
    lines = [line for line in TEXTS[name].splitlines() if "uses:" in line]
    assert lines
    assert [line for line in lines if not re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)] == []
    assert LOADED[name]["permissions"] == {}
    for job in LOADED[name]["jobs"].values():
        assert job["permissions"]
        builds = any("make " in step.get("run", "") for step in job["steps"])
        assert not builds or job["permissions"] == {"contents": "read"}, "what runs our code can write nothing"
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    commands = [step["run"] for step in steps(LOADED[name]) if "run" in step]
    called = {match[1] for command in commands if (match := re.fullmatch(r"make ([a-z-]+)", command.strip()))}
    assert called
    assert called <= targets
    assert [command for command in commands if not command.startswith(ALLOWED)] == []
    assert not [command for command in commands if "${{" in command], "values reach a shell as variables"


def test_the_site_is_deployed_from_the_main_branch_once_it_is_built_and_its_links_lead_somewhere():
    workflow = LOADED["docs.yml"]
    assert workflow[True] == {"push": {"branches": ["main"]}, "pull_request": None}, "YAML reads `on` as true"
    jobs = workflow["jobs"]
    assert {"run": "make docs-links"} in jobs["links"]["steps"]
    assert "make docs" in [step.get("run") for step in jobs["build"]["steps"]]
    assert jobs["deploy"]["if"] == "github.event_name == 'push'"
    assert set(jobs["deploy"]["needs"]) == {"build", "links"}


def test_ci_promises_the_same_tiers_everywhere():
    assert PROMISED is not None
    promised = [step["env"]["BE_REQUIRE_TIERS"] for step in steps(LOADED["ci.yml"]) if "env" in step]
    assert promised == [PROMISED[1], "faults", PROMISED[1].removesuffix(",packaging")]
    assert f"BE_REQUIRE_TIERS := {PROMISED[1]}\n" in MAKEFILE


@pytest.mark.parametrize(
    "command",
    [
        ("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, WORKFLOWS)),
        ("zizmor", "--offline", "--no-progress", "--pedantic", str(ROOT / ".github")),
    ],
    ids=["schema", "auditor"],
)
def test_checkers_of_workflows_find_nothing(command: tuple[str, *tuple[str, ...]]):
    find_nothing(*command)
