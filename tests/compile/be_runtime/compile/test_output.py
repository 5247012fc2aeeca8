"""What a load says while it builds, and how a build that takes too long is stopped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import be_runtime
from be_runtime import BuildError, BuildTimeoutError
from be_runtime.cache import THIS_PROCESS
from be_runtime.load.find_or_build import say_waiting
from tests.support.requirements import in_full
from tests.support.runtime import environment, forwarding_compiler, processes_with, run_python
from tests.support.terminals import Terminal

SOURCE = '#include "brainevent/common.h"\n// @BE f\nvoid f(BE::Tensor out) { int unused; }\n'


def test_a_build_says_nothing_and_verbose_says_what_it_does(
    tmp_cache: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    module = be_runtime.load_cpp_inline("talking", SOURCE, auto_register=False)
    be_runtime.load_cpp_inline("talking", SOURCE, auto_register=False)
    assert capfd.readouterr() == ("", "")
    be_runtime.load_cpp_inline("talking", SOURCE, verbose=True, auto_register=False)
    err = capfd.readouterr().err
    assert "talking: from the cache" in err
    assert str(module.path.parent) in err
    monkeypatch.setenv("BE_VERBOSE", "1")
    module = be_runtime.load_cpp_inline("talking", SOURCE, extra_cflags=["-Wall", "-DTEXT=a b"], auto_register=False)
    out, err = capfd.readouterr()
    assert out == ""
    commands = [line for line in err.splitlines() if line.startswith("$ ")]
    assert any(" -Wall '-DTEXT=a b' " in line and "src/talking.cc" in line for line in commands)
    assert any(" -shared " in line for line in commands)
    assert "talking:3:30: warning: unused variable 'unused'" in err
    assert "talking: built, since it was not in the cache\n  cflags: added '-Wall'; added '-DTEXT=a b'\n" in err
    log = (module.path.parent / "build.log").read_text()
    assert "warning: unused variable" in log
    assert re.search(r"^# compiling talking: \d+\.\d\d s\n\$ ", log, re.MULTILINE)


def test_what_a_failed_build_printed_is_shown_where_that_is_asked_for(capfd: pytest.CaptureFixture[str]):
    for verbose in (True, False):
        with pytest.raises(BuildError) as caught:
            be_runtime.load_cpp_inline("shown", SOURCE.replace("{", "{ oops;", 1), verbose=verbose)
        err = capfd.readouterr().err
        assert caught.value.output in err if verbose else err == ""


SLOW = f"""
import be_runtime
be_runtime.load_cpp_inline("slow", {SOURCE!r})
print("done")
"""


def in_terminal(env: dict[str, str], status: int = 0) -> str:
    """What the slow load writes to a terminal."""
    with Terminal() as terminal:
        handle = terminal.handle
        command = [sys.executable, "-c", SLOW]
        done = subprocess.run(
            command, env=env, stdin=handle, stdout=subprocess.DEVNULL, stderr=handle, check=False, timeout=180
        )
    assert done.returncode == status, terminal.text
    return terminal.text


@pytest.mark.parametrize("fails", [False, in_full(True)])
def test_a_long_build_shows_a_line_on_a_terminal_alone(fails: bool, tmp_path: Path):
    compiler = forwarding_compiler(tmp_path / "g++", "sleep 3; echo no >&2; exit 1" if fails else "sleep 2")
    env = environment(BE_CXX=str(compiler), BE_CACHE_DIR=str(tmp_path / "cache"), TERM="xterm")
    shown = in_terminal(env, status=int(fails))
    assert "building slow" in shown
    if fails:
        assert "built slow" not in shown
        assert "BuildError" in shown
        return
    assert re.search(r"built slow in \d+\.\d s, (linking|compiling [\w ]+) took \d+\.\d s of it", shown)
    assert "\x1b[?25h" in shown, "the cursor is there again"
    assert in_terminal(env) == "", "a warm load"


@pytest.mark.full
def test_a_long_build_is_silent_in_a_pipe(tmp_path: Path):
    compiler = forwarding_compiler(tmp_path / "g++", "sleep 2")
    done = run_python(SLOW, env=environment(BE_CXX=str(compiler), BE_CACHE_DIR=str(tmp_path / "cache")))
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.parametrize(
    ("seconds", "builder", "said"),
    [
        (1.0, THIS_PROCESS, ""),
        (10.0, THIS_PROCESS, "another thread of this process, which is building it (10 s)\n"),
        (1.0, "process 7", "process 7, which is building it (1 s)\n"),
    ],
)
def test_a_load_that_waits_says_so_and_a_thread_only_after_long(
    seconds: float, builder: str, said: str, capsys: pytest.CaptureFixture[str]
):
    say_waiting("slow", seconds, builder)
    assert capsys.readouterr().err == (said and f"be_runtime: slow: waiting for {said}")


@pytest.mark.parametrize("deaf", [in_full(False), True], ids=["stops when asked", "ignores signals"])
def test_a_build_that_takes_too_long_is_stopped(
    deaf: bool, tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    mark = f"be-test-{os.getpid()}-{tmp_path.name}"
    trap = "trap '' TERM INT HUP; " if deaf else ""
    compiler = forwarding_compiler(tmp_path / f"g++{mark}", f"{trap}sleep 61.0{os.getpid()}")
    with monkeypatch.context() as patched:
        patched.setenv("BE_CXX", str(compiler))
        patched.setenv("BE_COMPILE_TIMEOUT_S", "1")
        with pytest.raises(BuildTimeoutError, match="stuck") as caught:
            be_runtime.load_cpp_inline("stuck", SOURCE)
    assert "stopped after 1 s" in str(caught.value)
    assert any("BE_COMPILE_TIMEOUT_S" in hint for hint in caught.value.hints)
    assert not processes_with(mark)
    assert not processes_with(f"sleep 61.0{os.getpid()}")
    assert not list(tmp_cache.glob("**/*.cc"))
    be_runtime.load_cpp_inline("stuck", SOURCE)
