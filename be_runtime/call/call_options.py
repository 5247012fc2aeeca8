"""Options of a function that calls a kernel. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from be_runtime.errors import ArgumentError
from be_runtime.xla.arrays import EffectKind, Layouts, check_aliases, check_layouts, check_vmap_method

OnGather = Literal["warn", "error"]


class Options(NamedTuple):
    """Options of a function, see `be_runtime.call.function.KernelFunction.with_options`."""

    vmap_method: str | None = None
    aliases: tuple[tuple[int, int], ...] = ()
    effect: EffectKind = "none"
    outs: Any = None
    input_layouts: Layouts | None = None
    output_layouts: Layouts | None = None
    on_gather: OnGather = "warn"
    random: bool = False


def check_options(
    outs: Any = None,
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    ordered: bool = False,
    input_layouts: Sequence[Sequence[int] | None] | None = None,
    output_layouts: Sequence[Sequence[int] | None] | None = None,
    on_gather: OnGather = "warn",
    *,
    random: bool = False,
) -> Options:
    """Check the options that an author gives.

    Raises
    ------
    ArgumentError
        One is not allowed.

    Examples
    --------
    >>> check_options(ordered=True).effect
    'ordered'
    """
    if on_gather not in get_args(OnGather):
        raise ArgumentError(f"on_gather={on_gather!r} is neither 'warn' nor 'error'")
    for name, value in (("has_side_effect", has_side_effect), ("ordered", ordered), ("random", random)):
        if not isinstance(value, bool):
            raise ArgumentError(f"{name} must be True or False, not {value!r}")
    return Options(
        vmap_method=check_vmap_method(vmap_method),
        aliases=tuple(sorted(check_aliases(input_output_aliases).items())),
        effect="ordered" if ordered else "side" if has_side_effect else "none",
        outs=outs,
        input_layouts=check_layouts(input_layouts, "input_layouts"),
        output_layouts=check_layouts(output_layouts, "output_layouts"),
        on_gather=on_gather,
        random=random,
    )
