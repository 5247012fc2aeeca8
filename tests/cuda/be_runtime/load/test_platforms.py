"""One operation in C++ and in CUDA, compiled for both without a device."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp

import be_runtime
from tests.support.cuda import ARCH
from tests.support.platforms import CPP, CUDA


def test_a_program_for_both_platforms_has_both_targets():
    ops = be_runtime.load_inline("platforms_named", cpp=CPP, cuda=CUDA, compute_capability=str(ARCH))
    assert [*ops.parts] == ["cpp", "cuda"]
    x = jnp.arange(4.0)
    lowered = {
        platforms: jax.jit(ops.scale).trace(x).lower(lowering_platforms=platforms).as_text()
        for platforms in (("cpu",), ("cuda",), ("cpu", "cuda"))
    }
    cpu, cuda, both = ({*re.findall(r"@be\.\w+\.\w+", text)} for text in lowered.values())
    assert len(cpu) == len(cuda) == 1
    assert both == cpu | cuda != cpu
