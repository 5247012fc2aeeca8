"""The doctor's trials with a device: a CUDA program that runs, and a CUDA kernel called from JAX."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.runtime import environment


def test_smoke_runs_on_the_device():
    command = [sys.executable, "-m", "be_toolchain", "doctor", "--smoke", "--json"]
    environ = environment(JAX_PLATFORMS=None, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    done = subprocess.run(command, env=environ, capture_output=True, text=True, cwd="/", check=False)
    report = json.loads(done.stdout)
    outcomes = {trial["name"]: trial["outcome"] for trial in report["smoke"]}
    names = ("C++", "CUDA", "FFI on the CPU", "FFI on the GPU")
    assert outcomes == dict.fromkeys(names, "ok"), report["smoke"]
    assert done.returncode == 0
    assert report["devices"]["devices"]
