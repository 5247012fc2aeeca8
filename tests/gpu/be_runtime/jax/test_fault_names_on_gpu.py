"""A process that dies in the host code of a CUDA kernel says which one, and which line calls it."""

from __future__ import annotations

import pytest

from tests.support.runtime import environment, run_python

PROGRAM = r'''
import jax, jax.numpy as jnp
import be_runtime
dies = be_runtime.load_cuda_inline("dies", r"""
#include "brainevent/common.h"
#include <stdlib.h>
// @BE aborts arg[n] ret[n]
void aborts(const BE::Tensor& x, BE::Tensor& y) { if (x.numel() > 0) abort(); }
""")
step = jax.jit(lambda x: dies.aborts(x + 1))
jax.block_until_ready(step(jnp.ones(4)))
'''


@pytest.mark.parametrize("variable", ["PYTHONFAULTHANDLER", "BE_DEBUG"])
def test_an_abort_in_host_code_is_told_with_the_line(variable: str):
    done = run_python(PROGRAM, env=environment(JAX_PLATFORMS=None, **{variable: "1"}), check=False)
    assert done.returncode < 0
    assert "be_runtime: SIGABRT in dies.aborts, called at <string>:10 in <lambda>\n" in done.stderr
