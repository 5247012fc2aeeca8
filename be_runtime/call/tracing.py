"""The end of a call while JAX traces it: what was checked becomes an operation of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from be_runtime.call.call_options import Options
from be_runtime.call.compiled_function import Converted
from be_runtime.call.derivatives import BoundRule
from be_runtime.call.resolve import CallSignature, Resolved
from be_runtime.xla.arrays import match_layouts

Targets = tuple[tuple[str, str], ...]
"""Names of JAX's platforms, and the target on each."""


def default_method(options: Options, signature: CallSignature | None) -> Options:
    """Choose the `vmap` method that the declared axes allow, where the author gives none."""
    if options.vmap_method is None and signature is not None:
        return options._replace(vmap_method=signature.vmap_method)
    return options


def bind_call(
    label: str,
    resolved: Resolved,
    options: Options,
    targets: Targets,
    attributes: Converted,
    transposes: Sequence[tuple[int, BoundRule]] = (),
) -> tuple[Any, ...]:
    """Call a target, and return the results without scratch memory.

    Raises
    ------
    ArgumentError
        The layouts are not those of the call's arrays.
    """
    from be_runtime.xla import jax_call

    match_layouts(label, options.input_layouts, resolved.inputs, "input_layouts")
    match_layouts(label, options.output_layouts, resolved.shown, "output_layouts")
    hidden = (None,) * resolved.scratch
    results = jax_call.bind(
        resolved.operands,
        label=label,
        targets=targets,
        results=resolved.results,
        attributes=tuple(sorted((*attributes, *resolved.attributes))),
        vmap_method=options.vmap_method,
        aliases=options.aliases,
        effect=options.effect,
        input_layouts=options.input_layouts,
        output_layouts=None if options.output_layouts is None else (*options.output_layouts, *hidden),
        split=resolved.split._replace(on_gather=options.on_gather),
        transposes=tuple(transposes),
    )
    return tuple(results[: len(resolved.shown)])
