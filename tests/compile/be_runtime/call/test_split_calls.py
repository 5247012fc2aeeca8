"""Calls split over eight CPU devices, by programs/split_calls.py: right, and with no communication but what is needed.

The programs' texts are XLA's, after partitioning. JAX before 0.7.2 can't sum parts: there, such operands are gathered.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jax
import pytest

from be_runtime.xla import jax_internals
from tests.support.requirements import OPTIONAL
from tests.support.runtime import ROOT, environment, run_python

PROGRAM = Path(__file__).parent / "programs" / "split_calls.py"
SUMS = jax_internals.sums_parts()
Lines = dict[str, dict[str, Any]]

NEEDS_ALL = "the kernel needs all of it; parallel[{}] in the arg_spec says that it can be split"
UNDECLARED = "the arg_spec does not say that the kernel works on parts; see parallel[b] and reduce[k]"
GATHERED = {
    "whole": f"kernels.whole: argument 0 is gathered for each device along b (axis 0): {NEEDS_ALL.format('b')}",
    "bare": f"kernels.bare: argument 0 is gathered for each device along axis 0: {UNDECLARED}",
    "last of leading axes": f"kernels.last: argument 0 is gathered for each device along ...0 (axis 0): {UNDECLARED}",
    "n split too": f"kernels.cumsum: argument 0 is gathered for each device along n (axis 1): {NEEDS_ALL.format('n')}",
    "one mesh axis for two": "kernels.table: argument 1 is gathered for each device along b (axis 0): another axis is "
    "split there",
}
"""Cases with the warning that each must give, and no other."""


@functools.cache
def printed(kind: str) -> Lines:
    """What the program printed for a kind of mesh, by case."""
    environ = environment(JAX_ENABLE_X64="1", XLA_FLAGS="--xla_force_host_platform_device_count=8")
    code = f"import runpy, sys; sys.argv[0] = {str(PROGRAM)!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    found = map(json.loads, run_python(code, kind, env=environ, cwd=ROOT).stdout.splitlines())
    return {line["case"]: line for line in found}


@pytest.fixture(params=["automatic", pytest.param("explicit", marks=pytest.mark.full)])
def lines(request: pytest.FixtureRequest) -> Lines:
    return printed(request.param)


@pytest.fixture
def automatic() -> Lines:
    """Meshes without explicit axes have more cases."""
    return printed("automatic")


def group(lines: Lines, name: str) -> list[dict[str, Any]]:
    found = [line for line in lines.values() if line.get("group") == name]
    assert found
    return found


def test_a_split_call_exchanges_nothing(lines: Lines):
    assert len(group(lines, "alone")) >= 28
    for line in group(lines, "alone"):
        assert (line.get("right"), line.get("exchanges"), line.get("warnings")) == (True, {}, []), line


def test_parts_along_a_reduced_axis_are_summed_once(lines: Lines):
    assert len(group(lines, "summed")) >= 8
    for line in group(lines, "summed"):
        assert line.get("right"), line
        if SUMS:
            assert (line["exchanges"], line["warnings"]) == ({"all-reduce": 1}, []), line
        else:
            assert all("sums of parts need JAX 0.7.2" in warning for warning in line["warnings"])


def test_an_argument_that_is_gathered_is_named(lines: Lines):
    found = {line["case"]: line for line in group(lines, "gathered")}
    assert {case: line.get("warnings") for case, line in found.items()} == {n: [text] for n, text in GATHERED.items()}
    assert all(line["right"] and line["exchanges"]["all-gather"] == 1 for line in found.values()), found
    for case, named in (("error", "whole"), ("error of bare", "bare")):
        assert f"TransformError: {GATHERED[named]}" in lines[case]["error"], "a gather can be an error"


@pytest.mark.skipif(not SUMS, reason=f"{OPTIONAL}JAX 0.7.2, which sums parts")
def test_arrays_that_are_split_into_different_numbers_of_parts_follow_the_first(lines: Lines):
    line = lines["parts of two sizes"]
    assert line["right"], line
    assert [warning.rpartition(": ")[2] for warning in line["warnings"]] == ["another array has it in 2 parts"]


def test_sums_within_shard_map_are_the_authors(lines: Lines):
    line = lines["shard_map, summed"]
    assert (line.get("right"), line.get("exchanges")) == (True, {"all-reduce": 1}), line


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason=f"{OPTIONAL}JAX 0.6.1, whose shard_map takes axis_names")
def test_shard_map_over_some_axes_leaves_the_others_to_the_partitioner(lines: Lines):
    over_y, summed, jnps = (lines[f"shard_map over y{rest}"] for rest in ("", ", summed", " of jnp"))
    for line in (over_y, summed, lines["one device, shard_map over y"]):
        assert line.get("right"), line
    assert over_y["exchanges"] == jnps["exchanges"], "JAX gathers what goes in and comes out of explicit axes by itself"
    if SUMS:
        assert summed["exchanges"] == {**jnps["exchanges"], "all-reduce": summed["exchanges"]["all-reduce"]}
    for line in group(lines, "loop"):  # each device loops over its part of a batch where types tell
        assert line.get("right"), line
        assert line["kind"] == "automatic" or line["exchanges"] == {}


def test_an_axis_that_the_devices_do_not_divide_is_gathered_and_right(automatic: Lines):
    for line in group(automatic, "uneven"):
        assert line.get("right"), line
        assert "all-reduce" not in line["exchanges"]
        assert any("along b (axis 0)" in warning for warning in line["warnings"])
        if SUMS:
            assert line["warnings"][0].endswith(": 8 devices do not divide its 10 elements")


def test_calls_with_effects_are_made_once_by_each_device_or_refused(automatic: Lines):
    assert automatic["calls, has_side_effect"]["calls"] == 8
    assert "not supported for more than 1 device: [kernel (ordered)]" in automatic["ordered"]["error"]
    assert automatic["calls, ordered"]["calls"] == 0
    assert len(automatic["once"]["warnings"]) == 1, "the same gather of one line is shown once"


@pytest.mark.skipif(not SUMS, reason=f"{OPTIONAL}JAX 0.7.2, which sums parts")
def test_a_sum_that_xla_lacks_is_refused(automatic: Lines):
    assert all("AllReduce for datatype" in line["error"] for line in group(automatic, "refused"))
