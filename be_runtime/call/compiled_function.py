"""A function of arrays with a compiled program for each combination of attributes, and the call it traces into."""

from __future__ import annotations

import copy
import faulthandler
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple, Self

from be_runtime import checks
from be_runtime.call.attributes import Options
from be_runtime.call.derivatives import Transpose
from be_runtime.call.resolve import CallSignature, Resolved, as_argument
from be_runtime.errors import ArgumentError
from be_runtime.frames import hide_frames, public
from be_runtime.jax import port
from be_runtime.jax.arrays import Value, match_layouts
from be_runtime.jax.fault_names import NAMES

_MOST_PROGRAMS = 256
"""Limit for the combinations of attributes whose programs are kept; the oldest is dropped first."""

Program = Callable[..., Any]
Converted = tuple[tuple[str, Value], ...]
Zeros = tuple[tuple[str, float], ...]
"""Attributes that are 0, and their signs: for Python, 0.0 equals -0.0."""


class CompiledFunction:
    """A function of JAX arrays that calls a kernel.

    Parameters
    ----------
    name, label, doc : str
        Name of the function, beginning of every message, and description.
    convert : callable
        Function that checks the attributes of a call and converts them.
    trace : callable
        Function of described results, attributes and converted attributes; it returns a function of arrays.
    report : callable, optional
        Function that makes the kernel's report for block sizes.
    """

    mode: checks.Active | None = None
    """Checked mode of all its calls; without one, the checked mode of the thread counts."""

    unchecked: Callable[..., Any]
    """The calls of all functions while no checked mode is on."""

    def __init__(
        self,
        name: str,
        label: str,
        doc: str | None,
        convert: Callable[[Mapping[str, Any]], Converted],
        trace: Callable[[Any, Mapping[str, Any], Converted], Program],
        report: Callable[[Sequence[int] | None], Any] | None = None,
    ) -> None:
        self.__name__, self.__qualname__, self.__doc__ = name, label, doc
        self._convert = convert
        self._trace = trace
        self._report = report
        self._programs: dict[object, Program] = {}
        # The programs by keyword arguments, as far as Python's equality tells them apart, and the same programs for the
        # calls that must be fastest: without keywords, and with one attribute that is not 0, by its name and its value.
        self._known: dict[object, tuple[Program, Zeros]] = {}
        self._plain: Program | None = None
        self._single: dict[str, dict[object, tuple[type, Program]]] = {}
        if faulthandler.is_enabled():
            _note_lines()

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}>"

    def clear(self) -> None:
        """Forget the compiled programs, and all programs of JAX that may contain them."""
        from be_runtime.jax import transforms

        if self._programs:
            transforms.forget_programs()
        self._programs.clear()
        self._forget_keys()
        self._plain = None

    def __call__(self, /, *arrays: Any, outs: Any = None, **attributes: Any) -> Any:
        """Call the kernel.

        Parameters
        ----------
        *arrays : array
            Inputs in the order of the arg_spec. An optional input may be None; an input for any number of arrays is a
            sequence.
        outs : ShapeDtypeStruct, sequence of them, or callable, optional
            Shape and dtype of each result, if the arg_spec doesn't declare them. A callable takes the inputs and the
            attributes. For one struct the result is an array, for a sequence a tuple.
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
        try:
            program = None
            if outs is None and not attributes:
                program = self._plain
            elif outs is None and len(attributes) == 1:
                try:
                    (name,) = attributes
                    value = attributes[name]
                    kind, known = self._single[name][value]
                    if value.__class__ is kind:
                        program = known
                except (KeyError, TypeError):
                    pass
            if program is None:
                program = self._program(outs, attributes)
            try:
                return program(*arrays)
            except (TypeError, OverflowError):
                for number, each in enumerate(arrays):
                    as_argument(self.__qualname__, number, each, port.as_array)
                raise
        except Exception as error:  # as `public` does, without another call
            hide_frames(error)
            raise

    def report(self, *, block_sizes: Sequence[int] | None = None) -> Any:
        """Return the compiler's report on a kernel of `cuda_kernel`, as `CompiledModule.report` does for a module.

        Raises
        ------
        ArgumentError
            The kernel is not from `cuda_kernel`; a module has a report of all its kernels.
        """
        if self._report is None:
            raise ArgumentError(
                f"{self.__qualname__} has no report of its own", hints=("a module has one of all: module.report()",)
            )
        return self._report(block_sizes)

    def checked_by(self, mode: checks.Active | None) -> Self:
        """Set the checked mode of all calls, and return the function."""
        self.mode = mode
        return self

    def as_hijax(self) -> Callable[..., Any]:
        """Return a function whose calls are a high-level primitive of ``jax.experimental.hijax`` in JAX's programs.

        It takes the same arguments, and has this function's present rules for ``vmap`` and derivatives.

        Returns
        -------
        callable

        Raises
        ------
        TransformError
            This JAX has no such primitives: they came with JAX 0.10.

        Examples
        --------
        >>> f = module.f.as_hijax()  # doctest: +SKIP
        """
        from be_runtime.jax import calls

        return calls.high_level(self.__name__, lambda keywords: self._program(keywords.pop("outs", None), keywords))

    def _program(self, outs: Any, attributes: Mapping[str, Any]) -> Program:
        """Return the program for some keyword arguments, which is made on their first use."""
        # An enumeration's member, or a complex number, may equal an int: the types count too.
        try:
            program, zeros = self._known[(outs, *attributes.items(), *map(type, attributes.values()))]
            if not zeros or all(math.copysign(1.0, attributes[name]) == sign for name, sign in zeros):
                return program
        except (KeyError, TypeError):
            pass  # not the context of a wrong argument's error
        from be_runtime.jax import calls

        described, converted = self._described(outs, attributes)
        found = self._programs.get((described, converted))
        if found is None:
            own = copy.deepcopy(dict(attributes))  # the caller may change an array before a later trace
            found = calls.compiled(self._trace(described, own, converted))
            found = self._programs.setdefault((described, converted), found)
            if len(self._programs) > _MOST_PROGRAMS:
                self._programs.pop(next(iter(self._programs)))
                self._forget_keys()
        signs = _zeros(attributes)
        if signs is None:
            return found
        if len(self._known) >= _MOST_PROGRAMS:
            self._forget_keys()
        self._known[(described, *attributes.items(), *map(type, attributes.values()))] = found, signs
        if outs is None and not attributes:
            self._plain = found
        elif outs is None and len(attributes) == 1 and not signs:
            ((name, value),) = attributes.items()
            self._single.setdefault(name, {}).setdefault(value, (type(value), found))
        return found

    def _forget_keys(self) -> None:
        self._known.clear()
        self._single.clear()

    def _described(self, outs: Any, attributes: Mapping[str, Any]) -> tuple[Any, Converted]:
        """Return the shapes and dtypes in `outs`, and the converted attributes."""
        converted = self._convert(attributes)
        described = tuple(outs) if isinstance(outs, list) else outs
        if outs is not None and not callable(outs):  # arrays have no hash
            described = port.like_arrays(described)
        try:
            hash(described)
        except TypeError:
            raise ArgumentError(
                f"{self.__qualname__}: outs is {outs!r}", hints=("pass a jax.ShapeDtypeStruct, or a tuple of them",)
            ) from None
        return described, converted


_call_compiled = CompiledFunction.unchecked = CompiledFunction.__call__


@public
def _call_named(self: CompiledFunction, /, *arrays: Any, outs: Any = None, **attributes: Any) -> Any:
    """Call the kernel while Python's fault handler is on: a fault names the line of the call."""
    NAMES.add_line(self.__qualname__)
    return _call_compiled(self, *arrays, outs=outs, **attributes)


