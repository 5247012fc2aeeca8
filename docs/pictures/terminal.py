"""The terminal that README shows: ``python -m docs.pictures.terminal`` runs its commands, and writes the picture."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
COLUMNS = 100
COMMANDS = (
    ("python -m be_toolchain doctor", 20),
    ("python decay.py", 20),
    ("sed -i 's|/ 2|/ tau|' decay.py && python decay.py", 20),
    ("python -m be_runtime explain BE301", 7),
)
"""Commands, and the lines of each that are shown: README's, then a mistake, and a question about it."""
TRANSIENT = re.compile(r"[^\n]*\r\x1b\[2K(\x1b\[1A\x1b\[2K)*")
"""A line that the terminal erases: progress."""


def record(folder: Path) -> Text:
    """Run the commands in a terminal, in a folder that is their home, too; return what the terminal shows."""
    example = first_example((ROOT / "README.md").read_text(encoding="utf-8"))
    (folder / "decay.py").write_text(example, encoding="utf-8")
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    environ = {"HOME": str(folder), "PATH": path, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    another = example.replace('"decay"', '"another"')  # compiles the package's own C++, which a wheel has compiled
    subprocess.run([sys.executable, "-c", another], cwd=folder, env=environ, capture_output=True, check=True)
    shown = Text()
    for command, most in COMMANDS:
        in_terminal = ["script", "-qec", f"stty cols {COLUMNS} rows 60; {command}", os.devnull]
        done = subprocess.run(in_terminal, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        output = TRANSIENT.sub("", done.stdout.replace("\r\n", "\n"))
        output = output.replace(f"{folder}/", "").replace(f"{ROOT}/", "")
        output = re.sub(rf"{re.escape(sys.prefix)}/lib/python[\d.]+/site-packages", "~/.venv/...", output)
        lines = Text.from_ansi(output.strip()).split("\n")
        shown += Text.assemble(("$ ", "green"), (f"{command}\n", "bold"), Text("\n").join(lines[:most]), "\n")
        shown += Text("...\n\n" if len(lines) > most else "\n")
    shown.right_crop(2)
    return shown


def first_example(readme: str) -> str:
    """Return the first Python code of a page."""
    found = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert found is not None, "README has an example"
    return found[1]


def draw(shown: Text) -> str:
    """Return the terminal as an SVG that loads no font."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(shown)
    form = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="brainevent-toolchain", theme=DIMMED_MONOKAI, code_format=form, unique_id="be")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        PICTURE.write_text(draw(record(Path(place).resolve())), encoding="utf-8")
