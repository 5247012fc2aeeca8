"""A function of arrays with a compiled program for each combination of attributes, and the traced call."""

from __future__ import annotations

import copy
import faulthandler
import math
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, NoReturn, Self

from be_runtime import checks, errors, frames
from be_runtime.call.attributes import Options
from be_runtime.call.resolve import CallSignature, Resolved, as_argument
from be_runtime.checks import CheckedMode
from be_runtime.jax import fault_names, port
from be_runtime.jax.arrays import Value, match_alias_layouts, match_layouts
from be_toolchain.named import NamedTuple

if TYPE_CHECKING:
    from be_runtime.jax.rules import Transpose

_MOST_PROGRAMS = 256
"""Limit for the combinations of attributes whose programs are kept; the oldest is dropped first."""

Program = Callable[..., Any]
Report = Callable[[Sequence[int] | None], Any]
Converted = tuple[tuple[str, Value], ...]


class OfThisProcess:
    """Loaded code, or a function of it: there is one in a process."""

    def __copy__(self) -> Self:
        """Return the function itself, as Python does for its own functions."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return the function itself."""
        return self

    def __reduce__(self) -> NoReturn:
        """Refuse to pickle: the code is loaded in this process."""
        name = getattr(self, "__qualname__", type(self).__name__)
        raise TypeError(
            f"{name} can't be pickled, since its code is loaded in this process alone: load it in the "
            "other process, which finds it in the cache"
        )


