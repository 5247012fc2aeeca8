"""A reader that ends early, as ``head`` does, closed or full streams, and Ctrl-C are no defects."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from be_toolchain.cli import main as cli
from be_toolchain.report.exit_codes import INTERRUPTED_BY_USER, NOT_WRITTEN, READER_GONE
from tests.support.machines import healthy

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        *((words, "") for words in ("", "doctor --help", "doctor --json", "which cxx", "env", "list")),
        *(("completion bash", unbuffered) for unbuffered in ("", "1")),
    ],
)
def test_nobody_reads(arguments: str, unbuffered: str, tmp_path: Path):
    """With and without a buffer: Python's own flush at the exit has nothing to complain about."""
    read, write = os.pipe()
    os.close(read)
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "be_toolchain", *arguments.split()],
        env=environment | {"PYTHONUNBUFFERED": unbuffered},
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (READER_GONE, "")


def test_nobody_reads_the_errors_either(tmp_path: Path):
    read, write = os.pipe()
    os.close(read)
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(tmp_path), "BE_CXX": "/gone"}
    command = [sys.executable, "-m", "be_toolchain", "which", "cxx"]
    assert subprocess.run(command, env=environment, stdout=write, stderr=write, check=False).returncode == READER_GONE
    os.close(write)


@pytest.mark.parametrize("arguments", ["", "which cxx", "doctor", "doctor --json"])
def test_closed_streams_change_no_verdict(arguments: str, tmp_path: Path):
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = f"{sys.executable} -m be_toolchain {arguments}"
    usual, no_output, nothing = (
        subprocess.run(["sh", "-c", command + closed], env=environment, capture_output=True, text=True, check=False)
        for closed in ("", " >&-", " <&- >&- 2>&-")
    )
    assert usual.returncode == no_output.returncode == nothing.returncode
    assert not no_output.stderr


@pytest.mark.parametrize(("arguments", "unbuffered"), [("", ""), ("doctor", ""), ("doctor", "1")])
def test_a_full_disk_is_no_defect(arguments: str, unbuffered: str, tmp_path: Path):
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "be_toolchain", *arguments.split()]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command,
            env=environment | {"PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (NOT_WRITTEN, "can't write: [Errno 28] No space left on device\n")


def test_ctrl_c_ends_a_search_with_a_word(tmp_path: Path):
    """The compiler that hangs is stopped with it."""
    hanging = tmp_path / "g++"
    hanging.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/started\nexec sleep 60\n")
    hanging.chmod(0o755)
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(tmp_path), "BE_CXX": str(hanging)}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "be_toolchain", "doctor"], env=environment, stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 30
    while not (tmp_path / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (INTERRUPTED_BY_USER, "interrupted\n")


def test_a_defect_is_still_called_one(capsys: pytest.CaptureFixture[str]):
    machine = healthy()
    machine.site_dirs = None  # type: ignore[assignment]
    assert cli.main(["doctor"], system=machine) == 3
    assert "internal error of be_toolchain" in capsys.readouterr().err
