"""The directives `benchmark-table`, `-goals` and `-machine`: figures and facts from a file that the benchmark wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from benchmarks.goals import count_goals, goal_cells, missed
from benchmarks.report import compared_cells, how_to_read, origin

HEAD = ("Measured", "be_runtime", "Compared with", "Ratio [95 % interval]")
GOALS_HEAD = ("Measured", "Ratio or time", "Goal")


class _Results(SphinxDirective):
    """A directive whose argument is a results file, relative to the repository."""

    required_arguments: ClassVar[int] = 1

    def read(self) -> dict[str, Any]:
        """Parse the file; the page is built again when it changes."""
        source = Path(self.env.srcdir).parent / self.arguments[0]
        for each in (str(source), __file__):
            self.env.note_dependency(each)
        found: dict[str, Any] = json.loads(source.read_text(encoding="utf-8"))
        return found


class BenchmarkTable(_Results):
    """``{benchmark-table} FILE`` with the option ``rows``: the figures of these rows, as medians and ratios.

    The option ``label`` selects the figures whose labels begin with it, or with one of several parts between ``|``.
    """

    option_spec: ClassVar[dict[str, Any]] = {"rows": directives.unchanged_required, "label": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """Make the table, and a sentence on where and when its figures were measured."""
        results = self.read()
        rows, labels = self.options["rows"].split(), tuple(self.options.get("label", "").split("|"))
        figures = [each for each in results["figures"] if each["row"] in rows and each["label"].startswith(labels)]
        if not figures:
            raise ExtensionError(f"{self.arguments[0]} has no figure of {rows} that begins with one of {labels}")
        lines: list[tuple[str, ...]] = [HEAD, *map(compared_cells, figures)]
        if not any(each["theirs"] for each in figures):
            lines = [line[:2] for line in lines]
        text = f"{origin(figures, results['run'], results['machine'])} {how_to_read(figures)}".rstrip()
        return [_table(lines), nodes.paragraph("", text, classes=["peers-note"])]


class BenchmarkGoals(_Results):
    """``{benchmark-goals} FILE``: how many goals were met, and the figures that missed theirs."""

    def run(self) -> list[nodes.Node]:
        """Make a sentence and a table."""
        results = self.read()
        lines = [GOALS_HEAD, *map(goal_cells, missed(results))]
        text = f"{count_goals(results)} goals were met. These were missed:"
        return [nodes.paragraph("", text), _table(lines)]


class BenchmarkMachine(_Results):
    """``{benchmark-machine} FILE``: the machine and the versions on which the file was measured."""

    def run(self) -> list[nodes.Node]:
        """Make a list of facts."""
        machine = self.read()["machine"]
        facts = {
            "Processor": f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB of memory",
            "GPU": machine["gpu"] and f"{machine['gpu']}, driver {machine['driver']}",
            "Compilers": f"CUDA {machine['cuda']}, {machine['cxx']}",
            "Python": f"{machine['python']}, JAX {machine['jax']}, NumPy {machine['numpy']}",
        }
        return [_table([("Part", "Used"), *((part, used) for part, used in facts.items() if used)])]


def _table(lines: Sequence[Sequence[str]]) -> nodes.table:
    """Make a table; the first line is its head."""
    group = nodes.tgroup(cols=len(lines[0]))
    group += [nodes.colspec(colwidth=1) for _ in lines[0]]
    head, *body = [nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in line)) for line in lines]
    group += [nodes.thead("", head), nodes.tbody("", *body)]
    return nodes.table("", group)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("benchmark-table", BenchmarkTable)
    app.add_directive("benchmark-goals", BenchmarkGoals)
    app.add_directive("benchmark-machine", BenchmarkMachine)
    return {"parallel_read_safe": True}
