"""What killed installations left is swept, and said; what lives is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from be_toolchain.cli import main as cli
from be_toolchain.install.managed import ManagedStore
from be_toolchain.install.workplace import WORK, find_dead, make_workplace, sweep_dead
from tests.support.accounts import STRANGER, needs_root
from tests.support.machines import MemorySystem

HOLD = """
import sys, time
from pathlib import Path
from be_toolchain.install.managed import ManagedStore
from be_toolchain.install.workplace import make_workplace
with ManagedStore(Path(sys.argv[1])).stage() as stage, make_workplace() as work:
    for folder in (stage, work):
        (folder / "tree").mkdir()
        (folder / "tree" / "wheel").write_bytes(bytes(3_000_000))
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path / "tmp"


@pytest.fixture
def installer(tmp_path: Path, temporary: Path) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", HOLD, str(tmp_path / "store")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def machine(tmp_path: Path) -> MemorySystem:
    made = MemorySystem()
    made.environ = {**made.environ, "BE_TOOLCHAINS_DIR": str(tmp_path / "store")}
    made.gxx("/usr/bin/g++")
    return made


def left(tmp_path: Path) -> list[Path]:
    return [*(tmp_path / "store").glob(".*"), *(tmp_path / "tmp").iterdir()]


@pytest.mark.parametrize("command", [["list"], ["list", "--json"], ["prune"], ["install", "--dry-run"]])
def test_what_a_killed_installer_left_is_swept_and_said(
    tmp_path: Path, installer: subprocess.Popen[str], capsys: pytest.CaptureFixture[str], command: list[str]
):
    cli.main(command, system=machine(tmp_path))
    assert "removed" not in capsys.readouterr().err
    folders = left(tmp_path)
    assert len(folders) == 2
    installer.kill()
    installer.wait()
    cli.main(command, system=machine(tmp_path))
    said = capsys.readouterr().err
    assert all(f"removed {folder} (3 MB), left by an interrupted installation\n" in said for folder in folders)
    assert left(tmp_path) == []
    cli.main(command, system=machine(tmp_path))
    assert "removed" not in capsys.readouterr().err


def test_the_doctor_sweeps_and_says_it(
    tmp_path: Path, installer: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
):
    installer.kill()
    installer.wait()
    folders = left(tmp_path)
    cli.main(["doctor", "--json"], system=machine(tmp_path))
    rows = [row for row in json.loads(capsys.readouterr().out)["findings"] if row["subject"] == "leftovers"]
    assert {row["status"] for row in rows} == {"note"}
    assert all(any(str(folder) in row["message"] for row in rows) for folder in folders)
    assert left(tmp_path) == []


def test_a_maker_that_was_killed_before_its_lock_and_one_that_was_killed_while_it_removed(temporary: Path):
    (temporary / f"{WORK}before").mkdir()
    with make_workplace() as folder:
        (folder / "file").touch()
        copy = temporary / f"{WORK}while"
        copy.mkdir()
        (copy / "lock").touch()
        assert find_dead(temporary) == (temporary / f"{WORK}before", copy)
        assert len(sweep_dead(find_dead(temporary))) == 2
        assert sweep_dead([copy]) == ()
        assert list(temporary.iterdir()) == [folder]
    assert list(temporary.iterdir()) == []


def test_what_is_not_an_installers_stays(temporary: Path):
    for name in (f"{WORK}notes", "be-toolchain", "other"):
        (temporary / name).mkdir()
        (temporary / name / "text").touch()
    (temporary / f"{WORK}link").symlink_to(temporary / "other")
    assert find_dead(temporary) == ()
    assert find_dead(temporary / "absent") == ()


@needs_root
def test_what_is_another_users_stays(temporary: Path):
    folder = temporary / f"{WORK}theirs"
    folder.mkdir()
    (folder / "lock").touch()
    os.chown(folder, STRANGER, STRANGER)
    empty = temporary / f"{WORK}empty"
    empty.mkdir()
    os.chown(empty, STRANGER, STRANGER)
    assert find_dead(temporary) == ()
    assert sweep_dead([folder, empty]) == ()
    assert len(list(temporary.iterdir())) == 2


def test_a_removal_that_was_killed_is_swept(tmp_path: Path):
    aside = tmp_path / ".removed-x"
    (aside / "cuda-13.0.2").mkdir(parents=True)
    (aside / "lock").touch()
    assert ManagedStore(tmp_path).leftovers() == (aside,)


def test_sweeping_at_every_moment_takes_no_folder_that_lives(temporary: Path):
    done = threading.Event()

    def sweep() -> None:
        while not done.is_set():
            sweep_dead(temporary.glob(f"{WORK}*"))

    sweepers = [threading.Thread(target=sweep) for _ in range(2)]
    for thread in sweepers:
        thread.start()
    try:
        for turn in range(300):
            with make_workplace() as folder:
                (folder / "file").write_text(str(turn))
                assert (folder / "file").read_text() == str(turn)
                assert (folder / "lock").exists()
    finally:
        done.set()
        for thread in sweepers:
            thread.join()
    assert list(temporary.iterdir()) == []