@public
def _call_checked(self: CompiledFunction, /, *arrays: Any, outs: Any = None, **attributes: Any) -> Any:
    """Call the kernel while a checked mode is on somewhere: trace each call, since each has a line of its own."""
    mode = self.mode or checks.active()
    if mode is None:
        return self.unchecked(*arrays, outs=outs, **attributes)
    described, converted = self._described(outs, attributes)
    with checks.using(mode):
        program = self._trace(described, dict(attributes), converted)
        return mode.run(lambda: program(*arrays))


def check_calls(*, is_on: bool) -> None:
    """Let all calls look for a checked mode, or none: without checked modes, calls pay nothing for them."""
    CompiledFunction.__call__ = _call_checked if is_on else CompiledFunction.unchecked  # type: ignore[method-assign]


def _note_lines() -> None:
    """Let all calls note their lines from now on; checked calls always do."""
    if CompiledFunction.__call__ is CompiledFunction.unchecked:
        CompiledFunction.__call__ = _call_named  # type: ignore[method-assign]
    CompiledFunction.unchecked = _call_named


def _zeros(attributes: Mapping[str, Any]) -> Zeros | None:
    """Return the attributes that are 0, with their signs; None if equal attributes may differ in another way."""
    zeros = []
    for name, value in attributes.items():
        if isinstance(value, str):
            continue
        if not isinstance(value, Real) or math.isnan(value):
            return None
        if value == 0:
            zeros.append((name, math.copysign(1.0, value)))
    return tuple(zeros)


