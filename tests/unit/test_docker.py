"""The script that builds images, and a container's entrypoint with folders that stand for /proc and /dev."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.docker import ROOT, load_script

script = load_script("docker/build.py")
DECLARED = script.declared_arguments((ROOT / "docker" / "Dockerfile").read_text())
GIB = 2**30


def test_the_dockerfile_s_arguments_are_found():
    assert {"BASE_IMAGE", "CUDA", "JAX", "PROJECT", "PREBUILD", "ARCHS", "VERSION", "REVISION"} <= DECLARED


def test_every_named_argument_is_one_of_the_dockerfile():
    words = ["aot", "--project", "p", "--prebuild", "k.py", "--archs", "9.0", "--build-arg", "MIN_DRIVER=570"]
    given = script.build_arguments(script.parse_arguments(words))
    script.check_arguments(given, DECLARED)
    assert {"PROJECT=p", "PREBUILD=k.py", "ARCHS=9.0", "MIN_DRIVER=570", "CUDA=wheels", "JAX=cpu"} <= set(given)


@pytest.mark.parametrize(("argument", "message"), [("COLOUR=red", "COLOUR is not known"), ("JAX", "has no value")])
def test_a_wrong_argument_is_refused_before_anything_is_built(argument: str, message: str):
    with pytest.raises(script.BuildProblemError, match=message):
        script.check_arguments([argument], DECLARED)


def test_pip_s_remote_settings_reach_the_build():
    listing = """
:env:.index-url='https://variable.example/simple'
:env:.no-input='1'
global.cert='/etc/ssl/bundle.pem'
global.extra-index-url='file:///srv/wheels https://more.example/simple'
global.find-links='/srv/wheels'
global.index-url='https://file.example/simple'
"""
    settings = script.pip_settings(listing)
    assert settings.certificate == "/etc/ssl/bundle.pem"
    assert settings.config.splitlines() == [
        "[global]",
        "index-url = https://variable.example/simple",
        "extra-index-url = https://more.example/simple",
    ]


def test_without_settings_pip_has_its_defaults():
    assert script.pip_settings("") == ("[global]\n", "")


def test_a_disk_with_room_is_no_problem():
    assert script.space_problem(7 * GIB, 6, "/var/lib/docker") is None


def test_a_full_disk_is_named_with_both_sizes():
    problem = str(script.space_problem(int(1.5 * GIB), 6, "/var/lib/docker"))
    assert "about 6 GiB, and /var/lib/docker has 1.5" in problem
    assert "hint: " in problem


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        ("#9 0.2 error: CUDA=x is not known\n#9 0.3 hint: it is wheels\n", "CUDA=x is not known\nhint: it is wheels"),
        ("write /var/lib/docker/x: no space left on device", "the engine's disk is full"),
        ("ERROR: pull access denied for x", "the base image x:1 is neither on this machine nor in a registry"),
        ('runc: exec: "/bin/sh": stat /bin/sh: no such file', "the base image x:1 has no shell"),
        ("the --mount option requires BuildKit", "builds without BuildKit"),
    ],
)
def test_a_failed_build_is_explained(output: str, meaning: str):
    assert meaning in script.explain(output, "x:1")


def test_what_is_not_understood_is_not_explained():
    assert script.explain("something else\n", "x:1") is None


def test_no_client_is_no_engine():
    with pytest.raises(script.BuildProblemError, match="no docker on PATH"):
        script.find_engine({"PATH": "/nowhere"})


def test_a_client_without_an_engine_is_passed_over_for_one_that_has_one(tmp_path: Path):
    for name, body in (("old", "exit 1"), ("new", 'echo "20.10.1 20.10.1"')):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "docker").write_text(f"#!/bin/sh\n{body}\n")
        (folder / "docker").chmod(0o755)
    found = script.find_engine({"PATH": f"{tmp_path}/old:{tmp_path}/new"})
    assert found == f"{tmp_path}/new/docker"


def test_a_client_that_cannot_build_says_what_it_lacks(tmp_path: Path):
    (tmp_path / "docker").write_text('#!/bin/sh\n[ "$1" = version ] && echo "28.2.2 20.10.1"\n')
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(script.BuildProblemError, match="has no buildx"):
        script.find_engine({"PATH": str(tmp_path)})


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
