"""Tables of the documentation that restate what the code knows are the same as the code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from be_runtime.cli.main import main as runtime_main
from be_runtime.errors import BeRuntimeError
from be_runtime.settings import Settings
from be_toolchain.cli.main import main as toolchain_main
from be_toolchain.errors import PreferenceError, ToolchainError
from be_toolchain.settings.table import RUNTIME, SEARCH, Setting, read_setting
from tests.support.error_types import error_types
from tests.support.planted.table import FAULTS, RESULTS, render_table
from tests.support.planted.try_all import kernels

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _rows(head: str) -> list[list[str]]:
    """The cells of the table of settings whose first column has this name."""
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    table = page.partition(f"\n| {head} |")[2].partition("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def _variables(setting: Setting) -> str:
    return ", ".join(f"`{name}`" for name in setting.variables)


def test_the_page_of_settings_has_a_row_for_each_setting():
    rows = [(name, variables) for name, variables, _type, _default, _text in _rows("setting")]
    assert rows == [(f"`{name}`", _variables(row)) for name, row in RUNTIME.items()]
    assert [variables for variables, _type, _text in _rows("variable")] == [_variables(row) for row in SEARCH]


def _default(value: Any) -> str:
    if value in {None, "", ()}:
        return "words"
    return f"`{value}`" if isinstance(value, str) else f"`{value:g}`"


def test_the_page_of_settings_has_each_default():
    defaults = {row[0]: row[3] if "`" in row[3] else "words" for row in _rows("setting")}
    assert defaults == {f"`{name}`": _default(value) for name, value in Settings._field_defaults.items()}


EXPECTED = {
    "count": "a whole number",
    "seconds": "a number of seconds",
    "flag": "1, true",
    "mode": "one of",
    "list": '"8.6"|some of|$',
    "URL": "a URL",
    "command": "a command",
}
"""What a text has to be, by its type on the page; one of the other types may be anything."""


def _expected(setting: Setting) -> str:
    try:
        read_setting(setting, {setting.variable: "'"})
    except PreferenceError as error:
        return error.message.partition(" expected ")[2]
    return ""


def test_the_page_of_settings_has_each_type():
    types = [row[2] for row in _rows("setting")] + [row[1] for row in _rows("variable")]
    for kind, setting in zip(types, (*RUNTIME.values(), *SEARCH), strict=True):
        assert re.match(EXPECTED.get(kind, "$"), _expected(setting)), setting


def test_the_page_of_settings_names_every_variable_of_ours():
    page = (DOCS / "settings.md").read_text()
    sources = "".join(path.read_text() for path in (DOCS.parent / "be_toolchain").rglob("*.py"))
    names = set(re.findall(r'"((?:BE|BRAINEVENT)_[A-Z_]+)"', sources))
    assert names
    assert not [name for name in names if f"`{name}`" not in page]


KINDS: tuple[type[BeRuntimeError | ToolchainError], ...] = (
    *error_types(BeRuntimeError),
    *error_types(ToolchainError),
)


def test_the_page_of_errors_lists_every_code():
    page = (DOCS / "errors.md").read_text()
    summaries = {kind: (kind.__doc__ or "").splitlines()[0] for kind in KINDS}
    rows = [f"| [`{kind.code}`](#{kind.code.lower()}) | `{kind.__name__}` | {summaries[kind]} |" for kind in summaries]
    assert not [row for row in rows if row not in page]


def test_the_page_of_debugging_has_every_planted_fault_as_it_was_measured():
    results = json.loads(RESULTS.read_text())
    assert render_table(results) in (DOCS / "debugging.md").read_text()
    assert {*FAULTS} == {kernel.stem for language in ("cpp", "cuda") for kernel in kernels(language)}
    for language, rows in results.items():
        assert [*rows] == [kernel.stem for kernel in kernels(language)]
        assert [name for name, row in rows.items() if not row["check"]["findings"]] == []


COMMANDS = {"be_runtime": runtime_main, "be_toolchain": toolchain_main}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_the_text_of_an_error_names_the_section_with_its_cause_and_remedy(
    kind: type[BeRuntimeError | ToolchainError], capsys: pytest.CaptureFixture[str]
):
    place, command = str(kind("it failed")).splitlines()[-1].removeprefix("see ").split(", or run: python -m ")
    path, _, anchor = place.partition("#")
    assert f"\n## {anchor.upper()}\n" in (DOCS.parent / path).read_text()
    package, *words = command.split()
    assert COMMANDS[package](words) == 0
    section = capsys.readouterr().out
    assert section.startswith(f"`{kind.__name__}`: ")
    assert "\n**Cause.** " in section
    assert "\n**Remedy.** " in section
    assert "\n## " not in section


@pytest.mark.parametrize("command", [runtime_main, toolchain_main])
def test_explain_without_a_code_lists_each_with_its_title(
    command: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
):
    assert command(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"{kind.code}  {kind.__name__}: {(kind.__doc__ or '').splitlines()[0]}"
        for kind in sorted(KINDS, key=lambda kind: kind.code)
    ]


@pytest.mark.parametrize(("command", "status"), [(runtime_main, 1), (toolchain_main, 64)])
def test_a_code_that_there_is_not_is_named_with_those_that_there_are(
    command: Callable[[list[str]], int], status: int, capsys: pytest.CaptureFixture[str]
):
    assert command(["explain", "BE999"]) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert "no error has the code 'BE999'; there are BE000, BE101" in said.err
