"""A plan as ninja's text, and ninja's log; what ninja and the shell make of a plan is tested in tests/compile."""

from __future__ import annotations

import re
import shlex

from hypothesis import given, settings
from hypothesis import strategies as st

from be_runtime.compile.plan.build_plan import Edge
from be_runtime.compile.run.ninja import escape_path, escape_value, render_ninja, shell_command
from be_runtime.compile.run.ninja_log import parse_ninja_log

ARGUMENTS = st.text(alphabet=st.characters(exclude_characters="\0"))


def unescape(text: str) -> str:
    """As ninja's lexer does it."""
    return re.sub(r"\$([$ :])", r"\1", text)


@settings(deadline=None)
@given(ARGUMENTS, st.text(alphabet="ab./$ :-_ü"))
def test_values_and_paths_are_read_back(text: str, path: str):
    assert unescape(escape_value(text)) == text
    escaped = escape_path(path)
    assert unescape(escaped) == path
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
        Edge(("cc", "a b", "$HOME"), ("src/a b.cc",), ("obj/a:b.o",), "compiling $a", "compile"),
        Edge(("ld",), ("/a|b/kept.o", "/a\nb/c.o", "obj/a:b.o"), ("a.so",), "linking", "link"),
    ]
    assert render_ninja(edges).splitlines() == [
        *("ninja_required_version = 1.8", "rule run", "  command = $argv", "  description = $number", ""),
        *("build obj/a$:b.o: run ", "  argv = cc 'a b' '$$HOME'", "  number = 0", ""),
        *("build a.so: run obj/a$:b.o", "  argv = ld", "  number = 1"),
    ]


def test_the_last_line_of_an_output_counts_and_a_damaged_one_is_passed_over():
    text = "# ninja log v7\n0\t100\t5\tobj/a b.o\tff\n10\t30\t5\tx\tff\n0\t250\t6\tobj/a b.o\tfe\n"
    damaged = f"0\t1\nzero\t1\t2\tx\tf\n\n3\t4\t5\ty\tf\textra\n0\t{'9' * 5000}\t5\ty\tf\n"
    assert parse_ninja_log(text + damaged) == {"obj/a b.o": 0.25, "x": 0.02}
