"""What compilers and linkers print, with the first real error, the others, hints and warnings that are found in it."""

from __future__ import annotations

import re
from pathlib import Path

from be_runtime.compile.messages import diagnose, find_warnings, warnings_text
from tests.unit.be_runtime.compile.codegen.golden_files import check_golden

OUTPUTS = Path(__file__).parent / "golden" / "outputs.txt"
"""After ``===`` what a case shows, its language, and the lines of trampolines; after ``---`` what is found in it."""

SOURCES = {
    "m": "// one\nvoid f(BE::Tensor out) { nonsense(); }\n\tint x = ä + oops;\n",
    **dict.fromkeys(("/own/a.cc", "/own/b.cc", "/own/k.cc"), ""),
}


def found_in(title: str, output: str) -> str:
    calls = [(name, int(line)) for name, line in re.findall(r"\[call (\w+):(\d+)\]", title)]
    found = diagnose(output, SOURCES, calls, is_cuda="[cuda]" in title)
    parts = {"then": found.further, "hint": found.hints, "warning": find_warnings([output, output])}
    lines = [f"{kind}: {each}" for kind, several in parts.items() for each in several]
    return "".join(f"{line}\n" for line in (*found.first_error.splitlines(), *lines))


def test_what_is_found_in_the_output_of_compilers():
    cases = re.findall(r"=== (.*)\n((?:(?!---$).*\n)*)---\n", OUTPUTS.read_text(), re.MULTILINE)
    assert len(cases) > 60
    check_golden(OUTPUTS, "".join(f"=== {title}\n{text}---\n{found_in(title, text)}" for title, text in cases))


def test_many_warnings_are_counted():
    lines = warnings_text("m", tuple(f"m:{line}:1: warning: x" for line in range(30))).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "  and 20 more, which module.report() lists"
