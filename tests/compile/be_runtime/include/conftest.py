"""The kernels of a test file, in both forms that their handlers have.

This file is read before the number of JAX's devices is chosen, so it imports JAX later.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime import CompiledModule

KERNELS = Path(__file__).parent / "kernels"
HANDLERS: dict[str, list[str]] = {"inlined": [], "shared": ["-lm"]}
"""What makes g++ compile a handler with its entry point, and what keeps it from that."""


@pytest.fixture(scope="module", params=HANDLERS)
def module(request: pytest.FixtureRequest) -> CompiledModule:
    """The module of ``kernels/NAME.cc`` for ``test_NAME.py``."""
    name = request.path.stem.removeprefix("test_")
    flags = HANDLERS[request.param]
    module = be_runtime.load_cpp_file(KERNELS / f"{name}.cc", name=f"{name}_{request.param}", extra_ldflags=flags)
    assert not flags or "-fwhole-program" not in (module.path.parent / "build.log").read_text()
    return module


@pytest.fixture
def call(module: CompiledModule) -> Callable[..., Any]:
    """Call a function of the module through ``jax.ffi``; results are like the arrays or structures `out`."""

    import jax

    def run(function: str, out: Any, *arrays: Any, vmap_method: str | None = None, **attributes: Any) -> Any:
        caller: Any = jax.ffi.ffi_call(f"{module.name}.{function}", out, vmap_method=vmap_method)
        return caller(*arrays, **attributes)

    return run


@pytest.fixture
def refused(call: Callable[..., Any]) -> Callable[..., str]:
    """The message of a call that fails."""
    import jax

    def run(function: str, out: Any, *arrays: Any, **keywords: Any) -> str:
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            jax.block_until_ready(jax.jit(lambda *given: call(function, out, *given, **keywords))(*arrays))
        message = str(caught.value)
        assert f"{function}: " in message
        return message

    return run