Targets = tuple[tuple[str, str], ...]
"""Pairs of a platform of JAX and the target's name on it."""

Computed = tuple[tuple[str, tuple[str, ...]], ...]
"""Attributes that depend on the extents of one device, see `Split`."""


class KernelTarget(NamedTuple):
    """The target of a call without a module, and its attributes for XLA.

    Parameters
    ----------
    targets : tuple of (str, str)
    attributes : tuple of (str, Value)
    computed : tuple of (str, tuple of str), or None
    """

    targets: Targets
    attributes: Converted
    computed: Computed | None = ()


def default_method(options: Options, signature: CallSignature | None, *, takes_any_extent: bool = False) -> Options:
    """Return options with the `vmap` method that the declared axes allow, if the author gives none.

    Parameters
    ----------
    takes_any_extent : bool
        True for a kernel whose calls may have other extents at run time than in the trace.
    """
    if options.vmap_method is not None or signature is None:
        return options
    is_merged = takes_any_extent and signature.has_parallel_first
    return options._replace(vmap_method="merged" if is_merged else signature.vmap_method)


def bind_call(
    label: str,
    resolved: Resolved,
    options: Options,
    targets: Targets,
    attributes: Converted,
    transposes: Sequence[tuple[int, Transpose]] = (),
    computed: Computed | None = (),
    *,
    has_state: bool = False,
) -> tuple[Any, ...]:
    """Call a target, and return the results without scratch memory.

    Parameters
    ----------
    has_state : bool
        True for a kernel that keeps an object from call to call.

    Raises
    ------
    ArgumentError
        The layouts don't fit the arrays of the call.
    """
    from be_runtime.jax import calls

    match_layouts(label, options.input_layouts, resolved.inputs, "input_layouts")
    match_layouts(label, options.output_layouts, resolved.shown, "output_layouts")
    hidden = (None,) * resolved.scratch
    given = (*attributes, *resolved.attributes)
    if (mode := checks.active()) is not None:
        guarded = mode.guard(targets)
        once = has_state or options.effect != "none"
        caller = calls.caller()
        mode.note_call(label, caller)
        layouts = [
            *(options.input_layouts or [None] * len(resolved.inputs)),
            *(options.output_layouts or [None] * len(resolved.shown)),
        ]
        chosen = mode.checks.without("repeat") if options.random else mode.checks
        text = checks.call_text(label, caller, chosen, once=once, hidden=resolved.scratch, layouts=layouts)
        given = given if guarded == targets else (*given, (checks.ATTRIBUTE, text))
        targets = guarded
    results = calls.bind(
        resolved.operands,
        label=label,
        targets=targets,
        results=resolved.results,
        attributes=tuple(sorted(given)),
        vmap_method=options.vmap_method,
        aliases=options.aliases,
        effect=options.effect,
        input_layouts=options.input_layouts,
        output_layouts=None if options.output_layouts is None else (*options.output_layouts, *hidden),
        split=resolved.split._replace(on_gather=options.on_gather, computed=computed),
        transposes=tuple(transposes),
    )
    return tuple(results[: len(resolved.shown)])
