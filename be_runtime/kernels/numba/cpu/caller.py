"""Functions of JAX arrays that call one target for each combination of their inputs' dtypes and ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from be_runtime.kernels.numba.cpu.signature import Signature, check_count, signature_of
from be_runtime.xla import jax_port
from be_runtime.xla.arrays import ArraySpec, check_aliases, check_outs, check_vmap_method, match_aliases
from be_runtime.xla.inputs import as_kernel_arrays


class Called(NamedTuple):
    """The function of a call, and its targets.

    Parameters
    ----------
    function : callable
        Function of the author, which takes the inputs, the outputs and the parameters in `more`.
    target_for : callable
        Function that compiles and registers the target for a signature, called once for each signature.
    more : tuple of str
    lacking : tuple of str
        Names of unsupported dtypes.
    prepare : callable, optional
        Function called with the name, the inputs and the outputs before the first call with arrays of these shapes.
    """

    function: Callable[..., Any]
    target_for: Callable[[Signature], str]
    more: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    prepare: Callable[[str, Sequence[ArraySpec], Sequence[ArraySpec]], None] | None = None

    @property
    def name(self) -> str:
        """The function's name, for errors and targets."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))


def array_function(
    called: Called, outs: Any, vmap_method: str | None, input_output_aliases: Mapping[int, int] | None
) -> Callable[..., Any]:
    """Make the function of JAX arrays, whose result has the structure of `outs`.

    Raises
    ------
    ArgumentError
        `outs`, the method or the aliases are not allowed. When the function is called or traced: an input is not an
        array or of an unsupported dtype, or the number of inputs is wrong.
    """
    leaves, unflatten = jax_port.flatten(outs)
    outputs = check_outs(leaves)
    method = check_vmap_method(vmap_method)
    aliases = check_aliases(input_output_aliases)

    @functools.cache
    def target_for(signature: Signature) -> str:
        check_count(called.function, called.name, signature, called.more)
        return called.target_for(signature)

    @functools.cache
    def prepare(inputs: tuple[ArraySpec, ...]) -> None:
        if called.prepare is not None:
            called.prepare(called.name, inputs, outputs)

    @functools.wraps(called.function)
    def call(*arguments: Any) -> Any:
        arrays, inputs = as_kernel_arrays(arguments, called.name)
        match_aliases(aliases, inputs, outputs)
        target = target_for(signature_of(inputs, outputs, called.lacking))
        prepare(inputs)
        results: Sequence[Any] = jax_port.call(target, leaves, arrays, vmap_method=method, input_output_aliases=aliases)
        return unflatten(results)

    return call
