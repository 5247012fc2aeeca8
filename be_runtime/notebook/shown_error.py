"""Errors as a notebook shows them: the place with a caret, hints, and what the compiler said, folded. Pure."""

from __future__ import annotations

import re
import shlex
from html import escape

from be_runtime.errors import BeRuntimeError, BuildError
from be_toolchain.errors import ToolchainError
from be_toolchain.terminal import printable

_CARET = re.compile(r"([\s|]*)([\^~][\^~\s|]*)")
_RED, _GREY = "var(--jp-error-color1, #c62828)", "var(--jp-ui-font-color2, #616161)"
_PRE = '<pre style="margin: 0.3em 0; padding: 0; overflow-x: auto; white-space: pre">'


def error_html(error: BeRuntimeError | ToolchainError) -> str:
    """Render an error as HTML; what it quotes is escaped.

    Examples
    --------
    >>> error_html(BeRuntimeError("no <b>"))
    '<div><b style="color: var(--jp-error-color1, #c62828)">BeRuntimeError</b>: no &lt;b&gt;</div>'
    """
    parts = [f'<b style="color: {_RED}">{type(error).__name__}</b>: {_text(error.message)}']
    place = _place(error)
    if place:
        parts.append(f"{_PRE}{chr(10).join(map(_line, place.splitlines()))}</pre>")
    parts += [f'<div style="color: {_GREY}">hint: {_text(hint)}</div>' for hint in error.hints]
    if isinstance(error, BuildError):
        if error.output.strip():
            lines = error.output.strip().splitlines()
            parts.append(_folded(f"output of the compiler, {len(lines)} lines", "\n".join(lines)))
        if error.command:
            parts.append(_folded("command", shlex.join(error.command)))
    return f"<div>{''.join(parts)}</div>"


def _place(error: BeRuntimeError | ToolchainError) -> str:
    """Return the lines that show where an error is."""
    if isinstance(error, BuildError):
        return error.first_error
    return error.span.render() if isinstance(error, BeRuntimeError) and error.span is not None else ""


def _line(line: str) -> str:
    caret = _CARET.fullmatch(line)
    return _text(line) if caret is None else f'{caret[1]}<b style="color: {_RED}">{caret[2]}</b>'


def _folded(summary: str, text: str) -> str:
    return f"<details><summary>{_text(summary)}</summary>{_PRE}{_text(text)}</pre></details>"


def _text(text: str) -> str:
    return escape(printable(text))
