"""The function that authors call for a kernel without host code: `ArrayFunction`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from be_runtime.call.attributes import Options, convert_attributes
from be_runtime.call.compiled_function import Converted, Program, Report, bind_call, default_method
from be_runtime.call.function import KernelSource, RuledFunction
from be_runtime.call.resolve import CallSignature, as_argument, resolve
from be_runtime.errors import ArgumentError, SpecError, call_named
from be_runtime.jax import port
from be_runtime.jax.arrays import ArraySpec, array_spec, check_known, check_outs
from be_runtime.signature.model import LEADING, Many, Param, Role
from be_toolchain.named import NamedTuple


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
    source : KernelSource
    scalars : tuple of Param
    scratch_unit : int
        Number of bytes of which the size of scratch memory is a multiple, so that a batch has aligned memory.
    report : callable, optional
        Function that makes the kernel's report for block sizes.
    by_slice : bool
        True if the kernel gets only the extents of the declared axes, so that leading axes of a call are a batch.
    by_axis : frozenset of str
        Scalars that a call may leave out: each has the name of an axis, whose extent it gets.
    """

    name: str
    label: str
    doc: str | None
    signature: CallSignature | None
    source: KernelSource
    scalars: tuple[Param, ...] = ()
    scratch_unit: int = 1
    report: Report | None = None
    by_slice: bool = False
    by_axis: frozenset[str] = frozenset()


