"""Transformations of an operation: batching in one call, and the author's JVP and transpose rules under any batch.

The author's rules are for one element. A call that was batched before it is differentiated uses them under ``vmap``,
which batches the calls that they make: so ``vmap`` and ``grad`` compose in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from be_runtime.errors import ArgumentError, call_named
from be_runtime.jax import transforms
from be_runtime.jax.transforms import Level
from be_runtime.kernels.dispatch import Call

Bind = Callable[..., Sequence[Any]]
Rule = Callable[..., Any]


def batch(bind: Bind, arguments: Sequence[Any], axes: Sequence[int | None], call: Call) -> tuple[Sequence[Any], Any]:
    """Compute all elements in one call, with one more level, or the only one if no argument has an axis."""
    moved, level = lead(arguments, axes)
    if level is None:
        results = bind(*arguments, call=call)
        return results, [None] * len(results)
    results = bind(*moved, call=call._replace(levels=(level, *call.levels)))
    return results, [0] * len(results)


def lead(arguments: Sequence[Any], axes: Sequence[int | None]) -> tuple[list[Any], Level | None]:
    """Move the axes of a batch to the front; the level is None if no argument has one."""
    pairs = list(zip(arguments, axes, strict=True))
    sizes = [argument.shape[axis] for argument, axis in pairs if axis is not None]
    moved = [argument if axis is None else transforms.front(argument, axis) for argument, axis in pairs]
    return moved, Level(sizes[0], tuple(axis is not None for axis in axes)) if sizes else None


def jvp(rule: Rule, primals: Sequence[Any], tangents: Sequence[Any], call: Call) -> tuple[Sequence[Any], Sequence[Any]]:
    """Compute the results and their tangents by the author's rule."""
    if not call.levels:
        outs, out_tangents = rule(tuple(primals), tuple(tangents), **call.parameters())
        return transforms.leaves(outs), transforms.leaves(out_tangents)
    count = len(primals)
    live = [index for index, tangent in enumerate(tangents) if not transforms.is_zero(tangent)]

    def one(*values: Any) -> tuple[list[Any], list[Any]]:
        given = dict(zip(live, values[count:], strict=True))
        filled = tuple(given.get(i, transforms.zero_tangent(primal)) for i, primal in enumerate(values[:count]))
        outs, out_tangents = rule(values[:count], filled, **call.parameters())
        return transforms.leaves(outs), [transforms.materialize(tangent) for tangent in transforms.leaves(out_tangents)]

    levels = [Level(size, (*mapped, *(mapped[i] for i in live))) for size, mapped in call.levels]
    outs, out_tangents = transforms.vmap_levels(one, levels)(*primals, *(tangents[i] for i in live))
    return outs, out_tangents


def jvp_by_input(bind: Rule, rules: Sequence[Rule | None], name: str) -> Rule:
    """Combine rules for single inputs, ``rule(tangent, *primals, **parameters)`` or None for no effect, into one."""

    def combined(primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any) -> tuple[Any, Any]:
        if len(rules) != len(primals):
            raise ArgumentError(f"{name} has JVP rules for {len(rules)} inputs, but the call has {len(primals)}")
        outs = transforms.leaves(bind(*primals, **parameters))
        total = [transforms.zero_tangent(out) for out in outs]
        for rule, tangent in zip(rules, tangents, strict=True):
            if rule is not None and not transforms.is_zero(tangent):
                part = transforms.leaves(call_named(f"a JVP rule of {name}", rule, tangent, *primals, **parameters))
                if len(part) != len(total):
                    raise ArgumentError(f"a JVP rule of {name} gives {len(part)} tangents for {len(total)} results")
                total = [transforms.add(first, second) for first, second in zip(total, part, strict=True)]
        return outs, total

    return combined


def transpose(rule: Rule, cotangents: Sequence[Any], arguments: Sequence[Any], call: Call) -> Sequence[Any]:
    """Compute the cotangents of the linear arguments by the author's rule."""
    if not call.levels:
        return rule(list(cotangents), *arguments, **call.parameters())  # type: ignore[no-any-return]
    wanted = [i for i, argument in enumerate(arguments) if transforms.is_linear(argument)]
    known = [i for i in range(len(arguments)) if i not in wanted]
    live = [i for i, cotangent in enumerate(cotangents) if not transforms.is_zero(cotangent)]
    shapes = {i: _element_shape(arguments[i].aval.shape, i, call.levels) for i in wanted}

    def one(*values: Any) -> list[Any]:
        given = dict(zip(known, values, strict=False))
        filled = [
            given[i] if i in given else transforms.linear(shapes[i], arguments[i].aval.dtype)
            for i in range(len(arguments))
        ]
        there = dict(zip(live, values[len(known) :], strict=True))
        complete = [there.get(i, transforms.zero_cotangent(out.shape, out.dtype)) for i, out in enumerate(call.outs)]
        found = rule(complete, *filled, **call.parameters())
        return [
            transforms.zeros(shapes[i], arguments[i].aval.dtype)
            if found[i] is None
            else transforms.materialize(found[i])
            for i in wanted
        ]

    levels = [Level(size, (*(mapped[i] for i in known), *(True for _ in live))) for size, mapped in call.levels]
    found = transforms.vmap_levels(one, levels)(*(arguments[i] for i in known), *(cotangents[i] for i in live))
    results: list[Any] = [None] * len(arguments)
    for i, cotangent in zip(wanted, found, strict=True):
        shared = [axis for axis, level in enumerate(call.levels) if not level.mapped[i]]
        results[i] = transforms.sum_axes(cotangent, shared)
    return results


def _element_shape(shape: Sequence[int], index: int, levels: Sequence[Level]) -> tuple[int, ...]:
    """Return the shape of an argument without its batch axes."""
    return tuple(shape[sum(level.mapped[index] for level in levels) :])
