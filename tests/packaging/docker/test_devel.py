"""The image with compilers, run as its users run it."""

from __future__ import annotations

import json
import time
import uuid

import pytest

from tests.support.docker import KERNELS, RESTRICTED, Engine
from tests.support.requirements import OPTIONAL

pytestmark = pytest.mark.xdist_group("docker")

CACHE = ("--tmpfs", "/var/cache/be:exec,mode=1777")


def test_the_example_trains(engine: Engine, devel: str):
    done = engine("run", "--rm", devel, "python", "train.py", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert all(check["passed"] for check in report["checks"])
    assert report["losses"][-1] < report["losses"][0] / 5


def test_the_doctor_finds_everything_for_builds(engine: Engine, devel: str):
    done = engine("run", "--rm", devel, "doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert isinstance(json.loads(done.stdout), dict)


def test_kernels_are_compiled_by_any_user_without_network_or_rights(engine: Engine, devel: str):
    done = engine(*RESTRICTED, *CACHE, "-i", devel, "python", "-", text_in=KERNELS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "4711 be 8.0 ['one']\n"


def test_a_stopped_container_ends_by_the_first_signal(engine: Engine, devel: str):
    name = f"be-tests-{uuid.uuid4().hex[:8]}"
    sleeper = "import time; print('ready', flush=True); time.sleep(60)"
    assert engine("run", "--detach", "--name", name, devel, "python", "-c", sleeper).returncode == 0
    try:
        while "ready" not in engine("logs", name).stdout:
            time.sleep(0.05)
        engine("stop", "--time", "20", name)
        assert engine("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip() == "143", "SIGTERM"
    finally:
        engine("rm", "--force", name)


def test_the_exit_status_is_the_program_s(engine: Engine, devel: str):
    assert engine("run", "--rm", devel, "python", "-c", "raise SystemExit(7)").returncode == 7


def test_a_missing_gpu_and_a_read_only_cache_are_explained(engine: Engine, devel: str):
    done = engine(*RESTRICTED, devel, "python", "-c", "import os; print(os.environ.get('BE_CACHE_DIR'))")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "None\n"
    assert "no NVIDIA GPU is visible" in done.stderr
    assert "the cache folder /var/cache/be can't be written" in done.stderr


def test_a_noexec_cache_is_explained_and_another_is_used(engine: Engine, devel: str):
    mounts = ("--tmpfs", "/var/cache/be:mode=1777", "--tmpfs", "/tmp:exec,mode=1777")  # noqa: S108 - in a container
    done = engine(*RESTRICTED, *mounts, "-i", devel, "python", "-", text_in=KERNELS)
    assert done.returncode == 0, done.stderr
    assert "the cache folder /var/cache/be is mounted noexec" in done.stderr
    assert done.stdout.endswith("8.0 ['one']\n")


def test_quiet_is_quiet(engine: Engine, devel: str):
    done = engine("run", "--rm", "--env", "BE_QUIET=1", devel, "true")
    assert (done.stdout, done.stderr) == ("", "")


def test_gpus_are_asked_for_with_what_the_image_needs(engine: Engine, devel: str):
    """The engine hands ``--gpus`` to NVIDIA's hook; a stand-in for it notes what it is told."""
    if engine.hook_record is None:
        pytest.skip(f"{OPTIONAL}an engine started here, which knows the stand-in for NVIDIA's hook")
    engine.hook_record.unlink(missing_ok=True)
    done = engine("run", "--rm", "--gpus", "all", devel, "true")
    assert done.returncode == 0, done.stderr
    told = set(engine.hook_record.read_text().split())
    assert {"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"} <= told
    assert "NVIDIA_DISABLE_REQUIRE=true" in told
