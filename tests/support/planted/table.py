"""The table of planted faults in docs/debugging.md.

``[FILE ...]`` adds results of `try_all` to those that are kept, and writes the page anew.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import compact

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks" / "results" / "planted.json"
PAGE = ROOT / "docs" / "debugging.md"
FAULTS = {
    "write_outside": "write outside of an array",
    "far_write": "write far outside of an array",
    "read_outside": "read outside of an array",
    "race": "race in shared memory",
    "thread_race": "race of threads",
    "uninitialised_read": "read of uninitialized memory",
    "uninitialised_local": "read of an uninitialized local array",
    "launch_unchecked": "failed launch that nothing checks",
    "wrong_dtype": "wrong element type",
    "wrong_shape": "wrong shape",
    "misaligned": "misaligned access",
    "missing_stream": "launch on another stream",
    "input_write": "write to an input",
    "host_memory": "host memory on the device",
    "stack_overflow": "stack overflow in host code",
    "index_outside": "index out of bounds, through `at`",
    "not_a_number": "NaN",
    "never_written": "elements that are never written",
}
SANITIZERS = ("memcheck", "racecheck", "initcheck")
HEAD = (
    "| fault | CPU: found by | CPU: program alone | H200: found by | H200: program alone "
    "| H200: compute-sanitizer alone |\n"
    "|---|---|---|---|---|---|\n"
)
LABELS = {
    "address": "AddressSanitizer",
    "undefined": "UndefinedBehaviorSanitizer",
    "thread": "ThreadSanitizer",
    "guard": "guard",
}


def render_table(results: dict[str, Any]) -> str:
    """Write the table, from the results of each language by the fault's name."""
    cpp, cuda = (results.get(language, {}) for language in ("cpp", "cuda"))
    lines = []
    for name, text in FAULTS.items():
        said = {tool: cuda[name][tool] for tool in SANITIZERS if cuda[name][tool] != "nothing"} if name in cuda else {}
        alone = ", ".join(f"{tool}: {_shortened(what)}" for tool, what in said.items())
        cells = (text, *_cells(cpp.get(name)), *_cells(cuda.get(name)), alone or ("nothing" if name in cuda else "-"))
        lines.append(f"| {' | '.join(cells)} |\n")
    return HEAD + "".join(lines)


def _shortened(text: str) -> str:
    """Leave out the parameters of functions, and addresses within them."""
    return re.sub(r"\([^()]*\)\+0x\w+|\+0x\w+", "", text).removeprefix("Error: ").replace("; at ", " in ").rstrip(".")


def _cells(row: dict[str, Any] | None) -> tuple[str, str]:
    """Write who found a fault, and what the program by itself says."""
    if row is None:
        return "-", "-"
    tools: dict[str, str] = {}
    for finding in row["check"]["findings"]:
        tool = LABELS.get(finding["tool"], finding["tool"])
        place = Path(finding["source"]).name
        tools[tool] = tools.get(tool) or place
    found = ", ".join(f"{tool} `{place}`" if place else tool for tool, place in tools.items())
    alone = row["alone"]
    return found or "**not found**", "an error" if "Error" in alone else alone


def count(results: dict[str, Any], language: str) -> str:
    """Write how many faults were found."""
    rows = results.get(language, {}).values()
    return f"{sum(bool(row['check']['findings']) for row in rows)} of {len(rows)}"


def main(files: list[str]) -> None:
    """Add results, and write the page."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for file in files:
        results |= json.loads(Path(file).read_text())
    RESULTS.write_text(compact(results, *results))
    page = PAGE.read_text()
    begin = page.index(HEAD.splitlines()[0])
    end = page.index("\n\n", begin) + 1
    PAGE.write_text(page[:begin] + render_table(results) + page[end:])
    sys.stdout.write(f"CPU: {count(results, 'cpp')}, H200: {count(results, 'cuda')}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
