"""Folders that are not trusted with libraries: the rule, and that the doctor and a load follow it."""

from __future__ import annotations

import os
import stat
from contextlib import nullcontext
from pathlib import Path

import pytest

from be_runtime.cache.folder import guard
from be_runtime.cache.folder.location import usable_cache_dir
from be_runtime.errors import CacheError
from be_runtime.settings import Settings
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.trust.folder_trust import distrust
from be_toolchain.report.doctor import examine_machine
from tests.support.machines import healthy


@pytest.mark.parametrize(
    ("mode", "owner", "group", "problem"),
    [
        (0o700, 1000, 7, ""),
        (0o755, 1000, 7, ""),
        (0o755, 0, 0, ""),
        (0o1777, 0, 0, ""),
        (0o1777, 1000, 7, ""),
        (0o775, 1000, 1000, ""),
        (0o775, 1000, 7, "can be written by other users"),
        (0o777, 1000, 1000, "can be written by other users"),
        (0o1770, 1000, 7, "can be written by other users"),
        (0o775, 0, 0, "can be written by other users"),
        (0o700, 1001, 7, "belongs to"),
        (0o1777, 1001, 7, "belongs to"),
    ],
)
def test_who_may_own_and_write_a_folder(mode: int, owner: int, group: int, problem: str):
    found = distrust(os.stat_result((stat.S_IFDIR | mode, 0, 0, 1, owner, group, 0, 0, 0, 0)), 1000)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_a_link_made_by_another_user_is_refused():
    folder = os.stat_result((0o040700, 0, 0, 1, 1000, 1000, 0, 0, 0, 0))
    link = os.stat_result((0o120777, 0, 0, 1, 1001, 1001, 0, 0, 0, 0))
    assert distrust(folder, 1000, link=link) == "is a symbolic link made by another user (uid 1001)"
    assert distrust(folder, 1001, link=link) == "belongs to another user (uid 1000)"
    assert distrust(folder, 1000, link=folder) == ""


def _make(folder: Path, kind: str) -> Path:
    """A path of a kind."""
    place = folder / "cache"
    match kind:
        case "absent":
            pass
        case "below a file":
            place.write_text("")
            return place / "below"
        case "a file":
            place.write_text("")
        case "a device":
            return Path("/dev/null/x")
        case "a link":
            (folder / "real").mkdir(mode=0o700)
            place.symlink_to("real")
        case "a link to nowhere":
            place.symlink_to("gone")
        case "below a link to itself":
            place.symlink_to("cache")
            return place / "below"
        case _:
            place.mkdir()
            place.chmod(int(kind[:4], 8))
            if "own part" in kind:
                (place / f"user-{os.geteuid()}").mkdir()
                (place / f"user-{os.geteuid()}").chmod(0o777 if "open" in kind else 0o700)
    return place


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("absent", ""),
        ("a link", ""),
        ("0700", ""),
        ("1777", ""),
        ("1777 own part", ""),
        ("a file", "is not a folder"),
        ("a device", "can't be made: /dev/null is not a folder"),
        ("below a file", "is not a folder"),
        ("a link to nowhere", "is a symbolic link that leads nowhere"),
        ("below a link to itself", "is a symbolic link that leads nowhere"),
        ("0777", "can be written by other users (mode 777)"),
        ("1777 open own part", "can be written by other users (mode 777)"),
    ],
)
def test_the_doctor_and_a_load_agree_about_a_folder_that_was_named(tmp_path: Path, kind: str, says: str):
    folder = _make(tmp_path, kind)
    facts = LocalSystem().folder_facts(folder)
    assert says in facts.obstacle
    assert bool(facts.obstacle) == bool(says)
    with pytest.raises(CacheError) if says else nullcontext():
        guard.prepare_base(str(usable_cache_dir(Settings(cache_dir=folder), LocalSystem())))

    machine = healthy()
    machine.environ = {**machine.environ, "BE_CACHE_DIR": str(folder)}
    machine.folders[str(folder)] = facts._replace(executable=True, free_bytes=None)
    report = examine_machine(machine)
    assert report.exit_code == (2 if says else 0)
    refused = [finding for finding in report.findings if finding.status == "fail"]
    assert [says in finding.message and "BE_CACHE_DIR" in finding.message for finding in refused] == [True] * bool(says)
    assert report.to_json()["problems"] == [] or report.problems[0].code == "TC102"


def test_the_usual_folder_is_replaced_by_the_runtime_so_that_it_is_a_warning(tmp_path: Path):
    facts = LocalSystem().folder_facts(_make(tmp_path, "0777"))
    machine = healthy()
    machine.environ = {**machine.environ, "HOME": "/home/me"}
    machine.folders["/home/me/.cache/brainevent-toolchain"] = facts
    report = examine_machine(machine)
    assert report.exit_code == 0
    (warned,) = (finding for finding in report.findings if finding.status == "warn")
    assert (warned.subject, warned.next_step) == ("cache folder", "set BE_CACHE_DIR to another folder")


def test_without_a_home_in_the_environment_the_user_database_tells_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HOME", raising=False)
    facts = LocalSystem({}).folder_facts(Path("~/.cache/x"))
    assert facts.path.is_absolute()
    assert "~" not in str(facts.path)


def test_a_home_that_is_not_absolute_is_unknown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "relative")
    facts = LocalSystem({}).folder_facts(Path("~/.cache/x"))
    assert facts.obstacle == "is not absolute: the home folder is unknown"
