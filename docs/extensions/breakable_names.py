"""Lets browsers break names and paths in tables and inline code at their joints, so that tables fit their column."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

_NARROW = re.compile(r"<td\b.*?</td>|<code\b.*?</code>", re.DOTALL)
_TEXT = re.compile(r"(?<=>)[^<]+(?=<)")
_JOINT = re.compile(r"(?<=[_/=,.])(?=[A-Za-z_])|(?<=[a-z])(?=[A-Z])")


def mark_joints(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Put a possible break at each joint, as in `be_|runtime/|api.|py`; copied and searched text stays the same."""
    context["body"] = _NARROW.sub(
        lambda part: _TEXT.sub(lambda text: _JOINT.sub("<wbr>", text[0]), part[0]), context.get("body", "")
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("html-page-context", mark_joints)
    return {"parallel_read_safe": True}
