"""The function that authors call for an entry point of a module: `KernelFunction`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from be_runtime.call.attributes import (
    CallOptions,
    Options,
    check_options,
    convert_attributes,
    hold,
    known_dtype,
    takes_as_is,
    with_defaults,
)
from be_runtime.call.compiled_function import (
    CompiledFunction,
    Converted,
    KernelTarget,
    Program,
    Targets,
    bind_call,
    default_method,
)
from be_runtime.call.resolve import WANT, CallSignature, Export, Resolved, asked_results, resolve
from be_runtime.call.signature import call_text, describe, inspect_signature
from be_runtime.errors import ArgumentError, refuse_unknown
from be_runtime.frames import public
from be_runtime.jax.arrays import Value
from be_runtime.jax.rules import Derivative, Rule
from be_runtime.signature.model import Role
from be_toolchain.named import NamedTuple


class KernelSource(Protocol):
    """The code of a kernel that a function of arrays calls: the one interface of all sources of kernels."""

    def target(self, call: Resolved, scalars: Mapping[str, Value]) -> KernelTarget:
        """Make the kernel for the arrays and scalars of a call, and return its target."""


class EntryPoint(NamedTuple):
    """The code of a function of a compiled module, a `KernelSource` that is made when the module is loaded.

    Parameters
    ----------
    targets : tuple of (str, str)
        Registered targets.
    has_state : bool
    """

    targets: Targets
    has_state: bool = False

    def target(self, _call: Resolved, scalars: Mapping[str, Value]) -> KernelTarget:
        """Return the target, which is one for all calls."""
        return KernelTarget(self.targets, tuple(scalars.items()), has_state=self.has_state)


class Code(ABC):
    """The compiled code of a function of a module."""

    @abstractmethod
    def __call__(self) -> Targets:
        """Register the function's targets, and return each with its platform of JAX."""

    @abstractmethod
    def exports(self) -> tuple[Export, ...]:
        """Return the symbols for calls without JAX, of each platform."""

    @abstractmethod
    def in_torch(self, function: KernelFunction[..., Any]) -> Program:
        """Return the function for PyTorch tensors."""