class ArrayFunction(RuledFunction):
    """The function of a kernel. Its result has the structure of `outs`, if `outs` is given.

    Raises
    ------
    ArgumentError
        The results are not described. A call of the function raises it if an array or a scalar is not as declared.
    SpecError
        A scalar has the name of another argument.
    """

    def __init__(self, kernel: ArrayKernel, options: Options) -> None:
        super().__init__(kernel.name, kernel.label, kernel.doc)
        if options.outs is None and kernel.signature is None:
            raise ArgumentError(
                f"{kernel.label}: neither outs nor a signature describes the results",
                hints=("pass outs=jax.ShapeDtypeStruct(shape, dtype)", "or signature='arg[n] ret[n]:like(0)'"),
            )
        if any(param.name == "outs" for param in kernel.scalars):
            raise SpecError(f"{kernel.label}: a scalar can't be called outs, which is an argument of every call")
        known_outs(options.outs)
        self._reporter = kernel.report
        self._kernel, self._options = kernel, default_method(options, kernel.signature)
        self._defaults = {param.name: param.default for param in kernel.scalars if param.default is not None}

    def call_signature(self) -> CallSignature | None:
        """Return the signature of the kernel; None without one."""
        return self._kernel.signature

    def _named(self, name: str) -> RuledFunction:
        raise KeyError(f"it is {name!r}, but only entry points of a module have names; pass the function itself")

    def _attribute_names(self) -> tuple[str, ...]:
        return tuple(param.name for param in self._kernel.scalars)

    def _converted(self, attributes: Mapping[str, Any]) -> Converted:
        by_axis = self._kernel.by_axis - attributes.keys()
        params = [param for param in self._kernel.scalars if param.name not in by_axis]
        return convert_attributes(self.__qualname__, params, {**self._defaults, **attributes})

    def _traced(self, outs: Any, attributes: Mapping[str, Any], converted: Converted) -> Program:
        described = self._options.outs if outs is None else outs
        signature = self._kernel.signature

        def run(*arrays: Any) -> Any:
            if signature is None or not self._kernel.by_slice:
                return self._run(described, arrays, attributes, converted)
            label, args = self.__qualname__, signature.with_role(Role.ARG)
            given = [as_argument(label, number, each, takes_many=False) for number, each in enumerate(arrays)]
            has_leading = [LEADING in (param.axes or ()) for param in args]
            rows = zip(args, given, has_leading, strict=False)
            depths = {array.ndim - len(param.axes or ()) + 1 for param, array, has in rows if has and array is not None}
            if len(depths) != 1 or len(given) != len(args) or depths == {0}:
                # The call has no leading axes, or an argument raises an error below.
                return self._run(described, given, attributes, converted)
            if not all(LEADING in (param.axes or ()) for param in signature.with_role(Role.RET)):
                raise ArgumentError(
                    f"{label}: an argument has leading axes, but a result is declared without them",
                    hints=("begin the axes of each result with '...', or call it under jax.vmap",),
                )
            depth = depths.pop()
            each = self._slice_outs(described, given, has_leading, depth)

            def call(*slices: Any) -> Any:
                return self._run(each, slices, attributes, converted)

            return port.over_leading_axes(call, depth, has_leading)(*given)

        run.__name__ = run.__qualname__ = self.__name__
        every = {**self._defaults, **attributes}
        params = () if signature is None else signature.params
        from be_runtime.jax.calls import wrap

        return wrap(self._derivative, self.__qualname__, run, params, every, converted)

    def _slice_outs(self, outs: Any, arrays: Sequence[Any], has_leading: Sequence[bool], depth: int) -> Any:
        """Check that the leading axes of arrays and results are equal, and return the results of one slice."""
        label = self.__qualname__
        named = [(f"argument {at}", each) for at, each in enumerate(arrays) if has_leading[at]]
        leaves, restore = port.flatten(evaluate(f"outs of {label}", outs, arrays))
        if outs is not None:
            check_outs(leaves)
            named += [(f"outs[{at}]", each) for at, each in enumerate(leaves)]
        (first, one), *others = [(what, array_spec(each, f"{label}: {what}")) for what, each in named]
        for what, spec in others:
            if spec.shape[:depth] != one.shape[:depth]:
                raise ArgumentError(
                    f"{label}: the leading axes of {first}, {one}, and of {what}, {spec}, differ",
                    hints=("arrays whose axes begin with '...' have equal leading axes, all results too",),
                )
        return restore([port.shape_of(each, depth) for each in leaves])

    def _run(self, outs: Any, arrays: Sequence[Any], scalars: Mapping[str, Any], converted: Converted) -> Any:
        """Call the kernel while a program is traced."""
        kernel, label = self._kernel, self.__qualname__
        restore: Callable[[Sequence[Any]], Any] = tuple

        def describe_results(*inputs: Any, **_scalars: Any) -> Sequence[Any]:
            nonlocal restore
            leaves, restore = port.flatten(evaluate(f"outs of {label}", outs, inputs))
            return leaves

        given = [as_argument(label, number, each, takes_many=False) for number, each in enumerate(arrays)]
        signature = kernel.signature
        if signature is None:  # only the scalars are known
            inputs = (Param(role=Role.ARG),) * len(given)
            signature = CallSignature(label, (*inputs, Param(role=Role.RET, many=Many.ANY), *kernel.scalars))
        aliases = dict(self._options.aliases)
        results = None if outs is None else describe_results
        resolved = resolve(signature, given, results, scalars, aliases=aliases, scratch_unit=kernel.scratch_unit)
        check_known(label, (*resolved.inputs, *resolved.results))
        made = kernel.source.target(resolved, dict(converted))
        if made.scratch is not None:
            resolved = resolved.with_scratch(*made.scratch, kernel.scratch_unit)
        shown: Sequence[Any] | None = None
        if made.computed is None and not resolved.scratch:
            from be_runtime.jax.primitive import on_explicit_parts

            shown = on_explicit_parts(
                lambda *parts: self._run(None, parts, scalars, converted), resolved.split, resolved.operands
            )
        if shown is None:
            every = {**self._defaults, **scalars}
            transposes = self._derivative.bound_transposes(label, arrays, every, converted)
            shown = bind_call(label, resolved, self._options, made, transposes)
        return shown[0] if resolved.is_single else restore(shown)


def known_outs(outs: Any) -> tuple[ArraySpec, ...] | None:
    """Return the results if all calls have the same; None if they are not known yet."""
    return None if outs is None or _is_function(outs) else check_outs(port.flatten(outs)[0])


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type) and not hasattr(value, "shape")


def evaluate(what: str, value: Any, inputs: Sequence[Any]) -> Any:
    """Return a value; for a function of the inputs' shapes and dtypes, return its result."""
    return call_named(what, value, *map(port.shape_of, inputs)) if _is_function(value) else value
