"""A plan as ninja's text; what ninja and the shell make of it is tested with both in tests/compile/runtime."""

from __future__ import annotations

import re
import shlex

from hypothesis import given, settings
from hypothesis import strategies as st

from be_runtime.compile.plan.build_plan import Edge
from be_runtime.compile.run.ninja import escape_path, escape_value, render_ninja, shell_command

ARGUMENTS = st.text(alphabet=st.characters(exclude_characters="\0"))


def unescape(text: str) -> str:
    """As ninja's lexer does it."""
    return re.sub(r"\$([$ :])", r"\1", text)


@settings(deadline=None)
@given(ARGUMENTS)
def test_values_are_read_back(text: str):
    assert unescape(escape_value(text)) == text


@settings(deadline=None)
@given(st.text(alphabet="ab./$ :-_ü"))
def test_paths_are_read_back_as_one(text: str):
    escaped = escape_path(text)
    assert unescape(escaped) == text
    assert not re.search(r"(?<!\$)(?:\$\$)*[ :]", escaped)


@settings(deadline=None)
@given(st.lists(ARGUMENTS))
def test_a_command_is_one_line(argv: list[str]):
    command = shell_command(argv)
    assert not set(command) & {"\n", "\r"}
    if not any(set(argument) & {"\n", "\r"} for argument in argv):
        assert shlex.split(command) == argv


def test_the_text():
    edges = [
        Edge(
            argv=("cc", "a b", "$HOME"),
            inputs=("src/a b.cc",),
            outputs=("obj/a:b.o",),
            description="compiling $a",
            tool="compile",
        ),
        Edge(
            argv=("ld",),
            inputs=("/a|b/kept.o", "/a\nb/c.o", "obj/a:b.o"),
            outputs=("a.so",),
            description="linking",
            tool="link",
        ),
    ]
    assert render_ninja(edges).splitlines() == [
        "ninja_required_version = 1.8",
        "rule run",
        "  command = $argv",
        "  description = $number",
        "",
        "build obj/a$:b.o: run ",
        "  argv = cc 'a b' '$$HOME'",
        "  number = 0",
        "",
        "build a.so: run obj/a$:b.o",
        "  argv = ld",
        "  number = 1",
    ]
