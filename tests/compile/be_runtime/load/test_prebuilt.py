"""Modules exported by one process and loaded by another that has no compiler and can't write anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import be_runtime
from tests.compile.be_runtime.load.sources import source
from tests.support.runtime import environment

SOURCE = source(f="FACTOR")
SCRIPT = f"""
import sys
import jax, numpy as np
import be_runtime
module = be_runtime.load_cpp_inline("prebuilt", {SOURCE!r}, extra_cflags=sys.argv[1:])
print(module.path, jax.ffi.ffi_call("prebuilt.f", jax.ShapeDtypeStruct((), np.int32))())
"""


def run(folder: Path, flag: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a process of its own, without compilers and a cache."""
    environ = environment(BE_PREBUILT_DIR=str(folder), BE_CACHE_DIR="/proc/no-cache", PATH="/nowhere", CXX="")
    command = (sys.executable, "-c", SCRIPT, flag)
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_it_is_found_or_the_error_says_what_is_missing(
    tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    """A module that is live from the cache is not another one when it comes prebuilt."""
    folder = tmp_path / "prebuilt"
    first = be_runtime.load_cpp_inline("prebuilt", SOURCE, extra_cflags=["-DFACTOR=3"])
    be_runtime.export_prebuilt(folder)
    done = run(folder, "-DFACTOR=3")
    assert done.returncode == 0, done.stderr
    path, number = done.stdout.split()
    assert (Path(path).is_relative_to(folder), number) == (True, "3")
    missing = run(folder, "-DFACTOR=4")
    assert missing.returncode == 1
    assert "HostCompilerNotFoundError" in missing.stderr
    assert "prebuilt is there with other cflags" in missing.stderr
    monkeypatch.setenv("BE_PREBUILT_DIR", str(folder))
    second = be_runtime.load_cpp_inline("prebuilt", SOURCE, extra_cflags=["-DFACTOR=3"])
    forced = be_runtime.load_cpp_inline("prebuilt", SOURCE, extra_cflags=["-DFACTOR=3"], force_rebuild=True)
    assert second.path.is_relative_to(folder)
    assert first.path.is_relative_to(tmp_cache)
    assert forced.path.is_relative_to(tmp_cache)
