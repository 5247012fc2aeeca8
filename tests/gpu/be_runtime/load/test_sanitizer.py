"""Our kernels under compute-sanitizer: no access outside an array, no race in shared memory.

The launchers are called from a Python without JAX, whose thousands of kernels would take minutes under the tool.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.cuda import load_exercise
from tests.support.requirements import OPTIONAL

FOUND = 77
CALL = "import ctypes, sys; sys.exit(max(ctypes.CDLL(path).exercise() for path in sys.argv[1:]))"


def sanitize(tool: str, *names: str) -> subprocess.CompletedProcess[str]:
    paths = [str(load_exercise(name).path) for name in names]
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND), sys.executable, "-S", "-c", CALL]
    return subprocess.run([*command, *paths], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.needs("compute-sanitizer")
def test_kernels_are_clean():
    planted = sanitize("memcheck", "out_of_bounds")
    if "Invalid __global__ write" not in planted.stdout + planted.stderr:
        pytest.skip(f"{OPTIONAL}a compute-sanitizer that works: {planted.stdout[-300:]} {planted.stderr[-300:]}")
    assert planted.returncode == FOUND
    for tool, summary in (("memcheck", "ERROR SUMMARY: 0 errors"), ("racecheck", "RACECHECK SUMMARY: 0 hazards")):
        done = sanitize(tool, "training", "events", "styles")
        assert done.returncode == 0, done.stdout + done.stderr
        assert summary in done.stdout + done.stderr, done.stdout + done.stderr
