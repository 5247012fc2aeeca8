"""The function of an entry point, as an author calls it: arrays and attributes in, arrays out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, TypedDict, TypeVar, Unpack, overload

from be_runtime.call.attributes import convert_attributes
from be_runtime.call.derivatives import Derivative, Rule
from be_runtime.call.python_signature import documentation, inspect_signature
from be_runtime.call.resolve import CallSignature, resolve
from be_runtime.errors import ArgumentError
from be_runtime.spec.model import Role
from be_runtime.xla import jax_port
from be_runtime.xla.arrays import check_aliases, check_vmap_method
from be_runtime.xla.attribute_values import Value

P = ParamSpec("P")
R = TypeVar("R")

_MOST_PROGRAMS = 256
"""Combinations of attributes whose programs are kept; the oldest goes first."""

Layouts = tuple[tuple[int, ...] | None, ...]
Zeros = tuple[tuple[str, float], ...]
"""Attributes that are 0, and their signs: Python takes 0.0 and -0.0 for one value."""


class Options(NamedTuple):
    """Options of a function, see `KernelFunction.with_options`."""

    vmap_method: str | None = None
    aliases: tuple[tuple[int, int], ...] = ()
    has_side_effect: bool = False
    ordered: bool = False
    outs: Any = None
    input_layouts: Layouts | None = None
    output_layouts: Layouts | None = None
    on_gather: Literal["warn", "error"] = "warn"


class CallOptions(TypedDict, total=False):
    """The keyword arguments of `KernelFunction.with_options` but `outs`."""

    vmap_method: str | None
    input_output_aliases: Mapping[int, int] | None
    has_side_effect: bool
    ordered: bool
    input_layouts: Sequence[Sequence[int] | None] | None
    output_layouts: Sequence[Sequence[int] | None] | None
    on_gather: Literal["warn", "error"]


class KernelFunction(Generic[P, R]):
    """A function of JAX arrays that calls an entry point of a module.

    Parameters
    ----------
    signature : CallSignature
    targets : callable
        Function that registers the entry point's targets, and returns the names of JAX's platforms with them.
    sibling : callable
        Function that returns another function of the module by its name.
    options : Options
    derivative : Derivative
    """

    def __init__(
        self,
        signature: CallSignature,
        targets: Callable[[], tuple[tuple[str, str], ...]],
        sibling: Callable[[str], KernelFunction[..., Any]],
        options: Options | None = None,
        derivative: Derivative | None = None,
    ) -> None:
        self.__name__ = signature.label.rpartition(".")[2]
        self.__qualname__ = signature.label
        self._options = options or Options()
        self.__doc__ = documentation(signature, has_outs=self.has_outs)
        self.signature = signature
        self._targets = targets
        self._sibling = sibling
        self._derivative = derivative or Derivative()
        self._programs: dict[object, tuple[Callable[..., R], Zeros]] = {}
        self._exact: dict[object, Callable[..., R]] = {}
        self._plain: Callable[..., R] = self._first

    @property
    def has_outs(self) -> bool:
        """True if `outs` is among the options."""
        return self._options.outs is not None

    def __call__(self, *arrays: P.args, **attributes: P.kwargs) -> R:
        """Call the kernel.

        Parameters
        ----------
        *arrays : array
            Inputs in the order of the arg_spec. For an optional input, None; for one that takes any number, a sequence.
        outs : ShapeDtypeStruct, sequence of them, or callable, optional
            The shape and dtype of each result, where the arg_spec doesn't tell them. A callable is given the inputs and
            the attributes. For one struct the result is an array, for a sequence a tuple.
        **attributes
            Attributes by name; those with a default may be left out.

        Returns
        -------
        array or tuple of array

        Raises
        ------
        ArgumentError
            Arrays or attributes are not as declared; nothing ran.
        RegistrationError
            The kernel is not for the platform of the program.
        """
        if not attributes:
            return self._plain(*arrays)
        try:
            program, zeros = self._programs[(*attributes.items(),)]
        except (KeyError, TypeError):
            program, zeros = self._find(attributes), ()
        if zeros and not _has_signs(attributes, zeros):
            program = self._find(attributes)
        return program(*arrays)

    @overload
    def with_options(self, *, outs: Any, **options: Unpack[CallOptions]) -> KernelFunction[..., R]: ...

    @overload
    def with_options(self, **options: Unpack[CallOptions]) -> KernelFunction[P, R]: ...

    def with_options(
        self,
        *,
        vmap_method: str | None = None,
        input_output_aliases: Mapping[int, int] | None = None,
        has_side_effect: bool = False,
        ordered: bool = False,
        outs: Any = None,
        input_layouts: Sequence[Sequence[int] | None] | None = None,
        output_layouts: Sequence[Sequence[int] | None] | None = None,
        on_gather: Literal["warn", "error"] = "warn",
    ) -> KernelFunction[..., R]:
        """Return the same function with other options.

        Parameters
        ----------
        vmap_method : str, optional
            As for ``jax.ffi.ffi_call``. By default ``"broadcast_all"`` if all arrays declare leading axes,
            ``"sequential"`` if all declare their axes, else none.
        input_output_aliases : dict of int to int, optional
            Inputs whose memory a result may use.
        has_side_effect : bool
            True to run the kernel even if its results are not used. The order of such calls is XLA's choice.
        ordered : bool
            True to run all calls with this option in the order of the program; it implies `has_side_effect`.
        outs : ShapeDtypeStruct, sequence of them, or callable, optional
            Results of all calls that don't pass `outs`.
        input_layouts, output_layouts : sequence of (sequence of int or None), optional
            Axes of each array from major to minor in memory, as for ``jax.ffi.ffi_call``.
        on_gather : {"warn", "error"}
            Consequence of an argument that is split over devices along an axis of which the kernel needs all: a
            `GatherWarning`, or an error.

        Returns
        -------
        KernelFunction

        Raises
        ------
        ArgumentError
            An option is not allowed.

        Examples
        --------
        >>> log = module.log.with_options(ordered=True)  # doctest: +SKIP
        """
        options = Options(
            vmap_method=check_vmap_method(vmap_method),
            aliases=tuple(sorted(check_aliases(input_output_aliases).items())),
            has_side_effect=bool(has_side_effect or ordered),
            ordered=bool(ordered),
            outs=outs,
            input_layouts=_layouts(input_layouts, "input_layouts"),
            output_layouts=_layouts(output_layouts, "output_layouts"),
            on_gather=on_gather,
        )
        if on_gather not in ("warn", "error"):
            raise ArgumentError(f"on_gather={on_gather!r} is neither 'warn' nor 'error'")
        return KernelFunction(self.signature, self._targets, self._sibling, options, self._derivative)

    def defvjp(self, forward: str | Callable[..., Any] | None, backward: str | Callable[..., Any]) -> None:
        """Give the function a backward rule, as ``jax.custom_vjp`` does.

        Both rules get the attributes of the call that they declare; Python functions get all as keyword arguments.

        Parameters
        ----------
        forward : str, callable or None
            None if the backward rule needs the inputs alone. An entry point of the module, by name, takes the inputs
            and gives the results, followed by residuals. A Python function returns the results and the residuals.
        backward : str or callable
            An entry point takes the residuals and the cotangents of the results, or before them the inputs, and gives
            the cotangent of each input with derivatives. A Python function takes the residuals (the inputs, if
            `forward` is None) and the cotangents of the results, and returns one cotangent, or None, for each input.

        Raises
        ------
        ArgumentError
            The module has no such entry point.

        Examples
        --------
        >>> module.f.defvjp(None, "f_backward")  # doctest: +SKIP
        """
        ahead = None if forward is None else self._rule(forward, "forward")
        self._derive(self._derivative._replace(forward=ahead, backward=self._rule(backward, "backward")))

    def deftranspose(self, transpose: str | Callable[..., Any], linear_in: Sequence[int] = (0,)) -> None:
        """Declare that the function is linear in an input, which gives it a JVP and a transpose.

        Parameters
        ----------
        transpose : str or callable
            An entry point of the module, by name, or a Python function. It takes the arrays of a call with the
            cotangent of the results in place of the input, and gives the cotangent of the input.
        linear_in : sequence of int
            Numbers of the inputs that `transpose` is for. A function may be linear in several inputs, each with a
            transpose of its own.

        Raises
        ------
        ArgumentError
            There is no such input or entry point.

        Examples
        --------
        >>> module.matvec.deftranspose("matvec_transposed", linear_in=(1,))  # doctest: +SKIP
        """
        count = len(self.signature.with_role(Role.ARG))
        for index in linear_in:
            if index not in range(count):
                raise ArgumentError(f"linear_in has {index!r}, but {self.__qualname__} has inputs 0 to {count - 1}")
        rule = self._rule(transpose, "transpose")
        known = {**dict(self._derivative.transposes), **dict.fromkeys(linear_in, rule)}
        self._derive(self._derivative._replace(transposes=tuple(sorted(known.items(), key=lambda pair: pair[0]))))

    def _derive(self, derivative: Derivative) -> None:
        """Use other rules from now on, in programs that are traced anew."""
        self._derivative = derivative
        self._programs.clear()
        self._exact.clear()
        self._plain = self._first

    def _rule(self, rule: object, what: str) -> Rule:
        if isinstance(rule, str):
            try:
                rule = self._sibling(rule)
            except KeyError as error:
                raise ArgumentError(f"the {what} rule of {self.__qualname__}: {error.args[0]}") from None
        if isinstance(rule, KernelFunction):
            signature = rule.signature
            names = tuple(param.name for param in signature.with_role(Role.ATTR))
            return Rule(rule.__qualname__, rule, names, is_kernel=True, inputs=len(signature.with_role(Role.ARG)))
        if not callable(rule):
            raise ArgumentError(f"the {what} rule of {self.__qualname__} is {rule!r}, neither a name nor a function")
        names = tuple(param.name for param in self.signature.with_role(Role.ATTR))
        return Rule(getattr(rule, "__name__", what), rule, names)

    def __getattr__(self, name: str) -> Any:
        """Make the signature for `inspect.signature`."""
        if name != "__signature__":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = self.__dict__[name] = inspect_signature(self.signature, has_outs=self.has_outs)
        return found

    def __repr__(self) -> str:
        from be_runtime.spec import render_spec

        return f"<{self.__qualname__}: {' '.join(render_spec(self.signature.params))}>"

    def _first(self, *arrays: Any) -> R:
        """Make the program of calls without attributes, and run it."""
        self._plain = self._find({})
        return self._plain(*arrays)

    def _find(self, keywords: Mapping[str, Any]) -> Callable[..., R]:
        """Return the program for some attributes and `outs`, made on their first use."""
        attributes = dict(keywords)
        outs = attributes.pop("outs", None)
        converted = convert_attributes(self.__qualname__, self.signature.with_role(Role.ATTR), attributes)
        described = self._options.outs if outs is None else outs
        exact = (tuple(described) if isinstance(described, list) else described, converted)
        program = self._exact.get(exact)
        if program is None:
            program = self._exact[exact] = self._program(described, attributes, converted)
            if len(self._exact) > _MOST_PROGRAMS:
                self._exact.pop(next(iter(self._exact)))
                self._programs.clear()
        zeros = _zeros(attributes)
        if zeros is not None and not isinstance(outs, list):
            self._programs[(*keywords.items(),)] = program, zeros
        return program

    def _program(
        self, outs: Any, attributes: Mapping[str, Any], converted: tuple[tuple[str, Value], ...]
    ) -> Callable[..., R]:
        from be_runtime.xla import jax_call

        options, targets = self._options, self._targets()
        derivative, rets = self._derivative, len(self.signature.with_role(Role.RET))
        vmap_method = options.vmap_method or self.signature.vmap_method

        def run(*arrays: Any) -> Any:
            resolved = resolve(
                self.signature,
                arrays,
                outs,
                attributes,
                as_array=jax_port.as_array,
                aliases=dict(options.aliases),
            )
            hidden: Layouts = (None,) * resolved.scratch
            results = jax_call.bind(
                resolved.operands,
                label=self.__qualname__,
                targets=targets,
                results=resolved.results,
                attributes=tuple(sorted((*converted, *resolved.attributes))),
                vmap_method=vmap_method,
                aliases=options.aliases,
                effect="ordered" if options.ordered else "side" if options.has_side_effect else "none",
                input_layouts=options.input_layouts,
                output_layouts=None if options.output_layouts is None else (*options.output_layouts, *hidden),
                split=resolved.split._replace(on_gather=options.on_gather),
                transposes=derivative.bound_transposes(attributes),
            )
            shown = tuple(results[: len(results) - resolved.scratch])
            return shown[0] if resolved.is_single else shown

        run.__name__ = run.__qualname__ = self.__name__
        return jax_call.compiled(derivative.wrap(self.__qualname__, run, rets, attributes))


def _layouts(given: Sequence[Sequence[int] | None] | None, what: str) -> Layouts | None:
    """Check layouts: a permutation of the axes of each array."""
    if given is None:
        return None
    layouts = tuple(None if each is None else tuple(each) for each in given)
    for index, each in enumerate(layouts):
        if each is not None and sorted(each) != list(range(len(each))):
            raise ArgumentError(f"{what}[{index}] is {each}, which is not a permutation of an array's axes")
    return layouts


def _has_signs(attributes: Mapping[str, Any], zeros: Zeros) -> bool:
    return all(math.copysign(1.0, attributes[name]) == sign for name, sign in zeros)


def _zeros(attributes: Mapping[str, Any]) -> Zeros | None:
    """Return the attributes that are 0 with their signs; None if equal attributes may differ in another way."""
    zeros = []
    for name, value in attributes.items():
        if isinstance(value, str):
            continue
        if not isinstance(value, Real) or math.isnan(value):
            return None
        if value == 0:
            zeros.append((name, math.copysign(1.0, value)))
    return tuple(zeros)
