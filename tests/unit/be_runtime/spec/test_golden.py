"""What discovery finds in sources, and what it says of those that it refuses: golden files of each and of the whole.

A case is a source, ``--`` and the answer; a first line ``functions: ...`` has what Python asks for.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from be_runtime.errors import BeRuntimeError
from be_runtime.source_text import SourceText
from be_runtime.spec.discovery import discover
from be_runtime.spec.grammar import render_spec
from be_runtime.spec.model import EntryPoint

FUNCTIONS = "functions: "


def answer(case: str) -> str:
    """The entry points of a source, or its error."""
    given, _, text = case.removeprefix(FUNCTIONS).partition("\n") if case.startswith(FUNCTIONS) else ("None", "", case)
    source = SourceText(name="k.cu", text=text.replace("\\r\n", "\r\n"))
    try:
        entries = discover([source], ast.literal_eval(given))
    except BeRuntimeError as error:
        return f"{type(error).__name__}: {error}".rpartition("\nsee ")[0]
    written = discover([source], {entry.name: render_spec(entry.params) for entry in entries})
    assert [entry.call_name for entry in written] == [entry.call_name for entry in entries]
    return "\n".join(map(told, entries))


def told(entry: EntryPoint) -> str:
    """The line of an entry point, the tokens of its call, whether it launches out of order, and its documentation."""
    line = f"line {entry.line}, {entry.name}: {entry.call_name} {' '.join(render_spec(entry.params))}"
    marks = ["launches out of order"] if entry.launches_out_of_order else []
    return "\n".join([line, *marks, *(f"/// {text}" for text in entry.doc.splitlines())])


@pytest.mark.parametrize("golden", sorted(Path(__file__).parent.glob("golden/*.txt")), ids=lambda path: path.stem)
def test_what_is_found_and_what_is_refused(golden: Path) -> None:
    """``BE_UPDATE_GOLDEN=1`` writes the answers anew."""
    cases = [case.partition("\n--\n")[0] for case in golden.read_text().split("\n====\n")]
    whole = "\n====\n".join(f"{case}\n--\n{answer(case)}" for case in cases) + "\n"
    if "BE_UPDATE_GOLDEN" in os.environ:
        golden.write_text(whole)
    assert whole == golden.read_text()
