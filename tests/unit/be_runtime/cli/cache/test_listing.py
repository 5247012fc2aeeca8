"""``cache list``, ``path`` and ``stats``: what is there, also where some of it is damaged or there is nothing."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from be_runtime.cache import Entry
from be_runtime.cli import main as cli
from be_runtime.cli.cache.command import COMMANDS
from be_runtime.cli.parser import build_parser

Put = Callable[..., Entry]
Told = Callable[..., dict[str, Any]]
Said = Callable[..., str]


def test_a_list_has_modules_and_kernels_newest_first(put: Put, said: Said):
    put("add")
    put("scale", kind="kernel", content=b"x" * 2048)
    put("add", "-O3", kind="object")
    lines = said("list").splitlines()
    assert [line.split()[1:3] for line in lines[1:-1]] == [["scale", "kernel"], ["add", "module"]]
    assert "sm_80 sm_90  2.0 KiB" in lines[1]
    assert os.uname().nodename in lines[1]
    assert lines[-1].startswith("2 entries, 2.0 KiB in ")


def test_a_list_of_all_has_parts_of_builds_and_of_the_toolchain(put: Put, told: Told):
    for kind in ("module", "object", "handler"):
        put(kind, kind=kind)
    assert [row["kind"] for row in told("list")["entries"]] == ["module"]
    assert [row["kind"] for row in told("list", "--all")["entries"]] == ["handler", "object", "module"]


def test_json_has_the_making(put: Put, told: Told):
    entry = put("add")
    (row,) = told("list", "add")["entries"]
    made = entry.manifest.made
    assert (row["folder"], row["digest"], row["archs"]) == (str(entry.path), entry.manifest.digest, ["sm_80", "sm_90"])
    assert (row["host"], row["seconds"], row["reason"]) == (made.host, made.seconds, "it was not in the cache")
    assert row["last_used"] == time.strftime("%Y-%m-%d", time.gmtime(os.stat(entry.path / "manifest.json").st_mtime))
    assert row["size_bytes"] == 4


def test_an_empty_cache_has_nothing_and_stays_unmade(cache: Path, said: Said, told: Told):
    assert said("list") == f"0 entries, 0 B in {cache}\n"
    assert said("path") == f"{cache}\n"
    assert told("stats")["parts"]["toolchain"]["entries"] == 0
    assert said("verify").startswith("0 entries")
    assert said("prune") == said("clear") == "removed 0 entries, 0 B\n"
    assert not cache.exists()


def test_a_name_that_is_not_there_says_which_is(put: Put, said: Said, told: Told):
    put("negation")
    for command in ("list", "show", "why", "clear", "verify"):
        text = said(command, "negatoin", code=1)
        assert "has no entry named negatoin" in text
        assert "did you mean negation?" in text
    assert told("why", "negatoin", code=1)["problem"]["code"] == "BE101"


def test_what_is_damaged_is_listed_and_the_rest_too(put: Put, said: Said, told: Told):
    put("add")
    (put("scale").path / "manifest.json").write_text("{")
    assert [row["is_damaged"] for row in told("list")["entries"]].count(True) == 1
    assert "(damaged)" in said("list")
    assert told("stats")["parts"]["modules and kernels"]["damaged"] == 1
    assert "damaged: 1" in said("stats")


def test_a_name_with_an_end_of_line_stays_in_its_row(put: Put, said: Said):
    put("a\nb\x1b[2J")
    assert "a\\x0ab\\x1b[2J" in said("list")


def test_another_users_cache_is_refused(put: Put, cache: Path, said: Said):
    put("add")
    cache.chmod(0o777)
    text = said("list", code=1)
    assert text.startswith("BE401: ")
    assert "can be written by" in text


def test_stats_count_kinds_bytes_and_last_uses(put: Put, told: Told, said: Said, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_CACHE_MAX_SIZE_MIB", "1")
    now_s = time.time()
    for name, days in (("a", 0), ("b", 3), ("c", 3), ("d", 20), ("e", 200)):
        used_s = now_s - days * 86400
        os.utime(put(name, content=b"x" * 1024).path / "manifest.json", (used_s, used_s))
    put("part", kind="object")
    part = told("stats")["parts"]["modules and kernels"]
    assert part["kinds"] == {"module": {"entries": 5, "size_bytes": 5120}, "object": {"entries": 1, "size_bytes": 4}}
    assert part["last_used"] == {"today": 2, "this week": 2, "this month": 1, "older": 1}
    assert part["of_limit"] == pytest.approx(5124 / 2**20)
    text = said("stats")
    assert "6 entries, 5.0 KiB, 0.5% of the limit" in text
    assert "last used: 2 today, 2 this week, 1 this month, 1 older" in text


def test_the_commands_command_is_required(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as left:
        cli.main(["cache"])
    assert left.value.code == 64
    assert "required: COMMAND" in capsys.readouterr().err


def test_the_page_shows_every_command():
    page = (Path(__file__).parents[5] / "docs" / "caching.md").read_text(encoding="utf-8")
    lines = re.findall(r"^python -m be_runtime (cache .*)", page, re.MULTILINE)
    shown = [build_parser().parse_args(shlex.split(line, comments=True)).subcommand for line in lines]
    assert sorted(shown) == sorted(COMMANDS)
