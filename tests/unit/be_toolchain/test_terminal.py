"""Escape sequences from files and paths do not reach a terminal as they are."""

from __future__ import annotations

import contextlib
import io
import json
import re
import unicodedata
from pathlib import Path

import pytest

from be_runtime.compile.plan import Edge
from be_runtime.compile.progress import Progress
from be_runtime.errors import ArgumentError, BeRuntimeError, BuildError, FindingError, SourceSpan
from be_runtime.settings import Settings
from be_runtime.store.folder import CacheWarning, usable_cache_dir
from be_toolchain.cli import main as cli
from be_toolchain.errors import Probe, ToolchainError
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.terminal import printable, printable_line
from tests.support.error_types import error_types
from tests.support.machines import MemorySystem
from tests.support.terminals import Terminal

EVIL = "\x1b]0;owned\x07\x9b31m\r\u202egnirts\u2066\udc9b"
HARMFUL = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def is_safe(text: str) -> bool:
    return not [char for char in text if unicodedata.category(char) in HARMFUL and char not in "\n\t"]


def test_what_steers_a_terminal_is_spelt_out_and_nothing_else_is_changed():
    assert printable(EVIL) == r"\x1b]0;owned\x07\x9b31m\x0d\u202egnirts\u2066\x9b"
    plain = "a\tb\nc\u2018d\u2019 \u4f60\u597d \U0001f642 \\x1b"
    assert printable(plain) == plain
    assert printable("a\r\nb\n") == "a\nb\n"
    assert printable_line("a\nb\tc") == r"a\x0ab\x09c"
    assert printable(json.loads('"\\ud800 x"')) == printable_line("\ud800 x") == r"\ud800 x"
    assert printable(printable(EVIL)) == printable(EVIL)
    every = printable("".join(map(chr, (*range(0x300), *range(0x2000, 0x2070)))))
    assert not [char for char in every if unicodedata.category(char) in {"Cc", "Cs"} and char not in "\n\t"]
    assert not [char for char in every if unicodedata.bidirectional(char) in {"RLO", "LRO", "RLI", "PDF"}]


def test_no_errors_text_steers_a_terminal():
    for kind in error_types(ToolchainError):
        error = kind(EVIL, probes=(Probe(EVIL, EVIL, EVIL),), hints=(EVIL,))
        assert is_safe(str(error))
        assert EVIL in error.message
    span = SourceSpan(file=EVIL, line=1, column=3, length=2, text=EVIL)
    for type_ in error_types(BeRuntimeError):
        has_no_span = issubclass(type_, BuildError | FindingError)
        assert is_safe(str(type_(EVIL, hints=(EVIL,)) if has_no_span else type_(EVIL, span=span)))
    built = BuildError(EVIL, command=(EVIL,), output=f"{EVIL}\n\tline", first_error=EVIL, further=EVIL)
    assert is_safe(str(built))
    assert built.output == f"{EVIL}\n\tline"
    assert "\n\tline" in str(built)
    assert is_safe(str(ArgumentError(EVIL * 100)))
    assert isinstance(built, BeRuntimeError)


def machine() -> MemorySystem:
    """Its compiler and the file of a project have such names."""
    made = MemorySystem(cwd=Path(f"/home/me/{EVIL}"))
    made.environ = {"PATH": "/usr/bin", "CXX": f"/opt/{EVIL}/g++", "CPATH": EVIL}
    made.gxx(f"/opt/{EVIL}/g++")
    made.write(f"/home/me/{EVIL}/be-toolchain.toml", "")
    made.plant(f"/home/me/{EVIL}")
    return made


@pytest.mark.filterwarnings("ignore::be_toolchain.settings.PassedOverWarning")
@pytest.mark.parametrize("words", ["which cxx", "env", "doctor --json", "doctor", "doctor --verbose"])
def test_what_is_for_programs_is_whole_but_on_a_terminal(capfdbinary: pytest.CaptureFixture[bytes], words: str):
    """The doctor is for people: it has its own colors there, and nothing else that steers anywhere."""
    cli.main(words.split(), system=machine())
    said = capfdbinary.readouterr().out
    if words == "doctor --json":
        assert json.loads(said)["toolchain"]["cxx"]["path"] == f"/opt/{EVIL}/g++"
        return
    if "doctor" in words:
        assert is_safe(said.decode())
        assert rb"\x1b]0;owned" in said
        assert b"BE_SAFE_FOLDERS" in said
    else:
        assert EVIL[:-1].encode() in said
    with contextlib.ExitStack() as stack:
        stack.enter_context(capfdbinary.disabled())
        terminal = stack.enter_context(Terminal())
        stack.enter_context(contextlib.redirect_stdout(stack.enter_context(terminal.file())))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        cli.main(words.split(), system=machine())
    shown = terminal.text.replace("\r\n", "\n")
    assert r"\x1b]0;owned" in shown
    if "doctor" in words:
        shown = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert is_safe(shown)


def test_the_progress_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    with capsys.disabled(), Terminal() as terminal, terminal.file() as file:
        monkeypatch.setattr("sys.stderr", file)
        with Progress(EVIL, [Edge(argv=("true",), inputs=(), outputs=(), description=EVIL, tool="compile")]):
            terminal.await_text(r"building \x1b]0;owned")
    assert r"built \x1b]0;owned" in terminal.text
    assert not [text for text in ("\x1b]0;", "\x9b", "\u202e", "\udc9b") if text in terminal.text]


def test_a_warning_about_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("be_runtime.store.folder.temporary_dirs", lambda: (tmp_path / "other",))
    usual = tmp_path / EVIL
    usual.write_text("")
    with pytest.warns(CacheWarning) as caught:
        usable_cache_dir(Settings(), LocalSystem({"HOME": str(usual)}))
    assert is_safe(str(caught[0].message))
