"""A run of ninja: how many commands at a time, its text and its log, and the display that builds share."""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import rich.console
from hypothesis import given, settings
from hypothesis import strategies as st

from be_runtime.compile import execute, plan, progress
from be_toolchain.machine.local_system import LocalSystem
from tests.support.machines import MemorySystem
from tests.support.terminals import Terminal

GIB = 2**30


COUNTS: dict[tuple[int, int | None, int | None, int | None], int] = {
    (16, 128 * GIB, None, None): 16,
    (16, 4 * GIB, None, None): 3,
    (16, GIB // 2, None, None): 1,
    (2, None, None, None): 2,
    (16, 4 * GIB, 8, None): 8,
    (16, 4 * GIB, 8, 2): 2,
    (16, 128 * GIB, None, 4): 4,
}
"""By processors, memory, and numbers that are wanted and allowed."""


def test_count():
    assert {each: execute.job_count(*each) for each in COUNTS} == COUNTS
    assert execute.job_count(16, 8 * GIB) * execute.JOB_BYTES <= 8 * GIB, "sixteen heavy files fit into what is free"


def group(folder: str, limit: object, used: int, names: str = "max current") -> dict[str, object]:
    """The files of a group of processes."""
    return {f"{folder}memory.{name}": value for name, value in zip(names.split(), (limit, used), strict=True)}


V1 = "limit_in_bytes usage_in_bytes"
JOB = group("memory/slurm/job_7/", 6 * GIB, GIB, V1) | group("memory/", 2**63 - 4096, 9 * GIB, V1)


@pytest.mark.parametrize(
    ("own", "groups", "expected"),
    [
        ("", {}, 16 * GIB),
        ("0::/", group("", 4 * GIB, 3 * GIB) | {"memory.stat": f"a 5\ninactive_file {GIB}"}, 2 * GIB),
        ("0::/jobs/mine", group("jobs/mine/", "max", GIB) | group("jobs/", 3 * GIB, GIB), 2 * GIB),
        ("8:pids:/\n4:memory:/slurm/job_7\n0::/", JOB, 5 * GIB),
    ],
    ids=["no groups", "a container, version 2", "the group around it has the limit", "a cluster's job, version 1"],
)
def test_available_memory(own: str, groups: dict[str, object], expected: int):
    machine = MemorySystem()
    assert execute.available_memory_bytes(machine) is None, "nothing can be read"
    machine.write("/proc/meminfo", "MemTotal:  24689732 kB\nMemFree:    812312 kB\nMemAvailable:   16777216 kB\n")
    machine.write("/proc/self/cgroup", f"{own}\n")
    for name, content in groups.items():
        machine.write(f"/sys/fs/cgroup/{name}", f"{content}\n")
    assert execute.available_memory_bytes(machine) == expected


def test_this_machine_says_how_much_it_has():
    assert (execute.available_memory_bytes(LocalSystem()) or 0) > 2**20


ARGUMENTS = st.text(alphabet=st.characters(exclude_characters="\0"))


def unescape(text: str) -> str:
    """As ninja's lexer does it."""
    return re.sub(r"\$([$ :])", r"\1", text)


@settings(deadline=None)
@given(ARGUMENTS, st.text(alphabet="ab./$ :-_ü"))
def test_values_and_paths_are_read_back(text: str, path: str):
    assert unescape(execute.escape_value(text)) == text
    escaped = execute.escape_path(path)
    assert unescape(escaped) == path
    assert not re.search(r"(?<!\$)(?:\$\$)*[ :]", escaped)


@settings(deadline=None)
@given(st.lists(ARGUMENTS))
def test_a_command_is_one_line(argv: list[str]):
    command = execute.shell_command(argv)
    assert not set(command) & {"\n", "\r"}
    if not any(set(argument) & {"\n", "\r"} for argument in argv):
        assert shlex.split(command) == argv


def test_the_text():
    edges = [
        plan.Edge(("cc", "a b", "$HOME"), ("src/a b.cc",), ("obj/a:b.o",), "compiling $a", "compile"),
        plan.Edge(("ld",), ("/a|b/kept.o", "/a\nb/c.o", "obj/a:b.o"), ("a.so",), "linking", "link"),
    ]
    assert execute.render_ninja(edges).splitlines() == [
        *("ninja_required_version = 1.8", "rule run", "  command = $argv", "  description = $number", ""),
        *("build obj/a$:b.o: run ", "  argv = cc 'a b' '$$HOME'", "  number = 0", ""),
        *("build a.so: run obj/a$:b.o", "  argv = ld", "  number = 1"),
    ]


def test_the_last_line_of_an_output_counts_and_a_damaged_one_is_passed_over():
    text = "# ninja log v7\n0\t100\t5\tobj/a b.o\tff\n10\t30\t5\tx\tff\n0\t250\t6\tobj/a b.o\tfe\n"
    damaged = f"0\t1\nzero\t1\t2\tx\tf\n\n3\t4\t5\ty\tf\textra\n0\t{'9' * 5000}\t5\ty\tf\n"
    assert execute.parse_ninja_log(text + damaged) == {"obj/a b.o": 0.25, "x": 0.02}


def build(name: str, work: Callable[[], object]) -> None:
    with progress.Progress(name, [plan.Edge(("true",), (), (), description=f"compiling {name}", tool="compile")]):
        work()


def test_builds_at_once_have_a_line_each_and_do_not_write_over_each_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    began, end = threading.Event(), threading.Event()

    def first() -> None:
        began.set()
        end.wait()

    works: dict[str, Callable[[], object]] = {"first": first, "second": end.wait, "short": lambda: None}
    with capsys.disabled(), Terminal() as terminal, terminal.file() as file:
        monkeypatch.setattr("sys.stderr", file)
        threads = [threading.Thread(target=build, args=each) for each in works.items()]
        threads[0].start()
        assert began.wait(60)
        for thread in threads[1:]:
            thread.start()
        terminal.await_text("building second")
        time.sleep(1.2)  # the end of a build is told if it took a second
        end.set()
        for thread in threads:
            thread.join()
    shown = terminal.text
    assert re.search(r"building first \[0/1\] \d+ s: compiling first\r\nbuilding second", shown), "one picture of both"
    assert shown.count("built first") == shown.count("built second") == 1
    assert "built short" not in shown
    assert shown.count("\x1b[?25l") == 1, "the cursor is hidden by one writer"


def test_a_build_that_ends_before_its_line_is_there_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    late, console = threading.Event(), rich.console.Console

    def console_of_a_busy_machine(**options: Any) -> rich.console.Console:
        late.set()
        display = progress._Display._newest  # noqa: SLF001 - its event says that the build has left
        assert display is not None
        assert display._changed.wait(60)  # noqa: SLF001
        return console(**options)

    with capsys.disabled(), Terminal() as terminal, terminal.file() as file:
        monkeypatch.setattr("sys.stderr", file)
        monkeypatch.setattr("rich.console.Console", console_of_a_busy_machine)
        build("negate", lambda: late.wait(60))
    assert re.search(r"built negate in \d\.\d s", terminal.text)
