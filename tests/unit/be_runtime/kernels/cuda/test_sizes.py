"""Sizes of a launch as arithmetic over axes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from be_runtime.call.kernel_signature import read_signature
from be_runtime.call.resolve import Resolved
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError, SpecError
from be_runtime.kernels.cuda.geometry import choose_geometry, explicit_geometry
from be_runtime.kernels.cuda.sizes import Sizes, read_sizes
from be_runtime.spec.model import Param, Role
from be_runtime.xla.arrays import ArraySpec
from be_runtime.xla.split import Split

SCALARS = tuple(
    Param(role=Role.ATTR, name=name, dtype=BY_NAME[kind]) for name, kind in (("bins", "int32"), ("by", "float32"))
)
SIGNATURE = read_signature("f", "arg[n k] ret[n]", scalars=SCALARS)


def sizes(**given: Any) -> Sizes:
    return read_sizes("f", {"grid": 1, "block": 32, "shared_mem": 0} | given, SIGNATURE, explicit_geometry)


def call(n: int, k: int = 7) -> Resolved:
    f32 = BY_NAME["float32"]
    values = {"n": n, "k": k, "attr.bins": 5}
    return Resolved([], (ArraySpec(f32, (n, k)),), (ArraySpec(f32, (n,)),), 0, False, (), values, Split((), ()))


def test_expressions_follow_the_call():
    found = sizes(grid=("ceil(n/16)", 2, "k"), block="min(n,64)", shared_mem="4*attr.bins")
    for n, expected in ((100, (7, 2, 7, 64, 1, 1, 20)), (17, (2, 2, 7, 17, 1, 1, 20))):
        assert found.geometry(call(n)).encode()[:7] == expected


def test_launch_dims_too():
    given = {"grid": None, "block": None, "launch_dims": ("n", "k"), "shared_mem": 0}
    found = read_sizes("f", given, SIGNATURE, partial(choose_geometry, threads_per_block=256))
    assert found.geometry(call(100)).grid == (7, 1, 1)


def test_nothing_to_compute_needs_no_blocks():
    assert sizes(grid="ceil(n/256)").geometry(call(0)).grid == (0, 1, 1)


@pytest.mark.parametrize(
    ("given", "n", "message"),
    [
        ({"grid": "n-3"}, 3, r"f: grid=0 is not allowed: 0 is below 1; n-3 with n = 3"),
        ({"block": "n*k"}, 1000, r"f: block has 7000 threads along x; the most is 1024; n\*k with n = 1000, k = 7"),
        ({"shared_mem": "k*10**0*n"}, 1, "this is not arithmetic over axes"),
        ({"grid": "n/4"}, 10, "f: grid: n/4 can't be computed for n = 10: 10 is not divisible by 4"),
        ({"grid": "1-n"}, 10, "f: grid: 1-n can't be computed for n = 10: it is -9"),
    ],
)
def test_an_error_has_the_expression_and_its_values(given: dict[str, Any], n: int, message: str):
    with pytest.raises(ArgumentError, match=message):
        sizes(**given).geometry(call(n))


@pytest.mark.parametrize(
    ("size", "message"),
    [("ceil(m/256)", "'m', which is not an axis of an input"), ("attr.by", "'attr.by', which is not an integer")],
)
def test_names_are_those_of_the_signature(size: str, message: str):
    with pytest.raises(SpecError, match=f"f: grid: .* has {message}"):
        sizes(grid=(1, size))


def test_without_a_signature_there_are_no_axes():
    with pytest.raises(ArgumentError, match="f: grid='n' is arithmetic over axes, and there is no signature"):
        read_sizes("f", {"grid": "n"}, None, explicit_geometry)


def test_sizes_that_never_change_are_checked_at_once():
    for given in ({"grid": 0}, {"block": 2048}):
        with pytest.raises(ArgumentError):
            sizes(**given).check(None)
    sizes(grid="n-n").check(None)


def test_sizes_of_one_device_are_arithmetic():
    found = sizes(grid=("ceil(n/16)", 2), block="min(n,64)", shared_mem="4*attr.bins")
    local = found.local(found.geometry(call(100)))
    assert local == ("ceil(n/16)", "2", "1", "min(n,64)", "1", "1", "4*attr.bins", "1", "1", "1", "0", "0")
    split = Split((("n", "k"),), (("n",),), places=(("n", (0, 0)),), integers=(("attr.bins", 5),))
    computed = split._replace(computed=(("launch", local),)).attributes([(17, 7)])
    assert computed == {"launch": list(found.geometry(call(17)).encode())}


def test_threads_of_one_device_follow_its_axes():
    given = {"grid": None, "block": None, "launch_dims": ("n", 32), "shared_mem": 0}
    found = read_sizes("f", given, SIGNATURE, partial(choose_geometry, threads_per_block=256))
    assert (found.local(found.geometry(call(100))) or ())[:6] == ("ceil((n)/16)", "2", "1", "16", "16", "1")


def test_sizes_that_functions_compute_are_not_known_for_one_device():
    found = sizes(grid=lambda x: x.shape[0])
    assert found.local(explicit_geometry(7, 32)) is None
