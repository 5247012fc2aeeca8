"""The end of a call while JAX traces it: what was checked becomes an operation of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from be_runtime import checks
from be_runtime.call.call_options import Options
from be_runtime.call.compiled_function import Converted
from be_runtime.call.derivatives import Transpose
from be_runtime.call.resolve import CallSignature, Resolved
from be_runtime.xla.arrays import match_layouts

Targets = tuple[tuple[str, str], ...]
"""Names of JAX's platforms, and the target on each."""

Computed = tuple[tuple[str, tuple[str, ...]], ...]
"""Attributes that depend on the extents of one device, see `Split`."""


class KernelTarget(NamedTuple):
    """The target of a call without a module, and what XLA is given with it.

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
    """Choose the `vmap` method that the declared axes allow, where the author gives none.

    Parameters
    ----------
    takes_any_extent : bool
        True for a kernel that may be called with other extents than those that its call was traced with.
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
        True for a kernel that keeps something from call to call.

    Raises
    ------
    ArgumentError
        The layouts are not those of the call's arrays.
    """
    from be_runtime.xla import jax_call

    match_layouts(label, options.input_layouts, resolved.inputs, "input_layouts")
    match_layouts(label, options.output_layouts, resolved.shown, "output_layouts")
    hidden = (None,) * resolved.scratch
    given = (*attributes, *resolved.attributes)
    if (mode := checks.active()) is not None:
        guarded = mode.guard(targets)
        once = has_state or options.effect != "none"
        caller = jax_call.caller()
        mode.note_call(label, caller)
        layouts = [
            *(options.input_layouts or [None] * len(resolved.inputs)),
            *(options.output_layouts or [None] * len(resolved.shown)),
        ]
        chosen = mode.checks.without("repeat") if options.random else mode.checks
        text = checks.call_text(label, caller, chosen, once=once, hidden=resolved.scratch, layouts=layouts)
        given = given if guarded == targets else (*given, (checks.ATTRIBUTE, text))
        targets = guarded
    results = jax_call.bind(
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
