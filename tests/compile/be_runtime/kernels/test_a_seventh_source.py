"""Two new sources of kernels, each in a few lines: one writes C++ for the CPU, the other PTX for GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

import be_runtime
from be_runtime.call.attributes import Options
from be_runtime.call.compiled_function import KernelTarget
from be_runtime.call.function import SourceFunction
from be_runtime.call.resolve import CallSignature, Resolved
from be_runtime.kernels.launcher import Kernel, KernelImage, KernelParam, content_id
from be_runtime.kernels.raw import RawLayout, raw_function
from be_runtime.kernels.source import CompiledCode, Variant
from be_runtime.load.module import ModuleInfo
from be_runtime.load.registry import Session
from be_runtime.signature.grammar import parse_spec
from be_toolchain.arch import Arch
from tests.support.kernel_calls import attributes, kernel_calls

CPP = """#include "brainevent/common.h"
using T = TYPE;
void run(const BE::Tensor in, BE::Tensor out, float by) {
  for (int64_t i = 0; i < out.numel(); ++i) {
    const T x = in.data_ptr<T>()[i];
    out.data_ptr<T>()[i] = FORMULA;
  }
}"""


class Formula(NamedTuple):
    """A source whose language is an expression over ``x``: it implements `KernelSource` itself."""

    text: str

    def target(self, call: Resolved, scalars: Mapping[str, Any]) -> KernelTarget:
        code = CPP.replace("FORMULA", self.text).replace("TYPE", call.inputs[0].dtype.cpp_types[0])
        made = be_runtime.load_cpp_inline("formula", code, ["run"], auto_register=False)
        _, register = ModuleInfo.of(made).entry_point("run")
        return KernelTarget(register(), tuple(scalars.items()))


PTX = ".version 8.0 .target {} .address_size 64 .visible .entry nothing(.param .u64 x, .param .u64 y) {{ ret; }}"


class Ptx(CompiledCode):
    """A source that writes PTX: a `Code` for a `GpuSource`, with the `Layout` of kernels that take pointers."""

    def compilable(self, _call: Resolved, _variant: Variant) -> Ptx:
        return self

    def build(self, archs: tuple[Arch, ...], _session: Session, *, with_ptx: bool = False) -> Kernel:
        text = PTX.format(archs[0].sm)
        images = (KernelImage(archs[0], "nothing", text.encode(), is_ptx=True),)
        return Kernel(content_id(images), "nothing", images)


def test_a_source_of_host_code_is_a_function():
    signature = CallSignature("times", parse_spec(["arg[n]", "ret[n]:like(0)", "attr.by:float32"]))
    times, x = SourceFunction(signature, Formula("x * by"), Options()), np.arange(3, dtype=np.float32)
    assert jax.jit(lambda x: times(x, by=2))(x).tolist() == [0, 2, 4]
    assert jax.vmap(lambda x: times(x, by=3))(np.stack([x, x])).tolist() == [[0, 3, 6]] * 2
    assert times(x.astype(np.int32), by=2.5).tolist() == [0, 2, 5]


def test_a_source_of_gpu_code_is_a_function():
    layout = RawLayout(
        "nothing", "nothing", tuple(KernelParam(each, "float*", True, each == "x", None) for each in "xy")
    )
    sizes = {"grid": "n/4", "block": 4, "shared_mem": 0, "cluster": None}
    call = raw_function(layout, Ptx("sm_80"), "arg[n] ret[n]", sizes, Options())
    (equation,) = kernel_calls(call, np.zeros(8, np.float32))
    assert attributes(equation)["launch"].tolist()[:4] == [2, 1, 1, 4]
