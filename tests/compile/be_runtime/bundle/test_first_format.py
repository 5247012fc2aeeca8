"""Files of the first release, in tests/data/format1: all releases that read format 1 and ABI 1 run them."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.requirements import OPTIONAL
from tests.support.runtime import ROOT, environment

FILES = ROOT / "tests" / "data" / "format1"
SCRIPT = """
import json, jax.numpy as jnp, be_runtime, first_release
x = jnp.arange(4.0)
program = be_runtime.load_exported("first_release.be")
print(json.dumps([first_release.ops.thrice(x).tolist(), program.call(x).tolist()]))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason=f"{OPTIONAL}the machine that the files were made on")
def test_files_of_the_first_release_are_read(tmp_path: Path):
    shutil.copytree(FILES, tmp_path / "files")
    bare = environment(BE_JIT="never", BE_CACHE_DIR="/proc/none", PATH="/nowhere")
    command = (sys.executable, "-c", SCRIPT)
    done = subprocess.run(command, cwd=tmp_path / "files", env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[1, 4, 7, 10], [0.5, 3.5, 6.5, 9.5]]
