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
    name : str
        Name of the function of the author, for errors and targets.
    parameters : tuple of str
        Names of its parameters: the inputs, the outputs, scratch memory.
    doc : str or None
    target_for : callable
        Function that returns the target for a signature, registered; called once for each signature.
    platform : str
        JAX's name of the platform.
    lacking : tuple of str
        Names of unsupported dtypes.
    prepare : callable, optional
        Function called with the name, the inputs and the outputs before the first call with arrays of these shapes.
    """

    name: str
    parameters: tuple[str, ...]
    doc: str | None
    target_for: Callable[[Signature], str]
    platform: str = "cpu"
    lacking: tuple[str, ...] = ()
    prepare: Callable[[str, Sequence[ArraySpec], Sequence[ArraySpec]], None] | None = None


def called_function(
    function: Callable[..., Any], target_for: Callable[[str, Signature], str], more: Sequence[str] = (), **rest: Any
) -> Called:
    """Describe a function of this process.

    Parameters
    ----------
    function : callable
        Function of the author, which takes the arrays and the parameters in `more`.
    target_for : callable
        Function of the name and a signature that compiles and registers the target.
    more : sequence of str
    **rest
        Other fields of `Called`.
    """
    name = str(getattr(function, "__name__", type(function).__name__))

    def checked(signature: Signature) -> str:
        check_count(function, name, signature, more)
        return target_for(name, signature)

    return Called(name, tuple(inspect.signature(function).parameters), function.__doc__, checked, **rest)


def host_array_function(called: Called, signature: object, options: Options) -> Callable[..., Any]:
    """Make the function of JAX arrays, see `array_function`.

    Raises
    ------
    ArgumentError
        `outs` or the signature are not allowed. When the function is called or traced: an input is not an array or of
        an unsupported dtype, or the number of inputs is wrong.
    """
    target_for = functools.cache(called.target_for)

    @functools.cache
    def prepare(inputs: tuple[ArraySpec, ...], outputs: tuple[ArraySpec, ...]) -> None:
        if called.prepare is not None:
            called.prepare(called.name, inputs, outputs)

    def make_target(call: Resolved, _scalars: Mapping[str, Value]) -> KernelTarget:
        target = target_for(signature_of(call.inputs, call.results, called.lacking))
        prepare(call.inputs, call.results)
        return KernelTarget(((called.platform, target),), ())

    declared = read_signature(called.name, signature, called.parameters)
    kernel = ArrayKernel(called.name, called.name, called.doc, declared, make_target)
    return array_function(kernel, options)
