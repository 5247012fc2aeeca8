"""Tables of the documentation that restate what the code knows are the same as the code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.errors import BeRuntimeError, error_codes
from be_runtime.settings import render_settings_docs
from be_toolchain.errors import ToolchainError, error_types
from be_toolchain.settings.table import render_search_docs
from tests.support.planted.table import FAULTS, RESULTS, render_table
from tests.support.planted.try_all import kernels

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("render", [render_settings_docs, render_search_docs])
def test_the_page_of_settings_has_the_tables_of_settings(render: Callable[[], str]):
    assert render() in (DOCS / "settings.md").read_text(encoding="utf-8")


def test_the_page_of_settings_names_every_variable_of_ours():
    page = (DOCS / "settings.md").read_text()
    sources = "".join(path.read_text() for path in (DOCS.parent / "be_toolchain").rglob("*.py"))
    names = set(re.findall(r'"((?:BE|BRAINEVENT)_[A-Z_]+)"', sources))
    assert names
    assert not [name for name in names if f"`{name}`" not in page]


KINDS: tuple[type[BeRuntimeError | ToolchainError], ...] = (*(row.type for row in error_codes()), *error_types())


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


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_the_text_of_an_error_names_the_section_with_its_cause_and_remedy(
    kind: type[BeRuntimeError | ToolchainError],
):
    path, _, anchor = str(kind("it failed")).splitlines()[-1].removeprefix("see ").partition("#")
    sections = re.split(r"^## ", (DOCS.parent / path).read_text(), flags=re.MULTILINE)
    section = next(each for each in sections if each.startswith(f"{anchor.upper()}\n"))
    assert f"`{kind.__name__}`" in section
    assert "**Cause.** " in section
    assert "**Remedy.** " in section