class RuledFunction(CompiledFunction, ABC):
    """A function of JAX arrays that can have rules for derivatives."""

    def __init__(self, name: str, label: str, doc: str | None, derivative: Derivative | None = None) -> None:
        super().__init__(name, label, doc)
        self._derivative = derivative or Derivative()

    @abstractmethod
    def call_signature(self) -> CallSignature | None:
        """Return the signature of the calls, if it is known."""

    @abstractmethod
    def _named(self, name: str) -> RuledFunction:
        """Return the function that a rule names, or raise KeyError."""

    @property
    def derivative(self) -> Derivative:
        """The rules that the function has now."""
        return self._derivative

    @public
    def defvjp(self, forward: str | Program | None, backward: str | Program) -> None:
        """Define the reverse-mode derivative, as ``jax.custom_vjp`` does.

        A rule is a kernel or a Python function. A string names a kernel: an entry point of the same module. The
        attributes of a call, including the defaults of the called function, are keyword arguments of the rule: a kernel
        receives those attributes that the kernel's arg_spec declares, and a Python function receives all attributes.

        Parameters
        ----------
        forward : str, callable or None
            Rule that computes the results and the residuals. A kernel takes the inputs and returns the results and then
            the residuals. A Python function returns a pair of the results and the residuals. With None, the residuals
            are the inputs.
        backward : str or callable
            Rule that computes the cotangents of the inputs. A kernel takes the residuals and then the cotangents of the
            results, and returns a cotangent for each input with floating-point or complex elements. If `forward`
            is None, a kernel may leave out the residuals. Otherwise, a kernel may also take the inputs, before the
            residuals. A Python function takes the residuals and the cotangents of the results, and returns a cotangent
            or None for each input.

        Raises
        ------
        ArgumentError
            A rule is neither a function nor the name of an entry point of the same module.

        See Also
        --------
        - `gradcheck`: compare the derivatives with finite differences.
        - :doc:`/transforms`: derivatives of kernels.

        Examples
        --------
        >>> import be_runtime
        >>> import jax
        >>> import jax.numpy as jnp
        >>> ops = be_runtime.load_cpp_inline(
        ...     "doc_rules",
        ...     '''
        ... #include "brainevent/common.h"
        ... // @BE twice arg[... n]:float32 ret[... n]:float32
        ... void twice(const BE::Tensor x, BE::Tensor y) {
        ...   for (int64_t i = 0; i < x.numel(); ++i)
        ...     y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
        ... }''',
        ... )
        >>> ops.twice.defvjp(None, lambda inputs, cotangent: (2 * cotangent,))
        >>> jax.grad(lambda x: ops.twice(x).sum())(jnp.ones(2)).tolist()
        [2.0, 2.0]
        """
        ahead = None if forward is None else self._rule(forward, "forward")
        self._derive(self._derivative._replace(forward=ahead, backward=self._rule(backward, "backward")))

    @public
    def deftranspose(self, transpose: str | Program, linear_in: int | Sequence[int] = 0) -> None:
        """Declare that the function is linear in an input, and define the derivatives with respect to this input.

        Parameters
        ----------
        transpose : str or callable
            The name of an entry point of the same module, a kernel, or a Python function. This rule takes the inputs of
            the call, with the cotangent of the result in place of the linear input. The rule returns the cotangent of
            the linear input.
        linear_in : int or sequence of int, default 0
            Index of the linear input, or several indices that share the rule. To define different rules for several
            inputs, call this method once for each input.

        Raises
        ------
        ArgumentError
            There is no such input or entry point.

        See Also
        --------
        - `gradcheck`: compare the derivatives with finite differences.
        - :doc:`/transforms`: derivatives of kernels.

        Examples
        --------
        >>> import be_runtime
        >>> import jax
        >>> import jax.numpy as jnp
        >>> ops = be_runtime.load_cpp_inline(
        ...     "doc_rules",
        ...     '''
        ... #include "brainevent/common.h"
        ... // @BE twice arg[... n]:float32 ret[... n]:float32
        ... void twice(const BE::Tensor x, BE::Tensor y) {
        ...   for (int64_t i = 0; i < x.numel(); ++i)
        ...     y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
        ... }''',
        ... )
        >>> ops.twice.deftranspose("twice")
        >>> jax.grad(lambda x: ops.twice(x).sum())(jnp.ones(2)).tolist()
        [2.0, 2.0]
        """
        signature = self.call_signature()
        numbers = (linear_in,) if isinstance(linear_in, int) else tuple(linear_in)
        count = math.inf if signature is None else len(signature.with_role(Role.ARG))
        if not numbers or not all(0 <= number < count for number in numbers):
            known = "" if signature is None else f" 0 to {int(count) - 1}"
            raise ArgumentError(f"linear_in is {linear_in!r}, but {self.__qualname__} has inputs{known}")
        rule = self._rule(transpose, "transpose")
        known_rules = {**dict(self._derivative.transposes), **dict.fromkeys(numbers, rule)}
        self._derive(self._derivative._replace(transposes=tuple(sorted(known_rules.items(), key=lambda pair: pair[0]))))

    def _derive(self, derivative: Derivative) -> None:
        """Use other rules from now on, in new traces."""
        self._derivative = derivative
        self.clear()

    def _rule(self, rule: object, what: str) -> Rule:
        if isinstance(rule, str):
            try:
                rule = self._named(rule)
            except KeyError as error:
                raise ArgumentError(f"the {what} rule of {self.__qualname__}: {error.args[0]}") from None
        signature = rule.call_signature() if isinstance(rule, RuledFunction) else None
        if isinstance(rule, RuledFunction) and signature is not None:
            return kernel_rule(rule, signature)
        if not callable(rule):
            raise ArgumentError(f"the {what} rule of {self.__qualname__} is {rule!r}, neither a name nor a function")
        return Rule(getattr(rule, "__name__", what), rule, self._attribute_names())

    def _attribute_names(self) -> tuple[str, ...]:
        """Return the names of the attributes that a Python rule gets."""
        signature = self.call_signature()
        return () if signature is None else signature.attribute_names


