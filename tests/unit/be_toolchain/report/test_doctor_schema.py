"""docs/doctor-schema.md and what the doctor prints as JSON say the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from be_toolchain.cli import main as cli
from be_toolchain.machine.system import FolderFacts
from tests.support.environments import ROWS, machine_of
from tests.support.machines import MemorySystem, answering

DOC = Path(__file__).parents[4] / "docs" / "doctor-schema.md"
FREE_KEYS = ("probes",)
TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", dict: "object"}


def documented() -> dict[str, set[str]]:
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z ]+) \|", DOC.read_text(encoding="utf-8"), re.MULTILINE)
    return {path: set(kinds.split(" or ")) for path, kinds in rows}


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every leaf's path and type; an object or null where both occur is named as well."""
    if isinstance(value, dict):
        yield path, "object"
        for key, item in value.items():
            yield from flatten(item, f"{path}.{'*' if path in FREE_KEYS else key}".lstrip("."))
    elif isinstance(value, list):
        for item in value:
            yield from flatten(item, f"{path}[]")
    else:
        yield path, TYPES[type(value)]


def printed(machine: MemorySystem, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[str, str]]:
    cli.main(["doctor", "--json", *arguments], system=machine)
    return list(flatten(json.loads(capsys.readouterr().out)))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_field_is_documented_with_its_type(row: Any, capsys: pytest.CaptureFixture[str]):
    known = documented()
    implied = {path for each in known for path in _parents(each)}
    for path, kind in printed(machine_of(row), capsys):
        assert kind in known.get(path, set()) or (kind == "object" and path in implied), path


def test_every_documented_field_is_printed_by_some_machine(capsys: pytest.CaptureFixture[str]):
    seen = {path for row in ROWS for path, _ in printed(machine_of(row), capsys)}
    machine = answering("sum 4950")
    machine.environ = {**machine.environ, "CPATH": "/opt/include", "BE_CACHE_DIR": "/open/cache"}
    for folder in ("/open/cache", "/tmp"):  # noqa: S108 - of no real machine
        machine.folders[folder] = FolderFacts(Path(folder), Path("/"), doubtful=(Path("/open"),))
    seen |= {path for path, _ in printed(machine, capsys, "--smoke")}
    assert set(documented()) <= seen


def _parents(path: str) -> Iterator[str]:
    """The objects that a path goes through, the outermost included."""
    yield ""
    for end in re.finditer(r"\.", path):
        yield path[: end.start()]
