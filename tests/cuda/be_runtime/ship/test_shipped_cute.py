"""A package with a function of CuTe DSL, built and called where there is no GPU."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import run_beside
from tests.support.requirements import OPTIONAL
from tests.support.runtime import ROOT

cutlass: Any = pytest.importorskip("cutlass", reason=f"{OPTIONAL}cutlass", exc_type=ImportError)
pytest.importorskip("tvm_ffi", reason=f"{OPTIONAL}apache-tvm-ffi")

OPS = """
import cutlass.cute as cute

@cute.kernel
def _twice(x: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    if thread < cute.size(out):
        out[thread] = x[thread] + x[thread]

@cute.jit
def twice(x: cute.Tensor, out: cute.Tensor, stream):
    _twice(x, out).launch(grid=[1, 1, 1], block=[256, 1, 1], stream=stream)
"""
TABLE = """
archs = ["9.0"]
[kernels.twice]
cute = "ops.py:twice"
signature = "arg[n] ret[n]"
dtypes = ["float32", "float16"]
divisible = { n = 4 }
"""
CALLS = """
import json, sys
import jax, numpy as np, tvm_ffi, shipped

def lowered(dtype, size=8):
    x = np.zeros(size, dtype)
    try:
        text = jax.jit(shipped.ops.twice).trace(x).lower(lowering_platforms=("cuda",)).as_text()
    except ValueError as error:
        return str(error).partition(chr(10))[0]
    return next(word for word in text.split() if word.startswith("@be."))

found = [lowered("float32"), lowered("float16"), lowered("int32"), lowered("float32", 6)]
print(json.dumps([*found, "cutlass" in sys.modules]))
"""


def test_calls_need_neither_cute_dsl_nor_a_compiler(tmp_path: Path):
    package = tmp_path / "home" / "shipped"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import be_runtime\nops = be_runtime.package_kernels(__name__)\n")
    (package / "kernels.toml").write_text(TABLE)
    (package / "ops.py").write_text(OPS)
    found = [str(parent) for parent in Path(cutlass.__file__).parents[1:4]]
    run_beside(package, "-m", "be_runtime", "build", "shipped", PYTHONPATH=os.pathsep.join([str(ROOT), *found]))
    libraries = cutlass.cute.runtime.find_runtime_libraries(enable_tvm_ffi=False)
    bare = {"BE_JIT": "never", "BE_CACHE_DIR": str(tmp_path / "unused"), "PYTHONPATH": str(ROOT)}
    printed = run_beside(package, "-c", CALLS, LD_LIBRARY_PATH=str(Path(libraries[0]).parent), **bare)
    single, half, refused, odd, has_cutlass = json.loads(printed)
    assert single.startswith("@be.")
    assert half.startswith("@be.")
    assert single != half
    assert refused == "twice was not built for int32, int32; it was built for float32, float32 and float16, float16"
    assert odd == "twice: n is 6, which is not a multiple of 4"
    assert not has_cutlass


def test_several_architectures_are_refused(tmp_path: Path):
    package = tmp_path / "home" / "shipped"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "kernels.toml").write_text(TABLE.replace('["9.0"]', '["8.0", "9.0"]'))
    (package / "ops.py").write_text(OPS)
    found = [str(parent) for parent in Path(cutlass.__file__).parents[1:4]]
    with pytest.raises(AssertionError, match=r"kernels\.twice would be built for sm_80, sm_90"):
        run_beside(package, "-m", "be_runtime", "build", "shipped", PYTHONPATH=os.pathsep.join([str(ROOT), *found]))
