"""What killed installations left is swept, and said; what lives is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from be_toolchain.cli import main as cli
from be_toolchain.install.managed import ManagedStore
from be_toolchain.install.workplace import WORK, find_dead, make_workplace, sweep_dead
from tests.support.accounts import STRANGER, needs_root
from tests.support.machines import MemorySystem

HOLD = """
import sys
from pathlib import Path
from be_toolchain.install.managed import ManagedStore
from be_toolchain.install.workplace import make_workplace
with ManagedStore(Path(sys.argv[1])).stage() as stage, make_workplace() as work:
    for folder in (stage, work):
        (folder / "tree").mkdir()
        (folder / "tree" / "wheel").write_bytes(bytes(3_000_000))
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path / "tmp"


@pytest.fixture
def machine(tmp_path: Path) -> MemorySystem:
    made = MemorySystem()
    made.environ = {**made.environ, "BE_TOOLCHAINS_DIR": str(tmp_path / "store")}
    made.gxx("/usr/bin/g++")
    return made


def left(tmp_path: Path) -> list[Path]:
    return [*(tmp_path / "store").glob(".*"), *(tmp_path / "tmp").iterdir()]


def test_what_an_installer_holds_stays_until_it_is_killed(
    tmp_path: Path, temporary: Path, machine: MemorySystem, capsys: pytest.CaptureFixture[str]
):
    argv = [sys.executable, "-c", HOLD, str(tmp_path / "store")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as installer:
        assert installer.stdout is not None
        assert installer.stdout.readline() == "ready\n"
        cli.main(["prune"], system=machine)
        assert "removed" not in capsys.readouterr().err
        folders = left(tmp_path)
        assert len(folders) == 2
        installer.kill()
    cli.main(["prune"], system=machine)
    said = capsys.readouterr().err
    assert all(f"removed {folder} (3 MB), left by an interrupted installation\n" in said for folder in folders)
    assert left(tmp_path) == []


@pytest.mark.parametrize("words", ["list", "list --json", "prune", "install --dry-run", "doctor --json"])
def test_each_command_sweeps_and_says_it(
    tmp_path: Path, temporary: Path, machine: MemorySystem, capsys: pytest.CaptureFixture[str], words: str
):
    folders = [tmp_path / "store" / ".staging-x", tmp_path / "store" / ".removed-x", temporary / f"{WORK}x"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "lock").touch()
    cli.main(words.split(), system=machine)
    captured = capsys.readouterr()
    said = captured.err
    if words == "doctor --json":
        rows = [row for row in json.loads(captured.out)["findings"] if row["subject"] == "leftovers"]
        assert {row["status"] for row in rows} == {"note"}
        said = "".join(row["message"] for row in rows)
    assert [folder for folder in folders if str(folder) not in said] == []
    assert left(tmp_path) == []
    cli.main(words.split(), system=machine)
    assert "left by an interrupted" not in "".join(capsys.readouterr())


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
    with ManagedStore(temporary).stage():
        assert ManagedStore(temporary).leftovers() == ()


def test_what_is_not_an_installers_stays(temporary: Path):
    for name in (f"{WORK}notes", "be-toolchain", "other"):
        (temporary / name).mkdir()
        (temporary / name / "text").touch()
    (temporary / f"{WORK}link").symlink_to(temporary / "other")
    assert find_dead(temporary) == ()
    assert find_dead(temporary / "absent") == ()


@needs_root
def test_what_is_another_users_stays(temporary: Path):
    folders = [temporary / f"{WORK}{name}" for name in ("theirs", "empty")]
    for folder in folders:
        folder.mkdir()
        os.chown(folder, STRANGER, STRANGER)
    (folders[0] / "lock").touch()
    assert find_dead(temporary) == sweep_dead(folders) == ()
    assert len(list(temporary.iterdir())) == 2


def test_sweeping_at_every_moment_takes_no_folder_that_lives(temporary: Path):
    done = threading.Event()

    def sweep() -> None:
        while not done.is_set():
            sweep_dead(temporary.glob(f"{WORK}*"))

    sweepers = [threading.Thread(target=sweep) for _ in range(2)]
    for thread in sweepers:
        thread.start()
    try:
        for turn in range(100):
            with make_workplace() as folder:
                (folder / "file").write_text(str(turn))
                assert (folder / "file").read_text() == str(turn)
                assert (folder / "lock").exists()
    finally:
        done.set()
        for thread in sweepers:
            thread.join()
    assert list(temporary.iterdir()) == []
