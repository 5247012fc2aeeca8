"""A package with a kernel of cuTile, built and called where there is no GPU."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import run_beside, write_package
from tests.support.requirements import OPTIONAL
from tests.support.runtime import ROOT

ct: Any = pytest.importorskip("cuda.tile", reason=f"{OPTIONAL}cuda.tile", exc_type=ImportError)

OPS = """
import cuda.tile as ct

@ct.kernel
def add(x, y, out, BLOCK: ct.Constant[int]):
    i = ct.bid(0)
    tile = ct.load(x, index=(i,), shape=(BLOCK,)) + ct.load(y, index=(i,), shape=(BLOCK,))
    ct.store(out, index=(i,), tile=tile)
"""
TABLE = """
archs = ["9.0"]
[kernels.add]
cutile = "ops.py:add"
signature = "arg[... n] arg[... n] ret[... n]"
grid = "ceil(n/BLOCK)"
constants = { BLOCK = 128 }
input_output_aliases = { 1 = 0 }
"""
CALLS = """
import json, sys
import jax, numpy as np, shipped
from tests.support.kernel_calls import attributes, kernel_calls

def called(dtype, size):
    x = np.zeros(size, dtype)
    try:
        (equation,) = kernel_calls(lambda x: shipped.ops.add(x, x + x), x)
    except ValueError as error:
        return str(error).partition(chr(10))[0]
    return attributes(equation)["kernel"], [list(pair) for pair in equation.params["call"].aliases]

print(json.dumps([called("float32", 128), called("float32", 101), called("int32", 128), "cuda.tile" in sys.modules]))
"""


def test_a_result_in_the_memory_of_an_input_is_found(tmp_path: Path):
    files = {"__init__.py": "import be_runtime\nops = be_runtime.package_kernels(__name__)\n", "ops.py": OPS}
    package = write_package(tmp_path / "home" / "shipped", files | {"kernels.toml": TABLE})
    place = str(Path(ct.__file__).parents[2])
    run_beside(package, "-m", "be_runtime", "build", "shipped", PYTHONPATH=os.pathsep.join([str(ROOT), place]))
    bare = {"BE_JIT": "never", "BE_CACHE_DIR": str(tmp_path / "unused"), "PYTHONPATH": str(ROOT)}
    aligned, any_size, refused, has_cutile = json.loads(run_beside(package, "-c", CALLS, **bare))
    assert aligned[1] == any_size[1] == [[1, 0]]
    assert aligned[0] != any_size[0], "a slice of a batch may begin anywhere"
    assert not has_cutile
    row = ", ".join(["float32[?]"] * 3)
    other = ", ".join(["float32[?] at any address"] * 3)
    assert refused == f"add was not built for {row.replace('float', 'int')}; it was built for {row} and {other}"
