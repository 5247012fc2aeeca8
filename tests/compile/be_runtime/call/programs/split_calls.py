"""Calls split over eight CPU devices: a line of JSON for each case, with what the compiled program exchanges."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import be_runtime
from be_runtime.dtypes import DTYPES
from be_runtime.jax import internals
from tests.support.jax_names import make_mesh, set_mesh, shard_map

KERNELS = Path(__file__).parents[1] / "kernels.cc"
EXCHANGES = re.compile(r" (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")


class Case:
    """One function on one mesh; a group of cases exchanges the same."""

    def __init__(self, name: str, kind: str, group: str = "", sizes: Sequence[int] = (8,)) -> None:
        self.name, self.kind, self.group = name, kind, group
        self.mesh = make_mesh(sizes, "xy"[: len(sizes)], kind)

    def __call__(
        self, function: Callable[..., Any], arrays: Sequence[Any], specs: Sequence[P], reference: Callable[..., Any]
    ) -> None:
        """Run it, and print how it went."""
        line: dict[str, Any] = {"case": self.name, "kind": self.kind, "group": self.group}
        try:
            placed = [jax.device_put(a, NamedSharding(self.mesh, s)) for a, s in zip(arrays, specs, strict=True)]
            with (
                set_mesh(self.mesh) if self.kind == "explicit" else contextlib.nullcontext(),
                warnings.catch_warnings(record=True) as caught,
            ):
                warnings.simplefilter("always")
                jitted = jax.jit(function)
                found = [np.asarray(each) for each in jax.tree_util.tree_leaves(jitted(*placed))]
                text = str(jitted.lower(*placed).compile().as_text())
            expected = [np.asarray(each) for each in jax.tree_util.tree_leaves(reference(*arrays))]
            line["exchanges"] = Counter(EXCHANGES.findall(text))
            line["warnings"] = sorted({str(each.message) for each in caught})
            line["right"] = [str(a.dtype) for a in found] == [str(a.dtype) for a in expected] and all(
                np.allclose(told(a), told(b), rtol=1e-3, atol=1e-3, equal_nan=True)
                for a, b in zip(found, expected, strict=True)
            )
        except Exception as error:  # noqa: BLE001 - the test says which error it must be
            line["error"] = f"{type(error).__name__}: {error}"
        say(line)


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")


def told(array: Any) -> Any:
    """Return numbers of a type that numpy compares."""
    return array if array.dtype.kind == "c" else array.astype(np.float64)


def square(function: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    return jax.grad(lambda *args: (function(*args) ** 2).sum(), argnums)


m: Any = None
cumsum = functools.partial(jnp.cumsum, axis=-1)
ROWS, ALL = P("x", None), P()


def main(kinds: Sequence[str]) -> None:
    """Run all cases."""
    global m  # noqa: PLW0603
    m = be_runtime.load_cpp_file(KERNELS)
    m.cumsum.deftranspose("backsum")
    m.backsum.deftranspose("cumsum")
    m.wsum.deftranspose("outer", linear_in=(0,))
    m.wsum.deftranspose("dots", linear_in=(1,))
    m.scale.defvjp(None, lambda given, g: (m.scale(g, given[1]), m.scale_w(given[0], g)))
    for kind in kinds:
        split(kind)
        summed(kind)
        gathered(kind)
        manual(kind)
    if "automatic" in kinds:
        options()
        dtypes()


def arrays(*shapes: Sequence[int]) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.normal(size=shape).astype(np.float32) for shape in shapes]


def split(kind: str) -> None:
    """Calls that need no communication, and backward only the sum for a replicated operand."""
    case = functools.partial(Case, kind=kind, group="alone")
    x, w, batch, other = arrays((16, 24), (24,), (4, 16, 24), (16, 4, 24))
    case("leading axes")(m.cumsum, [x], [ROWS], cumsum)
    case("parallel")(m.rows, [x], [ROWS], cumsum)
    case("replicated operand")(m.scale, [x, w], [ROWS, ALL], jnp.multiply)
    case("vmap")(jax.vmap(m.cumsum), [batch], [P(None, "x", None)], cumsum)
    case("vmap, split")(jax.vmap(m.cumsum), [other], [P("x", None, None)], cumsum)
    case("vmap of parallel, split")(jax.vmap(m.rows), [other], [P("x", None, None)], cumsum)
    pair = jax.vmap(m.scale, (0, None))
    case("vmap of one argument")(pair, [batch, w], [P(None, "x", None), ALL], jax.vmap(jnp.multiply, (0, None)))
    case("vmap of vmap", sizes=(4, 2))(jax.vmap(jax.vmap(m.rows)), [batch[None]], [P(None, "x", "y", None)], cumsum)
    case("grad of both", group="summed")(square(m.scale, (0, 1)), [x, w], [ROWS, ALL], square(jnp.multiply, (0, 1)))
    case("grad of checkpoint")(square(jax.checkpoint(m.cumsum)), [x], [ROWS], square(cumsum))
    case("grad of vmap")(square(jax.vmap(m.cumsum)), [batch], [P(None, "x", None)], square(cumsum))
    case("vmap of grad")(jax.vmap(square(m.cumsum)), [other], [P("x", None, None)], square(cumsum))
    twice = lambda x: jax.lax.scan(lambda c, _: (m.cumsum(c), None), x, None, length=2)[0]  # noqa: E731
    case("grad of scan")(square(twice), [x], [ROWS], square(lambda x: cumsum(cumsum(x))))
    branch = lambda x, w: jax.lax.cond(w[0] < 9, m.rows, lambda x: x, x)  # noqa: E731
    case("cond")(branch, [x, w], [ROWS, ALL], lambda x, w: cumsum(x))
    case("b over two axes", sizes=(4, 2))(m.cumsum, [x], [P(("y", "x"), None)], cumsum)
    case("two leading axes", sizes=(4, 2))(m.cumsum, [batch], [P("x", "y", None)], cumsum)
    case("a part of the mesh", sizes=(4, 2))(m.rows, [x], [P("y", None)], cumsum)
    a, b = arrays((16,), (24,))
    case("two axes on two", sizes=(4, 2))(m.table, [a, b], [P("x"), P("y")], jnp.outer)
    case("several results")(m.moments, [x], [ROWS], moments)
    case("extents of a device")(m.extents, [x], [ROWS], lambda x: np.tile(np.array([2, 24], np.int32), (16, 1)))
    case("scratch memory of vmap")(jax.vmap(m.spare), [batch], [P(None, "x", None)], lambda x: x)
    mixed = functools.partial(m.mixed, name='a "b"\n', weights=[1, 2], mode="add", pair={"a": 0.5, "b": 3}, hole=np.nan)
    case("attributes of every kind")(mixed, [x], [ROWS], lambda x: x + 12.5)
    alone = functools.partial(case, sizes=(1,))
    alone("one device, grad of vmap")(square(jax.vmap(m.cumsum)), [batch], [P(None, "x", None)], square(cumsum))
    alone("one device, scratch memory")(jax.vmap(m.spare), [batch], [P(None, "x", None)], lambda x: x)
    case("no rows")(m.rows, [x[:0]], [ROWS], cumsum)


def summed(kind: str) -> None:
    """Sums over a split axis."""
    case = functools.partial(Case, kind=kind, group="summed")
    x, w, batch = arrays((16, 24), (16,), (4, 16, 24))
    by_b = P("x")
    dot = lambda x, w: w @ x  # noqa: E731
    case("reduce")(m.wsum, [x, w], [ROWS, by_b], dot)
    case("reduce, replicated weights")(m.wsum, [x, w], [ROWS, ALL], dot)
    case("reduce over two axes", sizes=(4, 2))(m.wsum, [x, w], [P(("x", "y"), None), P(("x", "y"))], dot)
    each = lambda x, w: jnp.einsum("abn,b->an", x, w)  # noqa: E731
    case("vmap of reduce")(jax.vmap(m.wsum, (0, None)), [batch, w], [P(None, "x", None), by_b], each)
    case("vmap of reduce, both split", sizes=(4, 2))(
        jax.vmap(m.wsum, (0, None)), [batch, w], [P("x", "y", None), P("y")], each
    )
    case("grad of reduce")(square(m.wsum, (0, 1)), [x, w], [ROWS, by_b], square(dot, (0, 1)))
    case("sums of several results")(m.totals, [x], [ROWS], lambda x: (x.sum(0), x.sum()))
    case("reduce, not divided", group="alone")(m.wsum, [x[:10], w[:10]], [ALL, ALL], dot)


def gathered(kind: str) -> None:
    """Calls that need more of an argument than a device has."""
    case = functools.partial(Case, kind=kind, group="gathered")
    x, w = arrays((16, 24), (16,))
    case("whole")(m.whole, [x], [ROWS], cumsum)
    case("bare")(m.bare, [x], [ROWS], cumsum)
    case("last of leading axes")(m.last, [x], [ROWS], lambda x: x[-1])
    case("n split too", sizes=(4, 2))(m.cumsum, [x], [P("x", "y")], cumsum)
    case("one mesh axis for two")(m.table, [w, x[0]], [P("x"), P("x")], jnp.outer)
    case("parts of two sizes", group="", sizes=(4, 2))(m.wsum, [x, w], [P("y", None), P("x")], lambda x, w: w @ x)
    case("error", group="")(m.whole.with_options(on_gather="error"), [x], [ROWS], cumsum)
    case("error of bare", group="")(m.bare.with_options(on_gather="error"), [x], [ROWS], cumsum)
    case("no error", group="alone")(m.rows.with_options(on_gather="error"), [x], [ROWS], cumsum)
    if kind == "automatic":  # JAX refuses such parts of explicit axes
        uneven = NamedSharding(make_mesh((8,), "x", kind), ROWS)
        given: Any = functools.partial(jax.lax.with_sharding_constraint, shardings=uneven)
        case("not divided", group="uneven")(lambda x: m.rows(given(x)), [x[:10]], [ALL], cumsum)
        case("reduce, uneven", group="uneven")(
            lambda x, w: m.wsum(given(x), w), [x[:10], w[:10]], [ALL, ALL], lambda x, w: w @ x
        )


def manual(kind: str) -> None:
    """Calls within ``shard_map``, over all axes of a mesh and over some."""
    case = functools.partial(Case, kind=kind)
    x, w = arrays((16, 24), (16,))
    dot = lambda x, w: w @ x  # noqa: E731
    one, two = case("shard_map", group="alone"), case("shard_map over y", sizes=(4, 2))
    one(shard_map(m.cumsum, mesh=one.mesh, in_specs=(ROWS,), out_specs=ROWS), [x], [ROWS], cumsum)
    grad = case("grad of shard_map", group="alone")
    mapped = shard_map(m.cumsum, mesh=grad.mesh, in_specs=(ROWS,), out_specs=ROWS)
    grad(square(mapped), [x], [ROWS], square(cumsum))
    summing = case("shard_map, summed")
    total = lambda x, w: jax.lax.psum(m.wsum(x, w), "x")  # noqa: E731
    mapped = shard_map(total, mesh=summing.mesh, in_specs=(ROWS, P("x")), out_specs=P())
    summing(mapped, [x, w], [ROWS, P("x")], dot)
    if not hasattr(jax, "shard_map"):
        return  # before JAX 0.6.1, mapping over some axes works in another way
    batch, weights = arrays((8, 5, 24), (8, 24))
    each = jax.vmap(jnp.multiply)
    case("a loop over a split batch", group="loop")(
        jax.vmap(m.scale), [batch, weights], [P("x", None, None), ROWS], each
    )
    loss = [square(jax.vmap(f), (0, 1)) for f in (m.scale, jnp.multiply)]
    case("grad of a loop over a split batch", group="loop")(
        loss[0], [batch, weights], [P("x", None, None), ROWS], loss[1]
    )
    both, over_y = P(("y", "x"), None), P("y", None)
    part = functools.partial(shard_map, mesh=two.mesh, axis_names={"y"})
    two(part(m.cumsum, in_specs=(over_y,), out_specs=over_y), [x], [both], cumsum)
    same = case("shard_map over y of jnp", sizes=(4, 2))
    same(part(lambda x: x * 2, in_specs=(over_y,), out_specs=over_y), [x], [both], lambda x: x * 2)
    one = case("one device, shard_map over y", sizes=(1, 1))
    part_of_one = functools.partial(shard_map, mesh=one.mesh, axis_names={"y"})
    one(part_of_one(jax.vmap(m.cumsum), in_specs=(over_y,), out_specs=over_y), [batch], [P("y")], cumsum)
    total = lambda x, w: jax.lax.psum(m.wsum(x, w), "y")  # noqa: E731
    summing = case("shard_map over y, summed", sizes=(4, 2))
    summing(part(total, in_specs=(over_y, P("y")), out_specs=P()), [x, w], [both, P(("y", "x"))], dot)


def moments(x: Any) -> Any:
    return x.mean(1), (x**2).mean(1), np.full(x.shape[0], x.shape[1], np.int32)


def options() -> None:
    """Options of a call, one each."""
    case = functools.partial(Case, kind="automatic", group="alone")
    x, y = arrays((16, 24), (16, 24))
    added = m.add_to.with_options(input_output_aliases={0: 0})
    case("aliases")(lambda x, y: added(x * 2, y), [x, y], [ROWS, ROWS], lambda x, y: 2 * x + y)
    columns = m.copy.with_options(input_layouts=[(0, 1)], output_layouts=[(1, 0)])
    case("layout of the result")(columns, [x], [ROWS], lambda x: local(x, lambda part: part.reshape(24, -1).T))
    columns = m.copy.with_options(input_layouts=[(1, 0)])
    case("layout of an argument")(columns, [x], [ROWS], lambda x: local(x, lambda part: part.T.reshape(-1, 24)))
    columns = m.copy.with_options(input_layouts=[(1, 0)], output_layouts=[(1, 0)])
    case("layouts")(columns, [x], [ROWS], lambda x: x)
    for name, given in (("has_side_effect", {"has_side_effect": True}), ("ordered", {"ordered": True})):
        noting = m.note.with_options(**given)
        case(name, group="" if name == "ordered" else "alone")(
            lambda x, noting=noting: (noting(x[:, 0]), x + 1)[1], [x], [ROWS], lambda x: x + 1
        )
        say({"case": f"calls, {name}", "kind": "automatic", "calls": int(m.noted(0.0))})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        placed = jax.device_put(x, NamedSharding(case("once").mesh, ROWS))
        for _ in range(2):
            jax.jit(lambda x: m.whole(x) + 1)(placed)
    say({"case": "once", "kind": "automatic", "warnings": [str(each.message) for each in caught]})


def local(array: Any, change: Callable[[Any], Any]) -> Any:
    """Change the part of each device."""
    return np.concatenate([change(part) for part in np.split(array, 8)])


def dtypes() -> None:
    """Element types of split calls, as they are and summed."""
    x = np.arange(16 * 24).reshape(16, 24) % 5
    for row in DTYPES:
        if row.name != "bool" and not hasattr(jnp, row.name):
            continue  # unknown to this JAX
        given = (x % 2 if row.bits < 4 else x).astype(jnp.dtype(row.name))
        case = functools.partial(Case, kind="automatic")
        case(row.name, group="alone")(m.copy, [given], [ROWS], lambda x: x)
        if internals.sums_parts():
            few = (x == 0).astype(given.dtype)  # their sums are exact in all types
            wide = np.complex128 if given.dtype.kind == "c" else np.float64
            total = lambda x, wide=wide: x[::2].astype(wide).sum(0).astype(x.dtype)  # noqa: E731
            case(f"sums of {row.name}", group="refused" if row.name in ("int2", "uint2") else "summed")(
                m.firsts, [few], [ROWS], total
            )


if __name__ == "__main__":
    main(sys.argv[1:])
