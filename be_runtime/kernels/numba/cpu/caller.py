"""Functions of JAX arrays that call one target for each combination of their inputs' dtypes and ranks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from be_runtime.call.array_function import ArrayKernel, array_function
from be_runtime.call.call_options import Options
from be_runtime.call.kernel_signature import read_signature
from be_runtime.call.resolve import Resolved
from be_runtime.call.tracing import KernelTarget
from be_runtime.kernels.numba.cpu.signature import Signature, check_count, signature_of
from be_runtime.xla.arrays import ArraySpec
from be_runtime.xla.attribute_values import Value


class Called(NamedTuple):
    """The function of a call, and its targets.

    Parameters
    ----------
    function : callable
        Function of the author, which takes the inputs, the outputs, scratch memory and the parameters in `more`.
    target_for : callable
        Function that compiles and registers the target for a signature, called once for each signature.
    platform : str
        JAX's name of the platform.
    more : tuple of str
    lacking : tuple of str
        Names of unsupported dtypes.
    prepare : callable, optional
        Function called with the name, the inputs and the outputs before the first call with arrays of these shapes.
    """

    function: Callable[..., Any]
    target_for: Callable[[Signature], str]
    platform: str = "cpu"
    more: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    prepare: Callable[[str, Sequence[ArraySpec], Sequence[ArraySpec]], None] | None = None

    @property
    def name(self) -> str:
        """The function's name, for errors and targets."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))


def host_array_function(called: Called, signature: object, options: Options) -> Callable[..., Any]:
    """Make the function of JAX arrays, see `array_function`.

    Raises
    ------
    ArgumentError
        `outs` or the signature are not allowed. When the function is called or traced: an input is not an array or of
        an unsupported dtype, or the number of inputs is wrong.
    """

    @functools.cache
    def target_for(signature: Signature) -> str:
        check_count(called.function, called.name, signature, called.more)
        return called.target_for(signature)

    @functools.cache
    def prepare(inputs: tuple[ArraySpec, ...], outputs: tuple[ArraySpec, ...]) -> None:
        if called.prepare is not None:
            called.prepare(called.name, inputs, outputs)

    def make_target(call: Resolved, _scalars: Mapping[str, Value]) -> KernelTarget:
        target = target_for(signature_of(call.inputs, call.results, called.lacking))
        prepare(call.inputs, call.results)
        return KernelTarget(((called.platform, target),), ())

    names = () if signature is None else tuple(inspect.signature(called.function).parameters)
    declared = read_signature(called.name, signature, names)
    kernel = ArrayKernel(called.name, called.name, called.function.__doc__, declared, make_target)
    return array_function(kernel, options)
