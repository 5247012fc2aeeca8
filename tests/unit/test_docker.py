"""The script that builds images, and a container's entrypoint with folders that stand for /proc and /dev."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.docker import ROOT, load_script

script = load_script("docker/build.py")
DECLARED = script.declared_arguments((ROOT / "docker" / "Dockerfile").read_text())
GIB = 2**30


def test_every_named_argument_is_one_of_the_dockerfile():
    assert {"BASE_IMAGE", "CUDA", "JAX", "PROJECT", "PREBUILD", "ARCHS", "VERSION", "REVISION"} <= DECLARED
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
    assert script.pip_settings("") == ("[global]\n", "")
    assert settings.config.splitlines() == [
        "[global]",
        "index-url = https://variable.example/simple",
        "extra-index-url = https://more.example/simple",
    ]


def test_a_full_disk_is_named_with_both_sizes():
    assert script.space_problem(7 * GIB, 6, "/var/lib/docker") is None
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
        ("something else\n", None),
    ],
)
def test_a_failed_build_is_explained(output: str, meaning: str | None):
    said = script.explain(output, "x:1")
    assert said is None if meaning is None else meaning in said


def test_a_client_is_taken_that_has_an_engine_and_can_build(tmp_path: Path):
    answers = {"old": "exit 1", "new": 'echo "20.10.1 20.10.1"', "bare": '[ "$1" = version ] && echo "28.2.2 20.10.1"'}
    for name, answer in answers.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "docker").write_text(f"#!/bin/sh\n{answer}\n")
        (tmp_path / name / "docker").chmod(0o755)
    assert script.find_engine({"PATH": f"{tmp_path}/old:{tmp_path}/new"}) == f"{tmp_path}/new/docker"
    for path, message in (("/nowhere", "no docker on PATH"), (f"{tmp_path}/bare", "has no buildx")):
        with pytest.raises(script.BuildProblemError, match=message):
            script.find_engine({"PATH": path})


ENTRYPOINT = ROOT / "docker" / "entrypoint.sh"
OPEN = "NVIDIA UNIX Open Kernel Module for x86_64  {}.95.05  Release Build  (builder@host)  Tue Sep 23 2025"
CLOSED = "NVIDIA UNIX x86_64 Kernel Module  {}.129.03  Thu Oct 19 18:56:32 UTC 2023"
SHOW = ("sh", "-c", 'echo "$BE_CACHE_DIR $HOME"')


class Machine(NamedTuple):
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
        (self.proc / "driver" / "nvidia").mkdir(parents=True)
        text = f"NVRM version: {version}\nGCC version:  gcc version 13.3.0 (Debian 13.3.0-6)\n"
        (self.proc / "driver" / "nvidia" / "version").write_text(text)

    def run(self, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command through the entrypoint."""
        named = {"BE_PROC": str(self.proc), "BE_DEV": str(self.dev), "BE_CACHE_DIR": str(self.cache)}
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environ = {**inherited, **named, "BE_MIN_DRIVER": "580", **environ}
        words = ("sh", str(ENTRYPOINT), *command)
        return subprocess.run(words, env=environ, capture_output=True, text=True, check=False)


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


@pytest.mark.parametrize(
    ("version", "environ", "says"),
    [
        ("", {}, "--gpus all"),
        ("", {"BE_QUIET": "1"}, ""),
        (OPEN.format(580), {}, ""),
        (OPEN.format(535), {}, "driver 535 is older than 580"),
        (CLOSED.format(535), {}, "driver 535 is older than 580"),
        ("of another shape 86", {}, ""),
    ],
)
def test_a_gpu_that_is_missing_or_whose_driver_is_old_is_explained(
    machine: Machine, version: str, environ: dict[str, str], says: str
):
    if version:
        machine.gpu(version)
    said = machine.run("true", **environ).stderr
    assert says in said
    assert bool(said) == bool(says)
    assert ("--gpus all" in said) == ("--gpus all" in says)


def test_windows_has_its_gpu_elsewhere(machine: Machine):
    (machine.dev / "dxg").touch()
    assert machine.run("true").stderr == ""


@pytest.mark.parametrize("point", ["", "/be"])
def test_a_noexec_cache_is_given_up(machine: Machine, point: str):
    machine.mount(f"{machine.cache.parent}{point}", "rw,nosuid,noexec")
    done = machine.run(*SHOW)
    assert f"the cache folder {machine.cache} is mounted noexec" in done.stderr
    assert done.stdout.startswith(" ")


def test_the_mount_that_is_nearest_counts_and_none_whose_name_only_begins_alike(machine: Machine):
    machine.mount(machine.cache, "rw")
    for other in (machine.cache.parent, f"{machine.cache}-other", str(machine.cache)[:-1]):
        machine.mount(other, "rw,noexec")
    assert "noexec" not in machine.run("true").stderr


def test_a_home_that_cannot_be_written_is_replaced(machine: Machine):
    assert machine.run(*SHOW, HOME="/nowhere").stdout == f"{machine.cache} /tmp\n"


def test_the_cache_serves_where_there_is_no_temporary_folder(machine: Machine):
    show = ("sh", "-c", 'echo "$TMPDIR"')
    assert machine.run(*show, TMPDIR="/nowhere").stdout == f"{machine.cache}\n"
    assert machine.run(*show, TMPDIR=str(machine.dev)).stdout == f"{machine.dev}\n"


def test_the_command_s_exit_status_and_arguments_stay_as_they_are(machine: Machine):
    assert machine.run("sh", "-c", "exit 7").returncode == 7
    assert machine.run("printf", "[%s]", "a b", "*", "$HOME").stdout == "[a b][*][$HOME]"


def test_the_doctor_is_a_command(machine: Machine, tmp_path: Path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    done = machine.run("doctor", "--json", PATH=f"{python.parent}:{os.environ['PATH']}")
    assert done.stdout == "-m be_toolchain doctor --json\n"
