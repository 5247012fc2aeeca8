"""A machine without any C++ compiler gets one from the package index, and its first kernel does not wait for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.fresh_environments import NO_INDEX, Environment

pytestmark = pytest.mark.xdist_group("host-compiler")

KERNEL = '''
import sys, time
import jax, jax.numpy as jnp
import be_runtime
began = time.monotonic()
be_runtime.load_cpp_inline(sys.argv[1], r"""
#include <sstream>
#include <stdexcept>
#include "brainevent/common.h"
// @BE add_one arg ret
void add_one(const BE::Tensor x, BE::Tensor out) {
  try { throw std::runtime_error("1"); } catch (const std::exception& error) {
    float step = 0;
    std::istringstream(error.what()) >> step;
    for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i] + step;
  }
}
""")
took_s = time.monotonic() - began
x = jnp.arange(100, dtype=jnp.float32)
out = jax.ffi.ffi_call(sys.argv[1] + ".add_one", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
print(float(out.sum()), took_s)
'''


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A folder with what a wrapper script calls, and no compiler."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "env", "dirname", "readlink"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return folder


def load_kernel(name: str, environment: Environment, cache: Path, **environ: str) -> float:
    """Build a kernel and call it from JAX in a process of its own; how many seconds it took to load."""
    command = [sys.executable, "-c", KERNEL, name]
    variables = environment.environ | {"JAX_PLATFORMS": "cpu", "BE_CACHE_DIR": str(cache), **environ}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    total, took_s = map(float, done.stdout.split())
    assert total == 5050
    return took_s


@pytest.mark.full
def test_a_machine_without_a_compiler_builds_kernels(
    new_environment: Callable[[], Environment], bare_path: Path, tmp_path: Path
):
    bare = replace(new_environment(), path=str(bare_path))
    code, text = bare.run("which", "cxx")
    assert code == 2
    assert "python -m be_toolchain install --host-compiler" in text

    code, text = bare.run("install", "--host-compiler", "--yes", timeout_s=800)
    if code and any(sign in text for sign in NO_INDEX):
        pytest.skip("no package index with ziglang can be reached")
    assert code == 0, text
    assert "nvcc's host side still needs the system's compiler: " in text
    assert "building its C++ library" in text
    compiler = Path(bare.run("which", "cxx")[1].strip())
    assert compiler.is_relative_to(bare.store)

    def libraries() -> list[Path]:
        return sorted(bare.store.glob("zig-*/cache/o/*/libc++.a"))

    assert len(libraries()) == 1
    assert load_kernel("without", bare, tmp_path / "cache") < 20, "3 s on an idle machine, a minute with the library"
    # Another compiler on PATH, whose headers zig would take for the system's, changes nothing.
    load_kernel("beside", bare, tmp_path / "other", PATH=os.environ["PATH"], BE_CXX=str(compiler))
    assert len(libraries()) == 1
