"""``cache show`` and ``cache why``: what an entry was made of, and why."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from be_runtime.cache import Entry

Put = Callable[..., Entry]
Told = Callable[..., dict[str, Any]]
Said = Callable[..., str]


def test_why_names_the_field_of_the_key(put: Put, said: Said, told: Told):
    put("add", "-O2")
    put("add", "-O1", kind="object")
    put("other", "-O9")
    put("add", "-O3")
    assert told("why", "add")["differs"] == ["flags: removed '-O2'; added '-O3'"]
    text = said("why", "add")
    assert "add (module) was built " in text
    assert "since it was not in the cache\n" in text
    assert "\nit is valid now\n" in text


def test_why_of_an_older_entry_compares_with_those_before_it(put: Put, told: Told):
    digests = [put("add", flag).manifest.digest for flag in ("-O1", "-O2", "-O3")]
    assert told("why", digests[1][:10])["differs"] == ["flags: removed '-O1'; added '-O2'"]
    assert told("why", digests[0][:10])["differs"] == []


def test_why_names_the_file_that_changed_before_the_last_build_and_since(
    put: Put, said: Said, told: Told, header: Path
):
    put("add")
    assert "no entry before it is left to compare with" in said("why", "add")
    header.write_text("two, longer")
    time.sleep(0.03)  # longer than a tick of the file system's clock
    assert f"the next load builds again: {header} changed" in said("why", "add")
    assert told("why", "add")["is_valid"] is False
    put("add")
    now = told("why", "add")
    assert (now["reason"], now["differs"], now["is_valid"]) == (f"{header} changed", [], True)


def test_show_has_the_key_the_files_and_whether_it_is_valid(put: Put, said: Said, told: Told, header: Path):
    entry = put("add", "-O2", "a b", sources=("int f();\n" * 40,))
    text = said("show", "add")
    assert f"folder     {entry.path}" in text
    assert "flags: -O2 'a b'" in text
    assert "sources: <40 lines, 360 characters>" in text
    assert "made from  1 source and header, 0 other files" in text
    assert "now        valid" in text
    assert str(header) not in text
    assert str(header) in said("show", "add", "--files")
    data = told("show", "add")
    assert data["dependencies"] == [str(header)]
    assert {"label": "flags", "items": ["-O2", "a b"]} in data["key"]
    os.utime(header, ns=(5, 5))
    assert told("show", "add")["is_valid"] is True, "the content is the same"
    header.unlink()
    assert f"now        not valid: {header} is gone" in said("show", "add")


def test_show_takes_the_beginning_of_a_digest(put: Put, said: Said, told: Told):
    entries = [put("add", flag) for flag in ("-O1", "-O2")]
    for entry in entries:
        assert told("show", entry.manifest.digest[:8])["folder"] == str(entry.path)
    assert told("show", "add")["folder"] == str(entries[1].path)
    assert f"more of this name: module {entries[0].manifest.digest[:12]}" in said("show", "add")
    assert "has no entry named " in said("show", "", code=1)


def test_a_kernel_is_shown_before_parts_of_builds(put: Put, told: Told):
    put("add")
    put("add", kind="object")
    assert told("show", "add")["kind"] == told("why", "add")["kind"] == "module"


def test_an_entry_without_its_key_can_be_shown(put: Put, said: Said):
    (put("add").path / "key.json").unlink()
    assert "its key can't be read" in said("show", "add")
    assert "it is valid now" in said("why", "add")


def test_why_and_show_tell_of_the_entry_that_a_load_takes(put: Put, said: Said, told: Told, header: Path):
    first = put("add")
    for text in ("two, longer", "one"):
        header.write_text(text)
        time.sleep(0.03)  # longer than a tick of the file system's clock
        if text != "one":
            assert put("add").path != first.path
    assert put("add").path == first.path
    assert said("why", "add").startswith("2 entries of this key; the valid one:\nadd (module) was built ")
    found = told("why", "add")
    assert (found["is_valid"], found["entries_of_key"], found["reason"]) == (True, 2, "it was not in the cache")
    assert told("show", "add")["folder"] == str(first.path)
    header.write_text("three")
    assert "2 entries of this key; none is valid, the newest:" in said("show", "add")


def test_the_beginning_of_a_digest_may_be_too_short(put: Put, said: Said):
    digest = put("add").manifest.digest
    for command in ("why", "show"):
        assert "write at least 4 digits" in said(command, digest[:3], code=1)
    assert "digits" not in said("show", "xyz", code=1)
