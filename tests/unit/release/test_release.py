"""What stands against a release is found and named."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

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
