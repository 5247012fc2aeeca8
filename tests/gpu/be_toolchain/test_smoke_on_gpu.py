"""The doctor's trials with a device: a CUDA program that runs, and a CUDA kernel called from JAX."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_smoke_runs_on_the_device():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, "-m", "be_toolchain", "doctor", "--smoke", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/", check=False)
    report = json.loads(done.stdout)
    outcomes = {trial["name"]: trial["outcome"] for trial in report["smoke"]}
    names = ("C++", "CUDA", "FFI on the CPU", "FFI on the GPU")
    assert outcomes == dict.fromkeys(names, "ok"), report["smoke"]
    assert done.returncode == 0
    assert report["devices"]["devices"]
