"""Leaves internals out of the Python reference: fields of named tuples and parameters that only the code passes.

The fields of a class are in the text of the class.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

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


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("autodoc-skip-member", leave_out_fields)
    app.connect("autodoc-process-signature", leave_out_parameters)
    return {"parallel_read_safe": True}
