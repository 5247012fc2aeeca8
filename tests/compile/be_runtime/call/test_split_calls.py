"""Calls split over eight CPU devices, by programs/split_calls.py: right, and with no communication but what is needed.

The programs' texts are XLA's, after partitioning. JAX before 0.7.2 can't sum parts: there, such operands are gathered.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from be_runtime.dtypes import DTYPES
from be_runtime.xla import jax_internals
from tests.support.requirements import OPTIONAL
from tests.support.runtime import ROOT, environment, run_python

Lines = dict[tuple[str, str], dict[str, Any]]

PROGRAM = Path(__file__).parent / "programs" / "split_calls.py"
KINDS = ("automatic", "explicit")
SUMS = jax_internals.sums_parts()
TYPES = [row.name for row in DTYPES if row.name == "bool" or hasattr(jnp, row.name)]
MAPS_SOME_AXES = hasattr(jax, "shard_map")

ALONE = (
    "leading axes", "parallel", "replicated operand", "jit in jit", "vmap", "vmap, split", "vmap of parallel",
    "vmap of parallel, split", "vmap of one argument", "vmap of vmap", "grad", "grad of checkpoint", "grad of vmap",
    "vmap of grad", "scan", "grad of scan", "cond", "b over two axes", "two leading axes", "a part of the mesh",
    "two axes", "two axes on two", "several results", "extents of a device", "scratch memory",
    "scratch memory of vmap", "attributes", "attributes of every kind", "no rows", "no error",
    "reduce, not divided", "shard_map", "grad of shard_map", "one device", "one device, vmap",
    "one device, grad of vmap", "one device, scratch memory",
)  # fmt: skip
"""Cases without communication."""

SUMMED = (
    "grad of both", "reduce", "reduce, replicated weights", "reduce over two axes", "reduce over a part",
    "vmap of reduce", "vmap of reduce, both split", "grad of reduce", "sums of several results",
)  # fmt: skip
"""Cases with one sum over the devices, which their mathematics needs."""

OPTIONS = ("aliases", "layout of the result", "layout of an argument", "layouts", "has_side_effect")

NEEDS_ALL = "the kernel needs all of it; parallel[{}] in the arg_spec says that it can be split"
UNDECLARED = "the arg_spec does not say that the kernel works on parts; see parallel[b] and reduce[k]"
GATHERED = {
    "whole": f"split.whole: argument 0 is gathered for each device along b (axis 0): {NEEDS_ALL.format('b')}",
    "bare": f"split.bare: argument 0 is gathered for each device along axis 0: {UNDECLARED}",
    "last of leading axes": f"split.last: argument 0 is gathered for each device along ...0 (axis 0): {UNDECLARED}",
    "n split too": f"split.cumsum: argument 0 is gathered for each device along n (axis 1): {NEEDS_ALL.format('n')}",
    "one mesh axis for two": "split.table: argument 1 is gathered for each device along b (axis 0): another axis is "
    "split there",
}
"""Cases with the warning that each must give, and no other."""


def run(*kinds: str) -> Iterator[dict[str, Any]]:
    environ = environment(JAX_ENABLE_X64="1", XLA_FLAGS="--xla_force_host_platform_device_count=8")
    code = f"import runpy, sys; sys.argv[0] = {str(PROGRAM)!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    return map(json.loads, run_python(code, *kinds, env=environ, cwd=ROOT).stdout.splitlines())


@pytest.fixture(scope="module", name="lines")
def _lines() -> Lines:
    """What the program printed, by case and kind of mesh."""
    return {(line["case"], line["kind"]): line for line in run(*KINDS)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ALONE)
def test_a_split_call_exchanges_nothing(lines: Lines, case: str, kind: str):
    line = lines[case, kind]
    assert "error" not in line, line
    assert (line["right"], line["exchanges"], line["warnings"]) == (True, {}, [])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", SUMMED)
def test_parts_along_a_reduced_axis_are_summed_once(lines: Lines, case: str, kind: str):
    line = lines[case, kind]
    assert "error" not in line, line
    assert line["right"]
    if SUMS:
        assert (line["exchanges"], line["warnings"]) == ({"all-reduce": 1}, [])
    else:
        assert all("sums of parts need JAX 0.7.2" in warning for warning in line["warnings"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", GATHERED)
def test_an_argument_that_is_gathered_is_named(lines: Lines, case: str, kind: str):
    line = lines[case, kind]
    assert "error" not in line, line
    assert line["right"]
    assert line["exchanges"]["all-gather"] == 1
    assert line["warnings"] == [GATHERED[case]]


@pytest.mark.parametrize("case", ["not divided", "reduce, uneven"])
def test_an_axis_that_the_devices_do_not_divide_is_gathered_and_right(lines: Lines, case: str):
    line = lines[case, "automatic"]
    assert line["right"], line
    assert "all-reduce" not in line["exchanges"]
    assert any("along b (axis 0)" in warning for warning in line["warnings"])
    if SUMS:
        assert line["warnings"][0].endswith(": 8 devices do not divide its 10 elements")


@pytest.mark.skipif(not SUMS, reason=f"{OPTIONAL}JAX 0.7.2, which sums parts")
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_that_are_split_into_different_numbers_of_parts_follow_the_first(lines: Lines, kind: str):
    line = lines["parts of two sizes", kind]
    assert line["right"], line
    assert [warning.rpartition(": ")[2] for warning in line["warnings"]] == ["another array has it in 2 parts"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("case", "named"), [("error", "whole"), ("error of bare", "bare")])
def test_a_gather_can_be_an_error(lines: Lines, case: str, named: str, kind: str):
    error = lines[case, kind]["error"]
    assert f"TransformError: {GATHERED[named]}" in error


@pytest.mark.parametrize("kind", KINDS)
def test_sums_within_shard_map_are_the_authors(lines: Lines, kind: str):
    line = lines["shard_map, summed", kind]
    assert line["right"], line
    assert line["exchanges"] == {"all-reduce": 1}


@pytest.mark.skipif(not MAPS_SOME_AXES, reason=f"{OPTIONAL}JAX 0.6.1, whose shard_map takes axis_names")
@pytest.mark.parametrize("kind", KINDS)
def test_shard_map_over_some_axes_leaves_the_others_to_the_partitioner(lines: Lines, kind: str):
    line, summed, jnps = (lines[f"shard_map over y{rest}", kind] for rest in ("", ", summed", " of jnp"))
    assert line["right"], line
    assert summed["right"], summed
    one = lines["one device, shard_map over y", kind]
    assert one.get("right"), one
    assert line["exchanges"] == jnps["exchanges"], "JAX gathers what goes in and comes out of explicit axes by itself"
    if SUMS:
        assert summed["exchanges"] == {**jnps["exchanges"], "all-reduce": summed["exchanges"]["all-reduce"]}


@pytest.mark.skipif(not MAPS_SOME_AXES, reason=f"{OPTIONAL}JAX 0.6.1, whose shard_map takes axis_names")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ["a loop over a split batch", "grad of a loop over a split batch"])
def test_each_device_loops_over_its_part_of_a_batch_where_types_tell(lines: Lines, case: str, kind: str):
    line = lines[case, kind]
    assert line.get("right"), line
    assert kind == "automatic" or line["exchanges"] == {}


@pytest.mark.parametrize("case", OPTIONS)
def test_options_hold_for_each_part(lines: Lines, case: str):
    line = lines[case, "automatic"]
    assert line.get("right"), line
    assert (line["exchanges"], line["warnings"]) == ({}, [])


def test_each_device_makes_a_call_with_a_side_effect_once(lines: Lines):
    assert lines["calls, has_side_effect", "automatic"]["calls"] == 8


def test_ordered_calls_are_refused_on_several_devices(lines: Lines):
    error = lines["ordered", "automatic"]["error"]
    assert "not supported for more than 1 device: [kernel (ordered)]" in error
    assert lines["calls, ordered", "automatic"]["calls"] == 0


def test_the_same_gather_of_one_line_is_shown_once(lines: Lines):
    assert len(lines["once", "automatic"]["warnings"]) == 1


@pytest.mark.parametrize("name", TYPES)
def test_every_element_type_is_split(lines: Lines, name: str):
    line = lines[name, "automatic"]
    assert "error" not in line, line
    assert (line["right"], line["exchanges"]) == (True, {})


@pytest.mark.skipif(not SUMS, reason=f"{OPTIONAL}JAX 0.7.2, which sums parts")
@pytest.mark.parametrize("name", TYPES)
def test_parts_of_every_element_type_are_summed_or_refused(lines: Lines, name: str):
    line = lines[f"sums of {name}", "automatic"]
    if name in ("int2", "uint2"):
        assert "AllReduce for datatype" in line["error"]
    else:
        assert line.get("right"), line
