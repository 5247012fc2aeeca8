"""Checked calls of GPUs with a pretended driver: memory, the held stream and faults."""

from __future__ import annotations

import subprocess
from pathlib import Path

from be_runtime.own_files import INCLUDE_DIR, NATIVE_DIR
from be_runtime.xla import jax_port
from tests.support.runtime import real_compiler

HERE = Path(__file__).parent


def test_each_call(tmp_path: Path):
    """One that is right, one outside of its stream, one that skips an element, one that can't be recorded, a fault.

    After the fault the GPU's context is lost.
    """
    driver, made = tmp_path / "libcuda.so.1", tmp_path / "guarded_device"
    common = [real_compiler(), "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*common, "-shared", "-fPIC", HERE / "programs/pretended_driver.cc", "-o", driver], check=True)
    places = [f"-I{NATIVE_DIR}", f"-I{INCLUDE_DIR}", f"-isystem{jax_port.ffi_include_dir()}"]
    end = [driver, "-ldl", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run([*common, *places, HERE / "programs/guarded_device.cc", "-o", made, *end], check=True)
    done = subprocess.run([made], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == (HERE / "golden/guarded_device.txt").read_text()
