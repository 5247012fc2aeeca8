"""What is said of sources, tokens and functions that are refused: golden files of each and of the whole text."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from be_runtime.errors import BeRuntimeError
from be_runtime.source_text import SourceText
from be_runtime.spec.discovery import discover

FUNCTIONS = "functions: "


def refusal(case: str) -> str:
    """The error of a source, or of an annotation alone; a first line may have the functions that Python asks for."""
    given, _, text = case.removeprefix(FUNCTIONS).partition("\n") if case.startswith(FUNCTIONS) else ("None", "", case)
    source = SourceText(name="k.cu", text=text.replace("\\r\n", "\r\n"))
    with pytest.raises(BeRuntimeError) as caught:
        discover([source], ast.literal_eval(given))
    return f"{type(caught.value).__name__}: {caught.value}".rpartition("\nsee ")[0]


@pytest.mark.parametrize("golden", sorted(Path(__file__).parent.glob("golden/*.txt")), ids=lambda path: path.stem)
def test_what_is_refused_is_told_with_its_place_and_its_remedy(golden: Path) -> None:
    cases = [case.partition("\n--\n")[0] for case in golden.read_text().split("\n====\n")]
    told = "\n====\n".join(f"{case}\n--\n{refusal(case)}" for case in cases) + "\n"
    if "BE_UPDATE_GOLDEN" in os.environ:
        golden.write_text(told)
    assert told == golden.read_text()
