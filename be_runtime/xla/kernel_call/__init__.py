"""The primitive of a call of an entry point, and its rules.

Whatever imports a module of this folder registers them all.
"""

from __future__ import annotations

import functools
from pathlib import Path

from jax.interpreters import ad

from be_runtime.xla import jax_internals
from be_runtime.xla.kernel_call.batching import batch
from be_runtime.xla.kernel_call.call_primitive import abstract, execute, kernel_call
from be_runtime.xla.kernel_call.differentiation import differentiate, transpose
from be_runtime.xla.kernel_call.lowering import lower

jax_internals.hide_frames(str(Path(__file__).parents[2]))  # a call is where its author makes it
kernel_call.def_impl(execute)
kernel_call.def_effectful_abstract_eval(abstract)
jax_internals.batching_rules[kernel_call] = batch
ad.primitive_jvps[kernel_call] = differentiate
ad.primitive_transposes[kernel_call] = transpose
for _platform in ("cpu", "cuda", "rocm", "tpu"):
    jax_internals.mlir.register_lowering(kernel_call, functools.partial(lower, _platform), platform=_platform)
