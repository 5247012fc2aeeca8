"""Stubs as type checkers use them: mypy over programs that call kernels, and the programs themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compile.be_runtime.processes import python
from tests.support import requirements

SOURCE = r"""
#include "brainevent/common.h"

/// Scale an array.
// @BE scale arg[... n] ret[... n] attr.by:float32 attr.offset:float32=0
void scale(const BE::Tensor x, BE::Tensor y, float by, float offset) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = by * x.data_ptr<float>()[i] + offset;
}

// @BE tile arg[n] ret attr.flag
void tile(const BE::Tensor x, BE::Tensor y, bool flag) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = flag ? x.data_ptr<float>()[i % x.numel()] : 0;
}
"""

CUDA = """
#include "brainevent/common.h"
// @BE on_gpu arg[n] ret[n]
void on_gpu(const BE::Tensor x, BE::Tensor y) {}
"""

OPS = """
'''Operations.'''
from __future__ import annotations

import be_runtime

FACTOR = 2
module = be_runtime.load_cpp_dir("kernels")
both = be_runtime.load_dir("both", cpp="kernels", cuda="gpu")
scale = module.scale
tile_like = module.tile.with_options(outs=lambda x, flag: x)


class Layer:
    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x: jax.Array) -> jax.Array:
        return scale(x, by=self.by, offset=0)


import jax
"""

PROGRAM = """
from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, cast

import be_runtime
import jax
import jax.numpy as jnp
import numpy as np
import ops
from shipped import kernels as own

if TYPE_CHECKING:
    from kernels_types import Kernels

kernels = cast("Kernels", be_runtime.load_cpp_dir("kernels"))
x = np.ones(2, np.float32)
struct = jax.ShapeDtypeStruct((4,), jnp.float32)
y: jax.Array = kernels.scale(x, by=ops.FACTOR, offset=0)
scale = kernels.scale.with_options(vmap_method="sequential")
y = jax.jit(lambda x: scale(x, by=2.0, offset=1))(y)
z: jax.Array = kernels.tile(x, flag=True, outs=struct)
u: jax.Array = ops.both.scale(x, by=2)
if TYPE_CHECKING:
    ops.both.on_gpu(x)
z = ops.module.tile.with_options(outs=struct)(x, flag=True)
w: jax.Array = ops.Layer(ops.FACTOR)(ops.scale(ops.tile_like(x, flag=True), by=1, offset=0))
v: jax.Array = own.maths.scale(own.scale.with_options(ordered=True)(x, by=1), by=2.0, offset=1)
assert v.tolist() == [3, 3] and own["maths"].name == own.maths.name == "shipped.maths"
print(y.tolist(), z.tolist(), w.tolist(), kernels.name, kernels.function_names[0])
print(kernels["scale"](x, by=1, offset=0).tolist(), *inspect.signature(kernels.scale).parameters)
"""

WRONG = {
    'kernels.scale(x, by="2")': "arg-type",
    "kernels.scale(x)": "call-arg",
    "kernels.scale(x, by=1, of=1)": "call-arg",
    "kernels.tile(x, flag=True)": "call-arg",
    "kernels.scael(x)": "attr-defined",
    "ops.both.scale(x)": "call-arg",
    "ops.both.scael(x)": "attr-defined",
    "kernels.scale.with_options(orderd=True)": "call-overload",
    "text: str = ops.scale(x, by=1)": "assignment",
    "ops.Layer('2')": "arg-type",
    "own.maths.scale(x)": "call-arg",
    "own.scael(x)": "attr-defined",
}
"""Lines of a program, and the error that mypy finds in each."""


@pytest.mark.full
def test_mypy_knows_the_functions_and_refuses_wrong_calls(tmp_path: Path):
    for name, text in {
        "kernels/ops.cc": SOURCE,
        "gpu/ops.cu": CUDA,
        "shipped/maths.cc": SOURCE,
        "shipped/kernels.toml": '[modules.maths]\nsources = "maths.cc"\n',
        "shipped/__init__.py": "from be_runtime import package_kernels\n\nkernels = package_kernels(__name__)\n",
        "ops.py": OPS,
        "program.py": PROGRAM,
        "wrong.py": "import ops\nfrom program import kernels, x\nfrom shipped import kernels as own\n"
        + "\n".join(WRONG),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for source in ("kernels", "ops"):
        python(tmp_path, "-m", "be_runtime", "stubs", source)
    python(tmp_path, "-m", "be_runtime", "stubs", "shipped", PATH="/nowhere", BE_CXX="/nowhere")  # it compiles nothing
    assert python(tmp_path, "program.py").stdout.splitlines() == [
        "[5.0, 5.0] [1.0, 1.0, 1.0, 1.0] [2.0, 2.0] kernels scale",
        "[1.0, 1.0] x by offset outs",
    ]
    pytest.importorskip("mypy", reason=f"{requirements.OPTIONAL}mypy")
    check = ("-m", "mypy", "--strict", "--untyped-calls-exclude=jax", "--cache-dir=mypy")
    files = ("program.py", "ops.pyi", "kernels_types.pyi", "shipped/__init__.pyi")
    assert python(tmp_path, *check, *files).stdout.startswith("Success")
    errors = python(tmp_path, *check, "wrong.py", code=1).stdout
    found = re.findall(r"^wrong.py:(\d+): error: .*\[(\S+)\]$", errors, re.MULTILINE)
    assert found == [(str(number), code) for number, code in enumerate(WRONG.values(), start=4)]
