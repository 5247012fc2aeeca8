"""What a container's entrypoint says, with folders that stand for /proc and /dev."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.docker import ROOT

ENTRYPOINT = ROOT / "docker" / "entrypoint.sh"
OPEN = "NVIDIA UNIX Open Kernel Module for x86_64  {}.95.05  Release Build  (builder@host)  Tue Sep 23 2025"
CLOSED = "NVIDIA UNIX x86_64 Kernel Module  {}.129.03  Thu Oct 19 18:56:32 UTC 2023"
SHOW = ("sh", "-c", 'echo "$BE_CACHE_DIR $HOME"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a container sees of its host."""

    proc: Path
    dev: Path
    cache: Path

    def mount(self, point: str | Path, options: str) -> None:
        """Add a file system."""
        with (self.proc / "mounts").open("a") as file:
            file.write(f"tmpfs {point} tmpfs {options} 0 0\n")

    def gpu(self, version: str) -> None:
        """A GPU, and what its driver says of itself."""
        (self.dev / "nvidiactl").touch()
        folder = self.proc / "driver" / "nvidia"
        folder.mkdir(parents=True)
        (folder / "version").write_text(
            f"NVRM version: {version}\nGCC version:  gcc version 13.3.0 (Debian 13.3.0-6)\n"
        )

    def run(self, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command through the entrypoint."""
        named = {"BE_PROC": str(self.proc), "BE_DEV": str(self.dev), "BE_CACHE_DIR": str(self.cache)}
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return subprocess.run(
            ("sh", str(ENTRYPOINT), *command),
            env=inherited | named | {"BE_MIN_DRIVER": "580"} | environ,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    found = Machine(proc=tmp_path / "proc", dev=tmp_path / "dev", cache=tmp_path / "cache" / "be")
    for folder in (found.proc, found.dev, found.cache):
        folder.mkdir(parents=True)
    found.mount("/", "rw,relatime")
    return found


def test_with_all_in_order_it_says_nothing(machine: Machine):
    machine.gpu(OPEN.format(580))
    done = machine.run(*SHOW)
    assert done.stderr == ""
    assert done.stdout == f"{machine.cache} {os.environ['HOME']}\n"


def test_no_gpu_is_explained(machine: Machine):
    assert "--gpus all" in machine.run("true").stderr


@pytest.mark.parametrize("version", [OPEN, CLOSED], ids=["open", "closed"])
def test_an_old_driver_is_named_with_what_is_needed(machine: Machine, version: str):
    machine.gpu(version.format(535))
    said = machine.run("true").stderr
    assert "driver 535 is older than 580" in said
    assert "--gpus all" not in said


def test_a_driver_whose_version_is_not_understood_is_let_be(machine: Machine):
    machine.gpu("of another shape 86")
    assert machine.run("true").stderr == ""


def test_windows_has_its_gpu_elsewhere(machine: Machine):
    (machine.dev / "dxg").touch()
    assert machine.run("true").stderr == ""


@pytest.mark.parametrize("point", ["", "/be"])
def test_a_noexec_cache_is_given_up(machine: Machine, point: str):
    machine.mount(f"{machine.cache.parent}{point}", "rw,nosuid,noexec")
    done = machine.run(*SHOW)
    assert f"the cache folder {machine.cache} is mounted noexec" in done.stderr
    assert done.stdout.startswith(" ")


def test_the_mount_that_is_nearest_counts(machine: Machine):
    machine.mount(machine.cache, "rw")
    machine.mount(machine.cache.parent, "rw,noexec")
    machine.mount(f"{machine.cache}-other", "rw,noexec")
    assert "noexec" not in machine.run("true").stderr


def test_a_mount_whose_name_only_begins_alike_does_not_count(machine: Machine):
    machine.mount(str(machine.cache)[:-1], "rw,noexec")
    assert "noexec" not in machine.run("true").stderr


def test_a_home_that_cannot_be_written_is_replaced(machine: Machine):
    assert machine.run(*SHOW, HOME="/nowhere").stdout == f"{machine.cache} /tmp\n"


def test_the_cache_serves_where_there_is_no_temporary_folder(machine: Machine):
    show = ("sh", "-c", 'echo "$TMPDIR"')
    assert machine.run(*show, TMPDIR="/nowhere").stdout == f"{machine.cache}\n"
    assert machine.run(*show, TMPDIR=str(machine.dev)).stdout == f"{machine.dev}\n"


def test_quiet(machine: Machine):
    assert machine.run("true", BE_QUIET="1").stderr == ""


def test_the_command_s_exit_status_is_kept(machine: Machine):
    assert machine.run("sh", "-c", "exit 7").returncode == 7


def test_arguments_stay_as_they_are(machine: Machine):
    assert machine.run("printf", "[%s]", "a b", "*", "$HOME").stdout == "[a b][*][$HOME]"


def test_the_doctor_is_a_command(machine: Machine, tmp_path: Path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    done = machine.run("doctor", "--json", PATH=f"{python.parent}:{os.environ['PATH']}")
    assert done.stdout == "-m be_toolchain doctor --json\n"
