"""Documentation comments: ``///`` lines and ``/** */`` blocks directly above a line of C++. Pure."""

from __future__ import annotations

import re
from textwrap import dedent

_DOC_LINE = re.compile(r"//[/!](?![/!])(?!\s*@BE\b) ?(.*)")
_DOC_BLOCK = re.compile(r"/\*[*!](?![*/]) ?(.*?)\*+/", re.DOTALL)
_MOST_BETWEEN = 16
"""Comments that may stand between a line and its documentation, so that a thousand annotations are not read over."""
_STAR = re.compile(r"^[ \t]*\*(?: |$)", re.MULTILINE)


def doc_above(text: str, position: int) -> str:
    r"""Return the documentation above the line of a position; empty if there is none.

    Other comments, such as annotations, may stand between them. A blank line or code may not.

    Examples
    --------
    >>> text = "int a;\n/// Fire neurons.\n///   v: potentials\n// @BE fire\nvoid fire();"
    >>> print(doc_above(text, text.index("void")))
    Fire neurons.
      v: potentials
    >>> doc_above("/**\n * Fire.\n */\nvoid fire();", 20)
    'Fire.'
    """
    found: list[str] = []
    end, between = text.rfind("\n", 0, position), 0
    while end >= 0 and between <= _MOST_BETWEEN:
        start = text.rfind("\n", 0, end) + 1
        if text[start:end].rstrip().endswith("*/"):
            start = text.rfind("\n", 0, max(0, text.rfind("/*", 0, end))) + 1
        comment = text[start:end].strip()
        doc = _text(comment)
        if not comment.startswith(("//", "/*")) or (found and doc is None):
            break
        if doc is not None:
            found.append(doc)
        between += doc is None
        end = start - 1
    return dedent("\n".join(reversed(found))).strip()


def _text(comment: str) -> str | None:
    """Return the text of a comment that documents; None for any other."""
    if line := _DOC_LINE.fullmatch(comment):
        return line[1].rstrip()
    if block := _DOC_BLOCK.fullmatch(comment):
        return dedent(_STAR.sub("", block[1].replace("\r", ""))).strip()
    return None