class CompiledFunction(OfThisProcess):
    """A function of JAX arrays that calls a kernel. A subclass converts attributes and traces the calls.

    Parameters
    ----------
    name, label, doc : str
        Name of the function, beginning of every message, and description.
    """

    mode: CheckedMode | None = None
    """Checked mode of all its calls; without one, the checked mode of the thread counts."""

    _reporter: Report | None = None
    """Function that makes the kernel's report for block sizes."""

    _has_numbers = False
    """True if calls pass inputs by name."""

    unchecked: Program
    """The calls of all functions while no checked mode is on."""

    def __init__(self, name: str, label: str, doc: str | None) -> None:
        self.__name__, self.__qualname__, self.__doc__ = name, label, doc
        self._programs: dict[object, Program] = {}
        # A tree of the same programs for fast calls: by `outs`, then by the name, type and value of each attribute. The
        # types count, since a member of an enumeration, or a complex number, may equal an int. A leaf has the key None.
        self._known: dict[Any, Any] = {}
        self._leaves = 0
        self._plain: Program | None = None  # of calls without keywords, which must be fastest
        if faulthandler.is_enabled():
            _note_lines()

    @abstractmethod
    def _converted(self, attributes: Mapping[str, Any]) -> Converted:
        """Check the attributes of a call, and convert them."""

    @abstractmethod
    def _traced(self, outs: Any, attributes: Mapping[str, Any], converted: Converted) -> Program:
        """Return the function of arrays for described results and attributes."""

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}>"

    def clear(self) -> None:
        """Forget the compiled programs, and all programs of JAX that may contain them."""
        if self._programs:
            from be_runtime.jax import transforms

            transforms.forget_programs()
        self._programs.clear()
        self._known.clear()
        self._plain = None

    def __call__(self, /, *arrays: Any, outs: Any = None, **attributes: Any) -> Any:  # noqa: C901 - each call costs
        """Call the kernel.

        Parameters
        ----------
        *arrays : array
            Inputs in the order of the arg_spec, with the declared shapes and dtypes. For an optional input, you may
            pass None. For an input that takes any number of arrays, pass a sequence.
        outs : ShapeDtypeStruct, sequence of them, or callable, optional
            Shape and dtype of each result, unless the arg_spec declares them. A callable takes the inputs and the
            attributes.
        **attributes
            Attributes and scalars by name. You may leave out an attribute or a scalar that has a default. If the
            arg_spec declares optional results, the argument ``want`` names the optional results to compute, as in
            ``want={"argmax"}``.

        Returns
        -------
        array or tuple of array
            A single array if the kernel returns one result and `outs` is not a sequence. Otherwise a tuple, with None
            for each optional result that was not requested.

        Raises
        ------
        ArgumentError
            Arrays or attributes do not match the arg_spec. The kernel did not run.
        RegistrationError
            The kernel is not available on the platform of the program, such as a CUDA kernel in a program for the CPU.
        """
        try:
            if "torch" in sys.modules and arrays and arrays[0].__class__ not in _OTHERS and _are_of_torch(arrays):
                return self._call_torch(arrays, outs, attributes)
            if self._has_numbers:
                arrays, attributes = self._placed(arrays, attributes)
            program = None
            if outs is None and not attributes:
                program = self._plain
            else:
                try:
                    leaf = self._known[outs]
                    for name, value in attributes.items():
                        leaf = leaf[name][value.__class__][value]
                    program, zeros = leaf[None]
                    if zeros and any(math.copysign(1.0, attributes[name]) != sign for name, sign in zeros):
                        program = None  # 0.0 equals -0.0
                except (KeyError, TypeError):
                    pass  # so that it is not the context of a later error
            if program is None:
                program = self._program(outs, attributes)
            try:
                return program(*arrays)
            except (TypeError, OverflowError):
                if _are_of_torch(arrays):  # after an array of JAX, which the error names
                    return self._call_torch(arrays, outs, attributes)
                for number, each in enumerate(arrays):
                    as_argument(self.__qualname__, number, each)
                raise
        except Exception as error:  # as `public` does, without another call
            frames.hide_frames(error)
            raise

    def in_torch(self) -> Program:
        """Return the function for PyTorch tensors, which only a function of a module has.

        Raises
        ------
        ArgumentError
            The function does not belong to a module.
        """
        raise errors.ArgumentError(f"{self.__qualname__} takes arrays of JAX; functions of modules take tensors, too")

    def _call_torch(self, arrays: Sequence[Any], outs: Any, attributes: Mapping[str, Any]) -> Any:
        if outs is not None:
            raise errors.ArgumentError(f"{self.__qualname__}: outs is for arrays of JAX; declare the results' shapes")
        return self.in_torch()(*arrays, **attributes)

    def _placed(self, arrays: tuple[Any, ...], attributes: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Insert the inputs that a call passes by name into its arrays; return the arrays and the other keywords."""
        return arrays, attributes

    def report(self, *, block_sizes: Sequence[int] | None = None) -> Any:
        """Return the compiler's report on a kernel of `cuda_kernel`, as `ModuleInfo.report` does for a module.

        Parameters
        ----------
        block_sizes : sequence of int, optional
            Numbers of threads per block for which the occupancy is computed.

        Returns
        -------
        ModuleReport

        Raises
        ------
        ArgumentError
            The function is not from `cuda_kernel`; call the report of its module.
        """
        if self._reporter is None:
            raise errors.ArgumentError(
                f"{self.__qualname__} has no report of its own",
                hints=("call module.report()",),
            )
        return self._reporter(block_sizes)

    def checked_by(self, mode: CheckedMode | None) -> Self:
        """Set the checked mode of all calls, and return the function."""
        self.mode = mode
        return self

    def as_hijax(self) -> Program:
        """Return the function as a high-level primitive of ``jax.experimental.hijax``.

        Returns
        -------
        callable
            Function with the arguments, the derivatives and the ``vmap`` rule of this function.

        Raises
        ------
        TransformError
            JAX is older than 0.10.

        See Also
        --------
        - :doc:`/transforms`: batches, derivatives and several devices.

        Examples
        --------
        >>> f = ops.f.as_hijax()  # doctest: +SKIP
        """
        from be_runtime.jax import calls

        return calls.high_level(
            self.__name__, self._placed, lambda keywords: self._program(keywords.pop("outs", None), keywords)
        )

    def _program(self, outs: Any, attributes: Mapping[str, Any]) -> Program:
        """Return the program for some keyword arguments, which is made on their first use."""
        from be_runtime.jax import calls

        described, converted = self._described(outs, attributes)
        made = self._programs.get((described, converted))
        if made is None:
            own = copy.deepcopy(dict(attributes))  # the caller may change an array before a later trace
            made = calls.compiled(self._traced(described, own, converted))
            made = self._programs.setdefault((described, converted), made)
            if len(self._programs) > _MOST_PROGRAMS:
                self._programs.pop(next(iter(self._programs.copy()), None), None)  # other threads add and remove
                self._known.clear()
        if outs is None and not attributes:
            self._plain = made
        elif (zeros := _zeros(attributes)) is not None:
            if self._leaves >= _MOST_PROGRAMS:
                self._known.clear()
                self._leaves = 0
            self._leaves += 1
            leaf = self._known.setdefault(described, {})
            for name, value in attributes.items():
                leaf = leaf.setdefault(name, {}).setdefault(type(value), {}).setdefault(value, {})
            leaf[None] = made, zeros
        return made

    def _described(self, outs: Any, attributes: Mapping[str, Any]) -> tuple[Any, Converted]:
        """Return the shapes and dtypes in `outs`, and the converted attributes."""
        converted = self._converted(attributes)
        described = tuple(outs) if isinstance(outs, list) else outs
        if outs is not None and not callable(outs):  # arrays have no hash
            described = port.like_arrays(described)
        try:
            hash(described)
        except TypeError:
            raise errors.ArgumentError(
                f"{self.__qualname__}: outs is {outs!r}", hints=("pass a jax.ShapeDtypeStruct, or a tuple of them",)
            ) from None
        return described, converted


_call_compiled = CompiledFunction.unchecked = CompiledFunction.__call__


@frames.public
def _call_named(self: CompiledFunction, /, *arrays: Any, outs: Any = None, **attributes: Any) -> Any:
    """Call the kernel while Python's fault handler is on: a fault names the line of the call."""
    if not _are_of_torch(arrays):  # JAX finds the line
        fault_names.NAMES.add_line(self.__qualname__)
    return _call_compiled(self, *arrays, outs=outs, **attributes)


@frames.public
def _call_checked(self: CompiledFunction, /, *arrays: Any, outs: Any = None, **attributes: Any) -> Any:
    """Call the kernel while a checked mode may be on: trace each call, since each has its own line."""
    mode = self.mode or checks.active()
    if mode is None or _are_of_torch(arrays):
        return self.unchecked(*arrays, outs=outs, **attributes)
    if self._has_numbers:
        arrays, attributes = self._placed(arrays, attributes)
    described, converted = self._described(outs, attributes)
    with checks.using(mode):
        program = self._traced(described, dict(attributes), converted)
        return mode.run(lambda: program(*arrays))


_OTHERS: set[type] = set()
"""Types of arrays other than PyTorch tensors. A call whose first argument has one of them is a call from JAX."""


def _are_of_torch(arrays: Sequence[Any]) -> bool:
    """Return whether an array is a tensor of PyTorch, which is not imported for that."""
    named = (("torch", "Tensor"), ("torch.fx", "Proxy"))
    tensors: Any = tuple(getattr(sys.modules.get(name), kind, ()) for name, kind in named)
    kinds = {*map(type, arrays)} - _OTHERS  # a class made before PyTorch's is no subclass
    if any(issubclass(kind, tensors) for kind in kinds):
        return True
    _OTHERS.update(kind for kind in kinds if hasattr(kind, "shape"))  # a tensor may follow None, or a number
    return False


def check_calls(*, is_on: bool) -> None:
    """Let all calls look for a checked mode, or no call, so that calls without checked modes take no longer."""
    CompiledFunction.__call__ = _call_checked if is_on else CompiledFunction.unchecked  # type: ignore[method-assign]


def _note_lines() -> None:
    """Let all calls note their lines from now on; checked calls always do."""
    if CompiledFunction.__call__ is CompiledFunction.unchecked:
        CompiledFunction.__call__ = _call_named  # type: ignore[method-assign]
    CompiledFunction.unchecked = _call_named


def _zeros(attributes: Mapping[str, Any]) -> tuple[tuple[str, float], ...] | None:
    """Return the floats that are 0, with their signs; None if equal attributes of a type may differ in another way."""
    numbers = {name: value for name, value in attributes.items() if not isinstance(value, str | int)}
    if not all(isinstance(value, Real) and not math.isnan(value) for value in numbers.values()):
        return None
    return tuple((name, math.copysign(1.0, value)) for name, value in numbers.items() if value == 0)


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
    has_state : bool
        True for a kernel that keeps an object from call to call.
    scratch : tuple of (int, str), or None
        Bytes of scratch memory that the compiled code needs beside the declared memory, and an expression for one
        device.
    """

    targets: Targets
    attributes: Converted
    computed: Computed | None = ()
    has_state: bool = False
    scratch: tuple[int, str] | None = None


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
    label: str, resolved: Resolved, options: Options, target: KernelTarget, transposes: Sequence[tuple[int, Transpose]]
) -> tuple[Any, ...]:
    """Call a target, and return the results without scratch memory.

    Raises
    ------
    ArgumentError
        The layouts don't fit the arrays of the call.
    """
    from be_runtime.jax import calls

    match_layouts(label, options.input_layouts, resolved.inputs, "input_layouts")
    match_layouts(label, options.output_layouts, resolved.shown, "output_layouts")
    match_alias_layouts(label, resolved.aliases, options.input_layouts, options.output_layouts)
    hidden = (None,) * resolved.scratch
    targets, given = target.targets, (*target.attributes, *resolved.attributes)
    if (mode := checks.active()) is not None:
        guarded = mode.guard(targets)
        once = target.has_state or options.effect != "none"
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
        aliases=resolved.aliases,
        effect=options.effect,
        input_layouts=options.input_layouts,
        output_layouts=None if options.output_layouts is None else (*options.output_layouts, *hidden),
        split=resolved.split._replace(on_gather=options.on_gather, computed=target.computed),
        transposes=tuple(transposes),
    )
    return tuple(results[: len(resolved.shown)])
