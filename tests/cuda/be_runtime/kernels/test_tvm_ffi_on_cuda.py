"""A module for CUDA that calls TVM-FFI functions: it compiles, loads and is lowered without a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import be_runtime
from tests.support.requirements import OPTIONAL
from tests.support.runtime import real_compiler

pytest.importorskip("tvm_ffi", reason=f"{OPTIONAL}apache-tvm-ffi")


def test_a_module_for_cuda(tmp_path: Path):
    (tmp_path / "f.c").write_text(
        "int __tvm_ffi_f(void* self, const void* args, int count, void* result) { return 0; }"
    )
    library = tmp_path / "f.so"
    command = [real_compiler(), "-x", "c", "-shared", "-fPIC", str(tmp_path / "f.c"), "-o", str(library)]
    subprocess.run(command, check=True)
    declared = {"f": "inout[n]:bfloat16 arg?[n]:float32 stream =n attr.by:int32=1 attr.mode:string=a returned[n]:int8"}
    ops = be_runtime.load_tvm_ffi(library, declared, platform="cuda", compute_capability="sm_90")
    x = jax.ShapeDtypeStruct((4,), jnp.bfloat16)
    text = jax.jit(ops.f).trace(x).lower(lowering_platforms=("cuda",)).as_text()
    assert "be_graph_f_f" in text
    assert [(each.shape, each.dtype.name) for each in jax.eval_shape(ops.f, x)] == [((4,), "bfloat16"), ((4,), "int8")]
