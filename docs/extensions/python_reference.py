"""Leaves internals out of the Python reference, and describes aliases in its tables.

The internals are fields of named tuples and parameters that only the code passes.

The fields of a class are in the text of the class.
"""

from __future__ import annotations

import inspect
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext.autosummary import Autosummary, import_by_name

CONSTRUCTED = {
    "be_runtime.BenchmarkConfig",
    "be_runtime.XLACustomKernel",
    "be_toolchain.Arch",
    "be_toolchain.ToolchainRequest",
}
"""Classes that users call. Functions return the objects of other classes, so their parameters are internal."""


def leave_out_fields(_app: Sphinx, _what: str, _name: str, value: object, _skip: bool, _options: object) -> bool | None:
    """Leave out a field of a named tuple, which has no text of its own."""
    return True if type(value).__name__ == "_tuplegetter" else None


def leave_out_parameters(
    _app: Sphinx, what: str, name: str, _value: object, _options: object, signature: str | None, _returns: str
) -> tuple[str, str] | None:
    """Leave out the parameters of a class that users don't call, and of errors."""
    return ("", "") if signature and what in {"class", "exception"} and name not in CONSTRUCTED else None


class Summary(Autosummary):
    """The directive `autosummary`. The row of an alias, which has no docstring, names the class.

    Sphinx reads the page again when a docstring of a row changes.
    """

    def get_items(self, names: list[str]) -> list[tuple[str, str | None, str, str]]:
        """Return the rows of a table: the name, the signature, the description, and the full name."""
        rows = super().get_items(names)
        for row in rows:
            self.env.note_dependency(inspect.getfile(inspect.unwrap(import_by_name(row[3])[1])))
        return [
            row if row[2] else (*row[:2], f"The same class as ``{import_by_name(row[3])[1].__name__}``.", row[3])
            for row in rows
        ]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.setup_extension("sphinx.ext.autosummary")
    app.add_directive("autosummary", Summary, override=True)
    app.connect("autodoc-skip-member", leave_out_fields)
    app.connect("autodoc-process-signature", leave_out_parameters)
    return {"parallel_read_safe": True}
