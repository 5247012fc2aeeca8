"""The directive `doctor`: the report of the machine that builds the site, as a terminal shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective


class Doctor(SphinxDirective):
    """``{doctor}``: what the command in its argument prints here."""

    required_arguments: ClassVar[int] = 0

    def run(self) -> list[nodes.Node]:
        """Run the doctor; its verdict does not matter, that it gives one does."""
        self.env.note_reread()  # the machine is another one the next time
        root = Path(self.env.srcdir).parent
        command = [sys.executable, "-m", "be_toolchain", "doctor"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1, 2):
            raise ExtensionError(f"the doctor failed with {done.returncode}: {done.stderr}")
        text = f"$ python -m be_toolchain doctor\n{done.stdout}"
        return [nodes.literal_block(text, text, language="text")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("doctor", Doctor)
    return {"parallel_read_safe": True}
