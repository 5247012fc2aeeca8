"""Functions of JAX arrays that call a kernel without a module, such as a raw CUDA kernel or one of Numba."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from be_runtime.call.attributes import convert_attributes
from be_runtime.call.call_options import Options
from be_runtime.call.compiled_function import CompiledFunction, Converted
from be_runtime.call.resolve import CallSignature, Resolved, as_argument, resolve
from be_runtime.call.tracing import KernelTarget, bind_call, default_method
from be_runtime.errors import ArgumentError, SpecError, call_named
from be_runtime.spec.model import Many, Param, Role
from be_runtime.xla import jax_port
from be_runtime.xla.arrays import ArraySpec, check_outs
from be_runtime.xla.attribute_values import Value


class ArrayKernel(NamedTuple):
    """A kernel that a function of arrays calls.

    Parameters
    ----------
    name : str
        Name of the function.
    label : str
        Beginning of every message.
    doc : str or None
    signature : CallSignature or None
        Arrays and scalars of the kernel; None if only `scalars` are known.
    scalars : tuple of Param
    make_target : callable
        Function of the arrays and scalars of a call; it makes the kernel and returns its targets and XLA's attributes.
    scratch_unit : int
        Scratch memory is a multiple of so many bytes, so that each of a batch is aligned.
    report : callable, optional
        Function that makes the kernel's report for block sizes.
    """

    name: str
    label: str
    doc: str | None
    signature: CallSignature | None
    make_target: Callable[[Resolved, Mapping[str, Value]], KernelTarget]
    scalars: tuple[Param, ...] = ()
    scratch_unit: int = 1
    report: Callable[[Sequence[int] | None], Any] | None = None


def array_function(kernel: ArrayKernel, options: Options) -> CompiledFunction:
    """Make the function of a kernel; its result has the structure of `outs`, if that is given.

    Raises
    ------
    ArgumentError
        The results are not described. When the function is called or traced: an array or a scalar is not as declared.
    SpecError
        A scalar has the name of another argument.
    """
    if options.outs is None and kernel.signature is None:
        raise ArgumentError(
            f"{kernel.label}: neither outs nor a signature says what the results are",
            hints=("pass outs=jax.ShapeDtypeStruct(shape, dtype)", "or signature='arg[n] ret[n]:like(0)'"),
        )
    if any(param.name == "outs" for param in kernel.scalars):
        raise SpecError(f"{kernel.label}: a scalar can't be called outs, which is an argument of every call")
    known_outs(options.outs)
    options = default_method(options, kernel.signature)
    defaults = {param.name: param.default for param in kernel.scalars if param.default is not None}

    def convert(scalars: Mapping[str, Any]) -> Converted:
        return convert_attributes(kernel.label, kernel.scalars, {**defaults, **scalars})

    def trace(outs: Any, scalars: Mapping[str, Any], converted: Converted) -> Callable[..., Any]:
        described = options if outs is None else options._replace(outs=outs)

        def run(*arrays: Any) -> Any:
            return _run(kernel, described, arrays, scalars, converted)

        run.__name__ = run.__qualname__ = kernel.name
        return run

    return CompiledFunction(kernel.name, kernel.label, kernel.doc, convert, trace, kernel.report)


def _run(
    kernel: ArrayKernel, options: Options, arrays: Sequence[Any], scalars: Mapping[str, Any], converted: Converted
) -> Any:
    """Call a kernel while a program is traced."""
    restore: Callable[[Sequence[Any]], Any] = tuple

    def describe(*given: Any, **_scalars: Any) -> Sequence[Any]:
        nonlocal restore
        leaves, restore = jax_port.flatten(evaluate(f"outs of {kernel.label}", options.outs, given))
        return leaves

    convert = partial(as_argument, as_array=jax_port.as_array, takes_many=False)
    given = [convert(kernel.label, number, each) for number, each in enumerate(arrays)]
    resolved = resolve(
        kernel.signature or _undeclared(kernel, len(given)),
        given,
        None if options.outs is None else describe,
        scalars,
        as_array=jax_port.as_array,
        aliases=dict(options.aliases),
        scratch_unit=kernel.scratch_unit,
    )
    made = kernel.make_target(resolved, dict(converted))
    results = None
    if made.computed is None and not resolved.scratch:
        from be_runtime.xla.kernel_call.explicit_mesh import on_explicit_parts

        again = partial(_run_parts, kernel, options._replace(outs=None), scalars, converted)
        results = on_explicit_parts(again, resolved.split, resolved.operands)
    if results is None:
        results = bind_call(kernel.label, resolved, options, made.targets, made.attributes, computed=made.computed)
    return results[0] if resolved.is_single else restore(results)


def _run_parts(
    kernel: ArrayKernel, options: Options, scalars: Mapping[str, Any], converted: Converted, *arrays: Any
) -> Sequence[Any]:
    """Call a kernel with the parts of one device."""
    found = _run(kernel, options, arrays, scalars, converted)
    return found if isinstance(found, tuple) else (found,)


def _undeclared(kernel: ArrayKernel, arrays: int) -> CallSignature:
    """Return the signature of a kernel of which only the scalars are known."""
    inputs = (Param(role=Role.ARG),) * arrays
    return CallSignature(kernel.label, (*inputs, Param(role=Role.RET, many=Many.ANY), *kernel.scalars))


def known_outs(outs: Any) -> tuple[ArraySpec, ...] | None:
    """Return the results that are the same for all calls; None if they are not known yet."""
    return None if outs is None or _is_function(outs) else check_outs(jax_port.flatten(outs)[0])


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type) and not hasattr(value, "shape")


def evaluate(what: str, value: Any, inputs: Sequence[Any]) -> Any:
    """Return a value, or what the author's function of the inputs' shapes and dtypes returns."""
    return call_named(what, value, *map(jax_port.shape_of, inputs)) if _is_function(value) else value
