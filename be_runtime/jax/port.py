"""Access to JAX, which is imported on first use: headers, registration of handlers, arrays.

No function here starts a JAX backend.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from be_runtime.own_files import jax_headers
from be_toolchain.errors import HeaderNotFoundError

PLATFORMS = {"cuda": "CUDA", "hip": "ROCM", "cpp": "cpu"}
"""JAX's name of the platform for each language's handlers."""
_HANDLERS: dict[str, object] = {}
"""The handlers of this process by their targets. An entry is added by one atomic operation and never changes."""


def ffi_include_dir() -> Path:
    """Find the folder that contains ``xla/ffi/api/c_api.h``, without importing jax.

    Raises
    ------
    HeaderNotFoundError
        jaxlib is not installed.
    """
    found = jax_headers()
    if found is None:
        raise HeaderNotFoundError(
            "jaxlib is not installed, so XLA's FFI headers can't be found", hints=("pip install jax",)
        )
    return found


def capsule(function: object) -> object:
    """Wrap a ctypes function in the capsule that JAX registers."""
    import jax

    return jax.ffi.pycapsule(function)


def register(target: str, handler: object, platform: str) -> None:
    """Make a handler callable as ``jax.ffi.ffi_call(target, ...)`` on a platform."""
    import jax

    jax.ffi.register_ffi_target(target, handler, platform=platform)
    _HANDLERS[target] = handler


def address(target: str) -> int:
    """Return the address of a registered target's handler."""
    return addresses(_HANDLERS[target])["execute"]


def addresses(handler: object) -> dict[str, int]:
    """Return the addresses of a handler's functions by their stages."""
    capsules = handler if isinstance(handler, dict) else {"execute": handler}
    return {stage: capsule_address(capsule) for stage, capsule in capsules.items()}


def capsule_address(capsule: object) -> int:
    """Return the address of the function in a JAX capsule."""
    read = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    address: int = read(capsule, None)
    return address


def as_array(value: Any, dtype: str | None = None) -> Any:
    """Convert a value to an array or a tracer, by default of JAX's dtype; raise TypeError for other values."""
    import jax.numpy as jnp

    return jnp.asarray(value, dtype)


def flatten(tree: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """Return the leaves of a pytree, and a function that rebuilds the tree from other leaves."""
    import jax

    leaves, structure = jax.tree_util.tree_flatten(tree)
    return leaves, partial(jax.tree_util.tree_unflatten, structure)


def stage_capsules(stages: Mapping[str, object]) -> object:
    """Wrap the handlers of a target's stages for JAX: a dict by stage, or the handler alone if there is one stage."""
    made = {stage: capsule(function) for stage, function in stages.items()}
    return made if len(made) > 1 else made["execute"]


def runtime_errors() -> tuple[type[Exception], ...]:
    """Return the types of the errors of XLA's programs: in the first run of a program, and in later runs."""
    import jax

    return jax.errors.JaxRuntimeError, ValueError


def is_at_least(extent: Any, least: int) -> bool:
    """Return whether a symbolic dimension of ``jax.export`` is known to be at least `least`."""
    from be_runtime.jax.internals import InconclusiveDimensionOperation

    try:
        return bool(extent >= least)
    except InconclusiveDimensionOperation:
        return False


def wait(tree: Any) -> None:
    """Wait until the arrays of a pytree are computed; ignore tracers."""
    import jax

    jax.block_until_ready([leaf for leaf in jax.tree_util.tree_leaves(tree) if not is_traced(leaf)])


def is_traced(value: Any) -> bool:
    """Return whether a value is a tracer, known only when a program runs."""
    import jax

    return isinstance(value, jax.core.Tracer)


def like_arrays(outs: Any) -> Any:
    """Replace each array of a pytree with its shape and dtype."""
    import jax
    import numpy as np

    arrays = (jax.Array, np.ndarray)
    return jax.tree_util.tree_map(lambda leaf: shape_of(leaf) if isinstance(leaf, arrays) else leaf, outs)


def over_leading_axes(function: Callable[..., Any], depth: int, has: Sequence[bool]) -> Callable[..., Any]:
    """Map a function over `depth` leading axes of the arrays that have them."""
    import jax

    for _ in range(depth):
        function = jax.vmap(function, in_axes=tuple(0 if each else None for each in has))
    return function


def shape_of(array: Any, leading: int = 0) -> Any:
    """Return the dtype and the shape of an array or tracer, without so many leading axes."""
    import jax

    return jax.ShapeDtypeStruct(array.shape[leading:], array.dtype)
