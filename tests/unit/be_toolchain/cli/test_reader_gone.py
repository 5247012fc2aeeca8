"""A reader that ends early, as ``head`` does, closed or full streams, and Ctrl-C are no defects."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from be_toolchain.terminal import INTERRUPTED_BY_USER, NOT_WRITTEN, READER_GONE
from tests.support.requirements import in_full

ROOT = Path(__file__).parents[4]


def start(home: Path, words: str, closed: str = "", out: IO[str] | int = subprocess.PIPE, **environ: str):
    """The command in a process, with a shell's way to close streams."""
    plain = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(home)}
    command = f"exec {sys.executable} -m be_toolchain {words}{closed}"
    return subprocess.Popen(["sh", "-c", command], env=plain | environ, stdout=out, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("words", "closed", "environ"),
    [
        *((words, "", {}) for words in ("which cxx", "doctor --json")),
        *(in_full(words, "", {}) for words in ("", "doctor --help", "env", "list", "completion bash")),
        ("completion bash", "", {"PYTHONUNBUFFERED": "1"}),
        ("which cxx", " 2>&1", {"BE_CXX": "/gone"}),
    ],
)
def test_nobody_reads(words: str, closed: str, environ: dict[str, str], tmp_path: Path):
    """With and without a buffer, and of the errors either: Python's own flush at the exit has nothing to say."""
    read, write = os.pipe()
    os.close(read)
    process = start(tmp_path, words, closed, out=write, **environ)
    os.close(write)
    assert (process.communicate()[1], process.returncode) == ("", READER_GONE)


@pytest.mark.parametrize("words", ["which cxx", "doctor", in_full(""), in_full("doctor --json")])
def test_closed_streams_change_no_verdict(words: str, tmp_path: Path):
    done = [start(tmp_path, words, closed) for closed in ("", " >&-", " <&- >&- 2>&-")]
    errors = [process.communicate()[1] for process in done]
    assert len({process.returncode for process in done}) == 1
    assert not errors[1]


@pytest.mark.parametrize(
    ("words", "unbuffered"), [in_full("", ""), in_full("doctor", ""), ("which cxx", "1"), ("", "")]
)
def test_a_full_disk_is_no_defect(words: str, unbuffered: str, tmp_path: Path):
    with Path("/dev/full").open("w") as full:
        process = start(tmp_path, words, out=full, PYTHONUNBUFFERED=unbuffered)
    assert process.communicate()[1] == "error: can't write: [Errno 28] No space left on device\n"
    assert process.returncode == NOT_WRITTEN


def test_ctrl_c_ends_a_search_with_a_word(tmp_path: Path):
    """The compiler that hangs is stopped with the search, both times that it was started."""
    pids = tmp_path / "pids"
    pids.touch()
    hanging = tmp_path / "g++"
    hanging.write_text(f"#!/bin/sh\necho $$ >> {pids}\nexec sleep 60\n")
    hanging.chmod(0o755)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        process = start(tmp_path, "doctor", " >/dev/null", BE_CXX=str(hanging))
    finally:
        signal.signal(signal.SIGINT, before)
    calm = 0  # samples in which the main thread sleeps: on a busy machine it starts the second compiler for some time
    while calm < 10:
        has_both, state = pids.read_text().count("\n") == 2, Path(f"/proc/{process.pid}/stat").read_text()
        calm = calm + 1 if has_both and state.rpartition(") ")[2].startswith("S") else 0
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (INTERRUPTED_BY_USER, "interrupted\n")
    assert [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()] == []
