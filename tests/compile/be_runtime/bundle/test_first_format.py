"""Files of the first release, in tests/data/format1: all releases that read format 1 and ABI 1 run them."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.compile.be_runtime.processes import python
from tests.support.requirements import OPTIONAL
from tests.support.runtime import ROOT

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
    bare: dict[str, Any] = {"BE_JIT": "never", "BE_CACHE_DIR": "/proc/none", "PATH": "/nowhere"}
    said = python(tmp_path / "files", "-c", SCRIPT, **bare).stdout
    assert json.loads(said) == [[1, 4, 7, 10], [0.5, 3.5, 6.5, 9.5]]
