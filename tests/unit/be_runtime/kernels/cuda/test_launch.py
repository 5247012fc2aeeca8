"""Grids, blocks and shared memory from what callers write: numbers, and arithmetic over axes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime import cuda_kernel
from be_runtime.call.kernel_signature import read_signature
from be_runtime.call.resolve import Resolved
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.kernels.cuda.geometry import automatic_block, automatic_geometry, choose_geometry, explicit_geometry
from be_runtime.kernels.cuda.sizes import Sizes, read_sizes
from be_runtime.spec.model import Param, Role
from be_runtime.xla.arrays import ArraySpec
from be_runtime.xla.split import Split
from tests.unit.be_runtime.generate.golden_files import answer, check_golden

GOLDEN = Path(__file__).parent / "golden"


def explicit(**given: Any) -> str:
    return str(explicit_geometry(**({"grid": 4, "block": 32} | given)).encode())


def choose(**given: Any) -> str:
    """With the defaults of `numba_cuda_kernel`."""
    arguments = {"grid": None, "block": None, "launch_dims": None, "threads_per_block": 256, "shared_mem": 0} | given
    return str(choose_geometry(**arguments, is_empty=False).encode())


EXPLICIT: list[dict[str, Any]] = [
    {"grid": (2, 3), "block": 64, "shared_mem": 100, "cluster": (2, 1)},
    {"grid": 0, "is_empty": True},
    *({"grid": grid} for grid in (0, -4, (1, 70_000), 2**31 - 1, 2**31, (1, 1, 1, 1), (), 1.5, "4", True, None)),
    *({"block": block} for block in (2048, (1, 1, 128), (32, 33))),
    *({"shared_mem": size} for size in (256 * 1024 - 1, -1, 256 * 1024, (100, 200), "48k")),
    *({"cluster": cluster} for cluster in (32, 3)),
]
CHOSEN: list[dict[str, Any]] = [
    *({}, {"grid": 1}, {"block": 1}, {"grid": 1, "block": 1, "launch_dims": 1}, {"launch_dims": 0}),
    *({"launch_dims": 8, "threads_per_block": threads} for threads in (4, 2000, (16, 16))),
    *({"grid": 4, "block": (16, 4), "threads_per_block": threads} for threads in (256, 64, 32, 0, "many", 2000)),
    {"launch_dims": (16, 2_000_000)},
]


def test_numbers_become_a_geometry_or_are_refused():
    """Numbers and tuples are filled up with ones; what some GPU may have is left to the launcher."""
    rows = [f"{given}\n  {answer(explicit, **given)}\n" for given in EXPLICIT]
    rows += [f"{given}\n  {answer(choose, **given)}\n" for given in CHOSEN]
    for launch in ({"grid": 0}, {"block": 2048}, {"shared_mem": 10**6}, {"shared_mem": "48k"}):
        arguments = {"outs": lambda: np.zeros(1), "grid": 1, "block": 32} | launch
        made = answer(cuda_kernel, "__global__ void f(float* y) {}", "f", **arguments)
        rows.append(f"a raw kernel of {launch}\n  {made}\n")
    check_golden(GOLDEN / "geometries.txt", "".join(rows))
    assert explicit(block=np.int64(64)) == explicit(block=64)


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=3), st.integers(1, 1024))
def test_automatic_grids_cover_the_dimensions(dims: list[int], threads: int):
    found = automatic_geometry(tuple(dims), threads)
    for size, blocks, width in zip(dims, found.grid, found.block, strict=False):
        assert blocks * width >= size
        assert (blocks - 1) * width < max(size, 1)
    assert np.prod(found.block) <= threads


@given(st.integers(1, 3), st.integers(0, 10))
def test_powers_of_two_are_used_up(ndim: int, bits: int):
    assert np.prod(automatic_block(ndim, 2**bits)) == 2**bits


SCALARS = tuple(Param(role=Role.ATTR, name=n, dtype=BY_NAME[t]) for n, t in (("bins", "int32"), ("by", "float32")))
SIGNATURE = read_signature("f", "arg[n k] ret[n]", scalars=SCALARS)
EXPRESSIONS = {"grid": ("ceil(n/16)", 2), "block": "min(n,64)", "shared_mem": "4*attr.bins"}


def sizes(**given: Any) -> Sizes:
    return read_sizes("f", {"grid": 1, "block": 32, "shared_mem": 0} | given, SIGNATURE, explicit_geometry)


def launch_dims(*dims: object) -> Sizes:
    given = {"grid": None, "block": None, "launch_dims": dims, "shared_mem": 0}
    return read_sizes("f", given, SIGNATURE, partial(choose_geometry, threads_per_block=256))


def call(n: int, k: int = 7) -> Resolved:
    f32 = BY_NAME["float32"]
    values = {"n": n, "k": k, "attr.bins": 5}
    return Resolved([], (ArraySpec(f32, (n, k)),), (ArraySpec(f32, (n,)),), 0, False, (), values, Split((), ()))


SIZES: list[tuple[int, dict[str, Any]]] = [
    *((n, {"grid": ("ceil(n/16)", 2, "k"), "block": "min(n,64)", "shared_mem": "4*attr.bins"}) for n in (100, 17)),
    (0, {"grid": "ceil(n/256)"}),
    (3, {"grid": "n-3"}),
    (1000, {"block": "n*k"}),
    (1, {"shared_mem": "k*10**0*n"}),
    *((10, {"grid": grid}) for grid in ("n/4", "1-n", (1, "ceil(m/256)"), (1, "attr.by"))),
]


def test_expressions_follow_the_call_and_an_error_has_their_values():
    def encoded(n: int, given: dict[str, Any]) -> str:
        return str(sizes(**given).geometry(call(n)).encode())

    rows = [f"{given} with n = {n}\n  {answer(encoded, n, given)}\n" for n, given in SIZES]
    rows.append(f"no signature\n  {answer(read_sizes, 'f', {'grid': 'n'}, None, explicit_geometry)}\n")
    check_golden(GOLDEN / "sizes.txt", "".join(rows))
    assert launch_dims("n", "k").geometry(call(100)).grid == (7, 1, 1)


def test_sizes_that_never_change_are_checked_at_once():
    for never in ({"grid": 0}, {"block": 2048}):
        with pytest.raises(ArgumentError):
            sizes(**never).check(None)
    sizes(grid="n-n").check(None)


def test_sizes_of_one_device_are_arithmetic():
    found = sizes(**EXPRESSIONS)
    local = found.local(found.geometry(call(100)))
    assert local == ("ceil(n/16)", "2", "1", "min(n,64)", "1", "1", "4*attr.bins", "1", "1", "1", "0", "0")
    split = Split((("n", "k"),), (("n",),), places=(("n", (0, 0)),), integers=(("attr.bins", 5),))
    computed = split._replace(computed=(("launch", local),)).attributes([(17, 7)])
    assert computed == {"launch": list(found.geometry(call(17)).encode())}
    found = launch_dims("n", 32)
    assert (found.local(found.geometry(call(100))) or ())[:6] == ("ceil((n)/16)", "2", "1", "16", "16", "1")
    assert sizes(grid=lambda x: x.shape[0]).local(explicit_geometry(7, 32)) is None, "a function's are not known"