P = ParamSpec("P")
R = TypeVar("R")


class KernelFunction(RuledFunction, Generic[P, R]):
    """A function of arrays that calls an entry point of a module.

    The function works in ``jax.jit``. The arg_spec and the rules of the function determine whether the function can be
    batched, differentiated and sharded. ``help(ops.scale)`` prints the inputs, attributes and results of ``ops.scale``.

    See Also
    --------
    - :doc:`/calling`: attributes, result shapes and derivatives.
    - :doc:`/transforms`: batches, derivatives and several devices.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> ops = be_runtime.load_cpp_inline(
    ...     "doc_scale",
    ...     '''
    ... #include "brainevent/common.h"
    ... // @BE scale arg[... n]:float32 ret[... n]:float32 attr.by:float32=2
    ... void scale(const BE::Tensor x, BE::Tensor y, float by) {
    ...   for (int64_t i = 0; i < x.numel(); ++i)
    ...     y.data_ptr<float>()[i] = by * x.data_ptr<float>()[i];
    ... }''',
    ... )
    >>> jax.jit(ops.scale)(jnp.arange(3.0)).tolist()
    [0.0, 2.0, 4.0]
    >>> jax.vmap(lambda x: ops.scale(x, by=3.0))(jnp.ones((2, 1))).tolist()
    [[3.0], [3.0]]
    """

    def __init__(
        self,
        signature: CallSignature,
        targets: Callable[[], Targets],
        sibling: Callable[[str], KernelFunction[..., Any]],
        options: Options | None = None,
        derivative: Derivative | None = None,
    ) -> None:
        self.signature = signature
        self._targets = targets
        self._torch: Program | None = None
        self._sibling = sibling
        self._options = default_method(options or Options(), signature, takes_any_extent=True)
        self._has_numbers = any(param.by_name for param in signature.params)
        super().__init__(
            signature.label.rpartition(".")[2],
            signature.label,
            f"{call_text(signature, has_outs=self.has_outs)}\n\n{describe(signature)}",
            derivative,
        )

    def call_signature(self) -> CallSignature:
        """Return the entry point's signature."""
        return self.signature

    def _named(self, name: str) -> RuledFunction:
        return self._sibling(name)

    @property
    def has_outs(self) -> bool:
        """True if `with_options` set `outs`."""
        return self._options.outs is not None

    if TYPE_CHECKING:

        def __call__(self, *arrays: P.args, **attributes: P.kwargs) -> R:
            """Call the kernel, see `CompiledFunction`."""

    @overload
    def with_options(self, *, outs: Any, **options: Unpack[CallOptions]) -> KernelFunction[..., R]: ...

    @overload
    def with_options(self, **options: Unpack[CallOptions]) -> KernelFunction[P, R]: ...

    @public
    def with_options(self, *, outs: Any = None, **options: Unpack[CallOptions]) -> KernelFunction[..., R]:
        """Return a copy of the function with other options.

        Parameters
        ----------
        outs : ShapeDtypeStruct, sequence of them, or callable, optional
            Shape and dtype of each result, for calls without the argument ``outs``. A callable takes the inputs and
            the attributes.
        vmap_method : str, optional
            Value of ``vmap_method`` for ``jax.ffi.ffi_call``. If an array has no declared axes, ``vmap`` needs this
            option. Otherwise, the default depends on the axes. One call processes a whole batch if the axes of all
            arrays begin with ``...``, as in ``[... n]``, or if a :doc:`parallel axis </arg-spec>` comes first in all
            results and all mapped inputs. With other axes, the default is ``"sequential"``.
        input_output_aliases : dict of int to int, optional
            Dictionary from the index of an input to the index of the result that may share the input's memory.
        has_side_effect : bool, default False
            Run the kernel even if the program does not use the results. XLA chooses the order of such calls.
        ordered : bool, default False
            Run all calls with this option in the order of the program. This option implies `has_side_effect`.
        input_layouts : sequence of (sequence of int or None), optional
            Axes of each input from major to minor in memory, as for ``jax.ffi.ffi_call``.
        output_layouts : sequence of (sequence of int or None), optional
            Axes of each result from major to minor in memory, as for ``jax.ffi.ffi_call``.
        on_gather : {"warn", "error"}, default "warn"
            Issue a `GatherWarning` or raise an error if an argument is split over devices along an axis that the kernel
            needs as a whole.
        random : bool, default False
            Declare that results differ from call to call. Otherwise the checks of `be_runtime.debug` report the
            difference.

        Returns
        -------
        KernelFunction
            Function with these options. An option that is not passed has its default value, even if an earlier
            `with_options` set the option.

        Raises
        ------
        ArgumentError
            An option has a wrong type or value.

        See Also
        --------
        - :doc:`/calling`: result shapes, aliases, effects and layouts.
        - :doc:`/transforms`: batches, derivatives and several devices.

        Examples
        --------
        >>> log = ops.log.with_options(ordered=True)  # doctest: +SKIP
        >>> log(x)  # doctest: +SKIP
        """
        refuse_unknown(options, CallOptions, "with_options")
        return self._with(check_options({"outs": outs, **options}))

    def _with(self, options: Options) -> KernelFunction[..., R]:
        """Return the function with other options; a function that follows its files overrides it."""
        made = KernelFunction[..., R](self.signature, self._targets, self._sibling, options, self._derivative)
        return made.checked_by(self.mode)

    def __getattr__(self, name: str) -> Any:
        """Return the signature for `inspect.signature`, made on first use."""
        if name != "__signature__":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = self.__dict__[name] = inspect_signature(self.signature, has_outs=self.has_outs)
        return found

    def __repr__(self) -> str:
        from be_runtime.signature.grammar import render_spec

        return f"<{self.__qualname__}: {' '.join(render_spec(self.signature.params))}>"

    def exports(self) -> tuple[Export, ...]:
        """Return the symbols for calls without JAX, of each platform.

        Raises
        ------
        ArgumentError
            The function belongs to no module.
        """
        return self._code().exports()

    def in_torch(self) -> Program:
        """Return the function for PyTorch tensors, see `be_runtime.torch.functions`.

        Raises
        ------
        ArgumentError
            The function belongs to no module, only JAX can call it, or `with_options` has set results or layouts.
        """
        if self._torch is None:
            options = self._options
            if (options.outs, options.input_layouts, options.output_layouts) != (None, None, None):
                raise ArgumentError(
                    f"{self.__qualname__} has outs or layouts by with_options, which are for arrays of JAX",
                    hints=("call the function of the module: its tensors are row-major",),
                )
            self._torch = self._code().in_torch(self)
        return self._torch

    def _code(self) -> Code:
        if not isinstance(self._targets, Code):
            raise ArgumentError(f"{self.__qualname__} takes arrays of JAX alone: it belongs to no module")
        return self._targets

    def _placed(self, arrays: tuple[Any, ...], attributes: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, label = self.signature.with_role(Role.ARG), self.__qualname__
        if len(arrays) == len(args) and not any(param.by_name and param.name in attributes for param in args):
            return arrays, attributes  # all by position, as a rule of a derivative passes them
        left, rest, placed = dict(attributes), list(reversed(arrays)), list[Any]()
        for param in args:
            if not param.by_name:
                placed.append(rest.pop() if rest else None)
                continue
            value = left.pop(param.name, param.default)
            if value is None:
                hint = f"pass it by name, {param.name}=..., or pass all inputs by position"
                raise ArgumentError(f"{label} needs the number {param.name!r}", hints=(hint,))
            if not hasattr(value, "aval") and not takes_as_is(value, known_dtype(param)):  # no array or tracer of JAX
                number = hold(value, known_dtype(param))
                if number is None:
                    raise ArgumentError(f"{label}: {param.name} is {value!r}, not a valid {known_dtype(param).name}")
                value = number
            placed.append(value)
        return (*placed, *reversed(rest)), left

    def _converted(self, attributes: Mapping[str, Any]) -> Converted:
        given = dict(attributes)
        want = _names(self.__qualname__, given.pop(WANT, ())) if self.signature.has_optional_results else ()
        asked = ((WANT, " ".join(want)),) if want else ()
        return (*convert_attributes(self.__qualname__, self.signature.with_role(Role.ATTR), given), *asked)

    def _traced(self, outs: Any, attributes: Mapping[str, Any], converted: Converted) -> Program:
        source = EntryPoint(self._targets(), has_state=bool(self.signature.with_role(Role.STATE)))
        return self._calling(source, outs, attributes, converted)

    def _calling(self, source: KernelSource, outs: Any, attributes: Mapping[str, Any], converted: Converted) -> Program:
        """Return the function of arrays that calls a source's kernels."""
        from be_runtime.jax.calls import wrap

        described, names = self._options.outs if outs is None else outs, list[str]()
        if isinstance(source, EntryPoint):  # functions of its module may compute sizes
            names = [name for _, name in source.targets]
        for_xla = dict(pair for pair in converted if pair[0] != WANT or not self.signature.has_optional_results)
        derivative, every = self._derivative, with_defaults(self.signature.with_role(Role.ATTR), attributes)
        given = dict(attributes)
        want: tuple[str, ...] = ()
        if self.signature.has_optional_results and WANT in given:
            want = every[WANT] = _names(self.__qualname__, given.pop(WANT))

        def run(*arrays: Any) -> Any:
            aliases = dict(self._options.aliases)
            resolved = resolve(self.signature, arrays, described, given, aliases=aliases, want=want, targets=names)
            target = source.target(resolved, for_xla)
            transposes = derivative.bound_transposes(self.__qualname__, arrays, every, converted)
            options = self._options
            if options.output_layouts is not None and len(options.output_layouts) == len(resolved.asked):
                options = options._replace(output_layouts=tuple(compress(options.output_layouts, resolved.asked)))
            shown = bind_call(self.__qualname__, resolved, options, target, transposes)
            if resolved.is_single:
                return shown[0]
            rest = iter(shown)
            return shown if all(resolved.asked) else tuple(next(rest) if each else None for each in resolved.asked)

        run.__name__ = run.__qualname__ = self.__name__
        asked: Sequence[bool] = ()
        if self.signature.has_optional_results and not (callable(described) and not hasattr(described, "shape")):
            outs = described if isinstance(described, Sequence) else None
            asked = asked_results(self.__qualname__, self.signature.with_role(Role.RET), outs, want)
        return wrap(derivative, self.__qualname__, run, self.signature.params, every, converted, asked)


def _names(label: str, want: object) -> tuple[str, ...]:
    """Return the names in the argument `want` of a call, sorted."""
    names = (want,) if isinstance(want, str) else want
    if (
        not isinstance(names, Collection)
        or isinstance(names, Mapping)
        or not all(isinstance(name, str) for name in names)
    ):
        raise ArgumentError(f"{label}: want is {want!r}, not a set of names of optional results")
    return tuple(sorted(names))


def kernel_rule(function: CompiledFunction, signature: CallSignature) -> Rule:
    """Return the rule that calls a kernel with a signature."""
    arrays = len(signature.with_role(Role.ARG))
    names = (*signature.attribute_names, WANT) if signature.has_optional_results else signature.attribute_names
    return Rule(signature.label, function, names, is_kernel=True, inputs=arrays)


class SourceFunction(KernelFunction[..., Any]):
    """A function of JAX arrays whose source makes host code when a call is traced; it belongs to no module.

    Parameters
    ----------
    signature : CallSignature
    source : KernelSource
    options : Options
    derivative : Derivative, optional
    """

    def __init__(
        self, signature: CallSignature, source: KernelSource, options: Options, derivative: Derivative | None = None
    ) -> None:
        super().__init__(signature, tuple, self._no_sibling, options, derivative)
        self._source = source

    def _no_sibling(self, name: str) -> KernelFunction[..., Any]:
        raise KeyError(f"{self.__qualname__} belongs to no module with {name!r}: pass a function")

    def _with(self, options: Options) -> KernelFunction[..., Any]:
        return SourceFunction(self.signature, self._source, options, self._derivative).checked_by(self.mode)

    def _traced(self, outs: Any, attributes: Mapping[str, Any], converted: Converted) -> Program:
        return self._calling(self._source, outs, attributes, converted)
