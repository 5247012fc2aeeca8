"""Plans run by the real ninja and the real shell."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shlex
import signal
import sys
import sysconfig
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from be_runtime.compile import execute, parallel
from be_runtime.compile.plan import BuildPlan, Edge, GeneratedFile
from be_runtime.errors import BuildError, BuildTimeoutError
from be_toolchain.machine.local_system import LocalSystem
from tests.support.runtime import PRINTING, processes_with

NINJA = execute.resolve_ninja(LocalSystem())
BEGIN = """
import sys, os, time, json
def await_file(name):
    while not os.path.exists(name): time.sleep(0.01)
"""


def edge(name: str, code: str, *args: str, inputs: tuple[str, ...] = (), description: str = "") -> Edge:
    """A command that runs some Python and then makes a file of its name."""
    argv = (sys.executable, "-S", "-c", f"{BEGIN}{code}\nopen({name!r}, 'a').close()", *args)
    return Edge(argv=argv, inputs=inputs, outputs=(name,), description=description or f"making {name}", tool="compile")


def runner(folder: Path, **options: Any) -> execute.Runner:
    return execute.Runner(folder, **{"ninja": NINJA, "jobs": 2, "timeout_s": 60, "environ": os.environ, **options})


def run(folder: Path, *edges: Edge, **options: Any) -> tuple[execute.Step, ...]:
    return runner(folder, **options).run(BuildPlan(files=(), edges=edges))


def test_arguments_of_every_kind_arrive(tmp_path: Path):
    """Every character below 256 alone, and random mixtures of the dangerous ones."""
    chance = random.Random(1)  # noqa: S311 - the same texts in every run
    dangerous = "\n\r\t \"'$\\`!*?;&|<>(){}[]#~%^=:@-,ä€\udcff\x01\x7fan"
    texts = [chr(code) for code in range(1, 256)] + ["", "a\nb\nc", "\n", "\r\n", "$n", "${n}x", "$\n", "'\n'", "n=1"]
    texts += ["".join(chance.choices(dangerous, k=chance.randint(1, 12))) for _ in range(300)]
    code = "json.dump([os.fsencode(arg).hex() for arg in sys.argv[1:]], open('seen.json', 'w'))"
    run(tmp_path, edge("done", code, *texts))
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen == [text.encode("utf-8", "surrogateescape").hex() for text in texts]


def test_each_command_has_its_own_output(tmp_path: Path):
    """Whatever it is called, and whatever it prints, such as what ninja says of failures; it reads no terminal."""
    names = ["linking", "FAILED: x", "ninja: error", "@be@making", "a $x 'b'", "a\udcff", "a\udcfe"]
    code = "print('FAILED: [code=1] a', 'sh -c false', sep=chr(10)); print(); print(repr({!a}), repr(sys.stdin.read()))"
    edges = [edge(f"f{at}", code.format(name), description=f"compiling {name}") for at, name in enumerate(names)]
    steps = run(tmp_path, *edges, jobs=4)
    begin = "FAILED: [code=1] a\nsh -c false\n\n"
    expected = {f"compiling {name}": f"{begin}{name!r} ''" for name in names[:5]}
    assert {step.edge.description: step.output for step in steps if step.edge in edges[:5]} == expected
    made = {(step.edge.description, step.edge.outputs[0], step.failed) for step in steps}
    assert made == {(f"compiling {name}", f"f{at}", False) for at, name in enumerate(names)}


def test_no_line_of_an_output_is_lost(tmp_path: Path):
    """Also not a line that begins as ninja's own do, at the end of a success, or before ninja's word on a failure."""
    lines = ["@be@0", "@be@", "ninja: error: mine", "0"]
    says = f"print({chr(10).join(lines)!r}, flush=True)"
    steps = run(tmp_path, edge("a", says), edge("b", says, inputs=("a",)))
    assert [step.output.split("\n") for step in steps] == [lines, lines]
    with pytest.raises(BuildError, match="making c failed") as caught:
        run(tmp_path, edge("c", f"{says}; print('ninja: no'); sys.exit(3)"))
    assert caught.value.output.split("\n") == [*lines, "ninja: no"]


def test_an_output_without_a_line_end_hides_no_command(tmp_path: Path):
    """Ninja appends its next line to it, and begins the next output with an empty one."""
    says = "sys.stdout.write('said')"
    edges = [edge(name, code, inputs=before) for name, code, before in (
        ("a", says, ()), ("b", "", ("a",)), ("c", "print(); print('c')", ("b",)), ("d", says, ("c",)),
        ("e", f"{says}; sys.stdout.flush(); os._exit(3)", ("d",)),
    )]  # fmt: skip
    with runner(tmp_path).started(BuildPlan(files=(), edges=tuple(edges))) as steps:
        ended = list(itertools.islice(steps, 5))
        assert [step.output for step in ended] == ["said", "", "\nc", "said", "said"]
        assert [step.failed for step in ended] == [False] * 4 + [True]
        with pytest.raises(BuildError, match="making e failed") as caught:
            next(steps)
    assert caught.value.output == "said"


def test_inputs_come_first_and_every_end_is_told(tmp_path: Path):
    told: list[tuple[str, int]] = []
    progress = Mock(finish=lambda edge: told.append((edge.outputs[0], threading.get_ident())))
    edges = (edge("b", "", inputs=("a",)), edge("a", ""))
    plan = BuildPlan(files=(), edges=edges, link=edge("c", "", inputs=("b",)))
    steps = runner(tmp_path).run(plan, progress=progress)
    assert [step.edge.outputs[0] for step in steps] == ["a", "b", "c"]
    assert told == [(name, threading.get_ident()) for name in "abc"]


def test_each_success_is_told_at_once_and_no_failure(tmp_path: Path):
    """At the latest when the next command ends: until then it is not known that there is no more to its output."""
    slow = edge("slow", "await_file('told')")
    edges = (edge("a", ""), edge("b", ""), slow, edge("bad", "sys.exit(3)", inputs=("slow",)))
    with runner(tmp_path).started(BuildPlan(files=(), edges=edges)) as steps:
        first = next(steps)
        (tmp_path / "told").touch()
        ended = [first, *itertools.islice(steps, 3)]
        assert {step.edge.outputs[0] for step in ended if not step.failed} == {"a", "b", "slow"}
        with pytest.raises(BuildError, match="making bad failed"):
            next(steps)


def test_only_what_is_asked_for_is_made(tmp_path: Path):
    edges = [edge("a", ""), edge("b", "", inputs=("a",)), edge("c", "")]
    with runner(tmp_path).started(BuildPlan(files=(), edges=tuple(edges)), targets=("a",)) as steps:
        assert [step.edge.outputs[0] for step in steps] == ["a"]
    assert {step.edge.outputs[0] for step in run(tmp_path, *edges)} == {"b", "c"}, "the rest, and a not again"


def test_the_first_failure_ends_the_build_with_its_own_output(tmp_path: Path):
    bad = edge("bad", "await_file('begun'); print('bad', flush=True); open('failing', 'w'); sys.exit('went wrong')")
    slow = edge("slow", "print('slow'); open('begun', 'w'); await_file('failing'); print('done')")
    with pytest.raises(BuildError, match="making bad failed") as caught:
        run(tmp_path, slow, bad, edge("after", "", inputs=("bad",)))
    assert caught.value.output == "bad\nwent wrong"
    assert caught.value.command == bad.argv
    assert not (tmp_path / "after").exists()


@pytest.mark.parametrize("name", PRINTING)
def test_no_variable_steers_what_ninja_prints(tmp_path: Path, name: str):
    good, bad = edge("a", ""), edge("b", "print('\33[31mred\33[0m'); sys.exit(3)", inputs=("a",))
    set_so = runner(tmp_path, environ={**os.environ, name: PRINTING[name]})
    with set_so.started(BuildPlan(files=(), edges=(good, bad))) as steps:
        assert [(step.edge, step.failed) for step in itertools.islice(steps, 2)] == [(good, False), (bad, True)]
        with pytest.raises(BuildError, match="making b failed") as caught:
            next(steps)
    assert caught.value.output == "red"


def test_no_variable_steers_what_commands_print(tmp_path: Path):
    """LC_ALL settles what the others of the locale say; ninja's own status is ours."""
    names = {*PRINTING} - {"LANG", "LC_MESSAGES", "NINJA_STATUS"}
    code = f"print({{name: os.environ[name] for name in {names} if name in os.environ}})"
    (step,) = run(tmp_path, edge("a", code), environ={**os.environ, **PRINTING})
    assert step.output == "{'TERM': 'dumb'}"


