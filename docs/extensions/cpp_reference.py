"""The directive `cpp-header`: the reference of one header, in the words of its own comments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import cpp_headers
from cpp_headers import INCLUDE, Declaration, file_comment, read_header
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective


def render(declaration: Declaration, depth: int = 0) -> Iterator[str]:
    """Write a declaration, and those in it, as directives in Markdown."""
    if declaration.kind == "rubric":
        yield from ("```{rubric} " + declaration.text, "```", "", declaration.comment, "")
        return
    fence = ":" * (6 - depth)
    yield f"{fence}{{{declaration.kind}}} {declaration.text}"
    yield ""
    yield from declaration.comment.splitlines()
    yield ""
    for each in declaration.inside:
        yield from render(each, depth + 1)
    yield fence
    yield ""


class CppHeader(SphinxDirective):
    """``{cpp-header} brainevent/tensor.h``: its comment, then its public declarations."""

    required_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        """Read the header, and parse what is written about it as part of the page."""
        header = self.arguments[0]
        for each in (INCLUDE / header, __file__, cpp_headers.__file__):
            self.env.note_dependency(str(each))
        lines = [*file_comment(header).splitlines(), ""]
        for each in read_header(header):
            lines.extend(render(each))
        parent = nodes.Element()
        self.state.nested_parse(StringList(lines, source=header), self.content_offset, parent)
        return list(parent.children)


def link_in_c10(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """Link a type of namespace c10 in a signature of namespace at, which uses c10."""
    target = node["reftarget"]
    if node["refdomain"] != "cpp" or target.startswith("c10::"):
        return None
    domain, target = env.get_domain("cpp"), f"c10::{target}"
    return domain.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], target, node, content)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("cpp-header", CppHeader)
    app.connect("missing-reference", link_in_c10)
    return {"parallel_read_safe": True}
