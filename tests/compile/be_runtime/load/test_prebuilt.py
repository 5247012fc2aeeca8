"""Modules exported by one process and loaded by another that has no compiler and can't write anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import be_runtime
from tests.support.runtime import environment

SCRIPT = """
import json, sys
import jax, numpy as np
import be_runtime

SOURCE = r'''
#include "brainevent/common.h"
// @BE triple
void triple(const BE::Tensor x, BE::Tensor y) { y.data_ptr<float>()[0] = FACTOR * x.data_ptr<float>()[0]; }
'''
flags, export = json.loads(sys.argv[1]), sys.argv[2:]
module = be_runtime.load_cpp_inline("prebuilt_triple", SOURCE, extra_cflags=flags)
if export:
    be_runtime.export_prebuilt(export[0])
call = jax.ffi.ffi_call("prebuilt_triple.triple", jax.ShapeDtypeStruct((), np.float32))
print(json.dumps([str(module.path), float(call(np.float32(2.0)))]))
"""


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a process of its own."""
    command = (sys.executable, "-c", SCRIPT, json.dumps(["-DFACTOR=3"]), *arguments)
    return subprocess.run(command, env=environment(**environ), capture_output=True, text=True, check=False)


def exported(tmp_path: Path) -> Path:
    """A folder with the script's module."""
    folder = tmp_path / "prebuilt"
    done = run(str(folder), BE_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    return folder


def test_it_loads_without_a_compiler_or_a_usable_cache(tmp_path: Path):
    folder = exported(tmp_path)
    done = run(BE_PREBUILT_DIR=str(folder), BE_CACHE_DIR="/proc/no-cache", PATH="/nowhere", CXX="")
    assert done.returncode == 0, done.stderr
    path, value = json.loads(done.stdout)
    assert Path(path).is_relative_to(folder)
    assert value == 6.0


def test_without_a_compiler_the_error_says_which_module_is_missing(tmp_path: Path):
    folder = exported(tmp_path)
    command = (sys.executable, "-c", SCRIPT, json.dumps(["-DFACTOR=4"]))
    environ = environment(BE_PREBUILT_DIR=str(folder), BE_CACHE_DIR=str(tmp_path / "other"), PATH="/nowhere", CXX="")
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "HostCompilerNotFoundError" in done.stderr
    assert "prebuilt_triple is there with other cflags" in done.stderr


def test_both_ways_lead_to_the_same_target(tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    """A module that is live from the cache is not another one when it comes prebuilt."""
    source = '#include "brainevent/common.h"\n// @BE f\nvoid f(BE::Tensor y) { y.data_ptr<float>()[0] = 1; }\n'
    first = be_runtime.load_cpp_inline("prebuilt_same", source)
    be_runtime.export_prebuilt(tmp_path / "prebuilt")
    monkeypatch.setenv("BE_PREBUILT_DIR", str(tmp_path / "prebuilt"))
    second = be_runtime.load_cpp_inline("prebuilt_same", source)
    assert first.path.is_relative_to(tmp_cache)
    assert second.path.is_relative_to(tmp_path / "prebuilt")
    forced = be_runtime.load_cpp_inline("prebuilt_same", source, force_rebuild=True)
    assert forced.path.is_relative_to(tmp_cache)
