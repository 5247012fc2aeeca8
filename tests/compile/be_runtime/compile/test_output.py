"""What a load says while it builds, and how a build that takes too long is stopped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import be_runtime
from be_runtime import BuildError, BuildTimeoutError
from be_runtime.cache import THIS_PROCESS
from be_runtime.load.find_or_build import say_waiting
from tests.support.runtime import environment, forwarding_compiler, processes_with, run_python, script
from tests.support.terminals import Terminal

SOURCE = '#include "brainevent/common.h"\n// @BE f\nvoid f(BE::Tensor out) { int unused; }\n'


def test_a_build_says_nothing(tmp_cache: Path, capfd: pytest.CaptureFixture[str]):
    be_runtime.load_cpp_inline("silent", SOURCE, auto_register=False)
    be_runtime.load_cpp_inline("silent", SOURCE, auto_register=False)
    assert capfd.readouterr() == ("", "")


def test_verbose_shows_the_commands_and_their_output(tmp_cache: Path, capfd: pytest.CaptureFixture[str]):
    flags = ["-Wall", "-DTEXT=a b"]
    be_runtime.load_cpp_inline("talking", SOURCE, extra_cflags=flags, verbose=True, auto_register=False)
    out, err = capfd.readouterr()
    assert out == ""
    commands = [line for line in err.splitlines() if line.startswith("$ ")]
    assert any(" -Wall '-DTEXT=a b' " in line and "src/talking.cc" in line for line in commands)
    assert any(" -shared " in line for line in commands)
    assert "talking:3:30: warning: unused variable 'unused'" in err


def test_verbose_says_that_the_cache_had_it(tmp_cache: Path, capfd: pytest.CaptureFixture[str]):
    be_runtime.load_cpp_inline("talking", SOURCE, auto_register=False)
    module = be_runtime.load_cpp_inline("talking", SOURCE, verbose=True, auto_register=False)
    err = capfd.readouterr().err
    assert "talking: from the cache" in err
    assert str(module.path.parent) in err


def test_verbose_by_the_environment(
    tmp_cache: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BE_VERBOSE", "1")
    be_runtime.load_cpp_inline("talking", SOURCE, auto_register=False)
    assert "$ " in capfd.readouterr().err


def test_the_log_stays_beside_the_library(tmp_cache: Path):
    module = be_runtime.load_cpp_inline("logged", SOURCE, extra_cflags=["-Wall"], auto_register=False)
    log = (module.path.parent / "build.log").read_text()
    assert "warning: unused variable" in log
    assert re.search(r"^# compiling logged: \d+\.\d\d s\n\$ ", log, re.MULTILINE)


def test_the_launcher_stands_before_the_compilers(tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    launcher = script(tmp_path / "launcher", f'echo "$2" >> "{tmp_path}/launched"', "shift", 'exec "$@"')
    monkeypatch.setenv("BE_COMPILER_LAUNCHER", f"{launcher} --quiet")
    be_runtime.load_cpp_inline("launched", SOURCE, auto_register=False)
    compilers = (tmp_path / "launched").read_text().splitlines()
    assert compilers
    assert all(Path(compiler).is_file() for compiler in compilers)


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


def test_a_long_build_shows_a_line_on_a_terminal(tmp_path: Path):
    compiler = forwarding_compiler(tmp_path / "g++", "sleep 2")
    shown = in_terminal(environment(BE_CXX=str(compiler), BE_CACHE_DIR=str(tmp_path / "cache"), TERM="xterm"))
    assert "building slow" in shown
    assert re.search(r"built slow in \d+\.\d s, (linking|compiling [\w ]+) took \d+\.\d s of it", shown)
    assert "\x1b[?25h" in shown, "the cursor is there again"


def test_a_long_build_that_fails_is_not_called_built(tmp_path: Path):
    compiler = forwarding_compiler(tmp_path / "g++", "sleep 3; echo no >&2; exit 1")
    env = environment(BE_CXX=str(compiler), BE_CACHE_DIR=str(tmp_path / "cache"), TERM="xterm")
    shown = in_terminal(env, status=1)
    assert "building slow" in shown
    assert "built slow" not in shown
    assert "BuildError" in shown


def test_a_warm_load_shows_nothing_on_a_terminal(tmp_path: Path):
    env = environment(BE_CACHE_DIR=str(tmp_path / "cache"), TERM="xterm")
    in_terminal(env)
    assert in_terminal(env) == ""


def test_a_long_build_is_silent_in_a_pipe(tmp_path: Path):
    compiler = forwarding_compiler(tmp_path / "g++", "sleep 2")
    done = run_python(SLOW, env=environment(BE_CXX=str(compiler), BE_CACHE_DIR=str(tmp_path / "cache")))
    assert done.stdout == "done\n"
    assert done.stderr == ""


def test_a_waiting_process_says_so(tmp_path: Path):
    """The second process waits for the first one's build."""
    until_told = f"touch '{tmp_path}/started'; while [ ! -e '{tmp_path}/go' ]; do sleep 0.05; done"
    compiler = forwarding_compiler(tmp_path / "g++", until_told)
    env = environment(BE_CXX=str(compiler), BE_CACHE_DIR=str(tmp_path / "cache"))
    argv = [sys.executable, "-c", SLOW]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as first:
        deadline = time.monotonic() + 60
        while not (tmp_path / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as second:
            assert second.stderr is not None
            said = second.stderr.readline()
            (tmp_path / "go").touch()
            assert second.communicate(timeout=60)[0] == "done\n"
        assert first.wait(timeout=60) == 0
    assert re.fullmatch(rf"be_runtime: slow: waiting for process {first.pid}, which is building it \(\d+ s\)\n", said)


def test_a_thread_that_waits_for_another_thread_says_nothing(tmp_path: Path):
    compiler = forwarding_compiler(tmp_path / "g++", "sleep 2")
    code = f"""
import threading, be_runtime
threads = [threading.Thread(target=be_runtime.load_cpp_inline, args=("slow", {SOURCE!r})) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(be_runtime.list_registered_targets())
"""
    done = run_python(code, env=environment(BE_CXX=str(compiler), BE_CACHE_DIR=str(tmp_path / "cache")))
    assert done.stdout == "('slow.f',)\n"
    assert done.stderr == ""


def test_a_thread_that_waits_long_says_so(capsys: pytest.CaptureFixture[str]):
    say_waiting("slow", 1.0, THIS_PROCESS)
    assert capsys.readouterr().err == ""
    say_waiting("slow", 10.0, THIS_PROCESS)
    assert capsys.readouterr().err.endswith(
        "slow: waiting for another thread of this process, which is building it (10 s)\n"
    )


def test_what_a_failed_build_printed_is_shown_where_that_is_asked_for(
    tmp_cache: Path, capfd: pytest.CaptureFixture[str]
):
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cpp_inline("shown", SOURCE.replace("{", "{ oops;", 1), verbose=True)
    assert caught.value.output in capfd.readouterr().err
    with pytest.raises(BuildError):
        be_runtime.load_cpp_inline("shown", SOURCE.replace("{", "{ oops;", 1))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("deaf", [False, True], ids=["stops when asked", "ignores signals"])
def test_a_build_that_takes_too_long_is_stopped(
    deaf: bool, tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    mark = f"be-test-{os.getpid()}-{tmp_path.name}"
    trap = "trap '' TERM INT HUP; " if deaf else ""
    compiler = forwarding_compiler(tmp_path / f"g++{mark}", f"{trap}sleep 61.0{os.getpid()}")
    monkeypatch.setenv("BE_CXX", str(compiler))
    monkeypatch.setenv("BE_COMPILE_TIMEOUT_S", "1")
    with pytest.raises(BuildTimeoutError) as caught:
        be_runtime.load_cpp_inline("stuck", SOURCE)
    assert "stopped after 1 s" in str(caught.value)
    assert "stuck" in str(caught.value)
    assert any("BE_COMPILE_TIMEOUT_S" in hint for hint in caught.value.hints)
    assert not processes_with(mark)
    assert not processes_with(f"sleep 61.0{os.getpid()}")
    assert not list(tmp_cache.glob("**/*.cc"))
    monkeypatch.delenv("BE_CXX")
    monkeypatch.delenv("BE_COMPILE_TIMEOUT_S")
    be_runtime.load_cpp_inline("stuck", SOURCE)


def test_verbose_says_what_differs_from_the_last_build(tmp_cache: Path, capfd: pytest.CaptureFixture[str]):
    be_runtime.load_cpp_inline("again", SOURCE, auto_register=False)
    be_runtime.load_cpp_inline("again", SOURCE, extra_cflags=["-DNEW"], auto_register=False, verbose=True)
    assert "again: built, since it was not in the cache\n  cflags: added '-DNEW'\n" in capfd.readouterr().err