def test_files_are_written_before_and_not_again(tmp_path: Path):
    file = GeneratedFile(path="src/deep/a.txt", text="ä \udcff\n")
    plan = BuildPlan((file,), (edge("copy", "open('copied', 'wb').write(open('src/deep/a.txt', 'rb').read())"),))
    for _ in range(2):
        runner(tmp_path).run(plan)
    assert (tmp_path / "copied").read_bytes() == "ä ".encode() + b"\xff\n"


def test_what_ninja_can_not_run_and_no_ninja(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(BuildError, match="ninja") as caught:
        run(tmp_path, edge("a", "", inputs=("b",)), edge("b", "", inputs=("a",)))
    assert "root nodes" in caught.value.output
    with pytest.raises(BuildError, match="ninja can't be started"):
        execute.Runner(tmp_path, ninja=tmp_path / "none", jobs=1, environ=os.environ).run(BuildPlan(files=(), edges=()))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(BuildError, match="ninja is not installed") as caught:
        execute.resolve_ninja(LocalSystem({"PATH": str(tmp_path)}))
    assert "pip install ninja" in caught.value.hints[0]


@pytest.mark.parametrize("ignores", [False, True])
def test_a_time_limit_ends_every_command(tmp_path: Path, ignores: bool):
    mark = f"be-execute-{tmp_path.name}-{ignores}"
    deaf = "import signal; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; " if ignores else ""
    child = f"os.spawnlp(os.P_NOWAIT, sys.executable, 'python', '-Sc', 'import time; time.sleep(99) # {mark}')"
    edges = [edge(f"f{at}", f"{deaf}{child}; time.sleep(98)", mark) for at in range(2)]
    with pytest.raises(BuildTimeoutError, match=r"stopped after 0\.5 s"):
        run(tmp_path, *edges, timeout_s=0.5)
    assert not processes_with(mark)


def test_a_machine_without_time_for_a_second_look_ends_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The first look at the processes may take longer than all the time that is given."""
    monkeypatch.setattr(execute, "_GRACE_S", -1.0)
    mark = f"be-execute-{tmp_path.name}"
    deaf = "import signal; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; open('deaf', 'w'); time.sleep(98)"
    with runner(tmp_path).started(BuildPlan((), (edge("a", deaf, mark),))):
        until = time.monotonic() + 60
        while not (tmp_path / "deaf").exists() and time.monotonic() < until:
            time.sleep(0.01)
    until = time.monotonic() + 60
    while processes_with(mark) and time.monotonic() < until:
        time.sleep(0.01)
    assert not processes_with(mark)


def test_all_commands_of_a_runner_share_its_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    now_s = [0.0]
    monkeypatch.setattr(execute, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=time.sleep))
    limited = runner(tmp_path, timeout_s=900.0)
    limited.run(BuildPlan(files=(), edges=(edge("a", ""),)))
    now_s[0] = 901.0
    with pytest.raises(BuildTimeoutError, match=r"stopped after 900 s"):
        limited.run(BuildPlan(files=(), edges=(edge("b", "time.sleep(99)"),)))


def test_an_error_of_the_caller_ends_every_command(tmp_path: Path):
    mark = f"be-execute-{tmp_path.name}"
    edges = (edge("quick", ""), edge("next", ""), edge("slow", "time.sleep(97)", mark, inputs=("next",)))

    def fail_while_they_run() -> None:
        with runner(tmp_path).started(BuildPlan(files=(), edges=edges)) as steps:
            next(steps)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_while_they_run()
    assert not processes_with(mark)


def test_an_interrupt_ends_parallel_builds_whichever_thread_receives_it(tmp_path: Path):
    """The main thread waits for a lock then, and nothing wakes it: so does a signal that comes just before the wait."""
    mark = f"be-execute-{tmp_path.name}"

    def build(name: str) -> None:
        (tmp_path / name).mkdir()
        with runner(tmp_path / name).started(
            BuildPlan((), (edge("a", ""), edge("slow", "time.sleep(96)", mark)))
        ) as steps:
            if name == "first":
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            list(steps)

    with pytest.raises(KeyboardInterrupt):
        parallel.run_parallel(build, ["first", "second"])
    assert not processes_with(mark)


def test_the_log_can_be_pasted_into_a_shell(tmp_path: Path):
    argv = ("/bin/sh", "-c", "echo said > 'a b'; cat 'a b'")
    plain = Edge(argv=argv, inputs=(), outputs=("a b",), description="x", tool="compile")
    title, command, said = execute.render_log(run(tmp_path, plain)).splitlines()
    assert re.fullmatch(r"# x: \d+\.\d\d s", title)
    assert shlex.split(command.removeprefix("$ ")) == list(argv)
    assert said == "said"
