"""Calls split over eight CPU devices, by programs/split_calls.py: right, and with no communication but what is needed.

Then batches of `vmap` on two devices, and programs of several processes, from JAX's cache and exported ones.

The programs' texts are XLA's, after partitioning. JAX before 0.7.2 can't sum parts: there, such operands are gathered.
"""

from __future__ import annotations

import functools
import importlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from be_runtime import CompiledModule, GatherWarning, TransformError
from be_runtime.jax import internals, partition
from tests.support.jax_names import make_mesh
from tests.support.requirements import OPTIONAL
from tests.support.runtime import ROOT, environment, run_python

PROGRAM = Path(__file__).parent / "programs" / "split_calls.py"
SUMS = internals.sums_parts()
Lines = dict[str, dict[str, Any]]

NEEDS_ALL = "the kernel needs all of it; parallel[{}] in the arg_spec declares that it can be split"
UNDECLARED = "the arg_spec does not declare that the kernel works on parts; see parallel[b] and reduce[k]"
GATHERED = {
    "whole": f"kernels.whole: argument 0 is gathered for each device along b (axis 0): {NEEDS_ALL.format('b')}",
    "bare": f"kernels.bare: argument 0 is gathered for each device along axis 0: {UNDECLARED}",
    "last of leading axes": f"kernels.last: argument 0 is gathered for each device along ...0 (axis 0): {UNDECLARED}",
    "n split too": f"kernels.cumsum: argument 0 is gathered for each device along n (axis 1): {NEEDS_ALL.format('n')}",
    "one mesh axis for two": "kernels.table: argument 1 is gathered for each device along b (axis 0): another axis is "
    "split there",
}
"""Cases with the warning that each must give, and no other."""

pytestmark = pytest.mark.xdist_group("split-calls")  # each kind of mesh runs once


@functools.cache
def printed(kind: str) -> Lines:
    """What the program printed for a kind of mesh, by case."""
    environ = environment(JAX_ENABLE_X64="1", XLA_FLAGS="--xla_force_host_platform_device_count=8")
    code = f"import runpy, sys; sys.argv[0] = {str(PROGRAM)!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    found = map(json.loads, run_python(code, kind, env=environ, cwd=ROOT).stdout.splitlines())
    return {line["case"]: line for line in found}


@pytest.fixture(params=["automatic", "explicit"])
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
    assert [warning.rpartition(": ")[2] for warning in line["warnings"]] == ["another array has the axis in 2 parts"]


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
            assert line["warnings"][0].endswith(": 8 devices do not divide the 10 elements of the axis")


def test_calls_with_effects_are_made_once_by_each_device_or_refused(automatic: Lines):
    assert automatic["calls, has_side_effect"]["calls"] == 8
    assert "not supported for more than 1 device: [kernel (ordered)]" in automatic["ordered"]["error"]
    assert automatic["calls, ordered"]["calls"] == 0
    assert len(automatic["once"]["warnings"]) == 1, "the same gather of one line is shown once"


@pytest.mark.skipif(not SUMS, reason=f"{OPTIONAL}JAX 0.7.2, which sums parts")
def test_a_sum_that_xla_lacks_is_refused(automatic: Lines):
    assert all("AllReduce for datatype" in line["error"] for line in group(automatic, "refused"))


def start(program: str, devices: int, *args: object) -> subprocess.Popen[str]:
    environ = environment(XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}")
    argv = [sys.executable, "-m", "tests.compile.be_runtime.call.programs.several_processes"]
    argv += [program, *map(str, args)]
    return subprocess.Popen(argv, cwd=ROOT, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def answers(*processes: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """What each printed; all end, also where one fails."""
    try:
        printed = [process.communicate(timeout=200) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), printed
    return [json.loads(out.splitlines()[-1]) for out, _ in printed]


@pytest.mark.full
@pytest.mark.parametrize("count", [2, 4])
def test_processes_share_one_mesh(count: int):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    found = answers(*(start("global", 2, port, count, number) for number in range(count)))
    expected = {"devices": [2 * count, 2], "rows": True, "wsum": True, "whole": True, "grad": True}
    assert found == [expected] * count


@pytest.mark.full
def test_a_second_process_finds_the_program_in_jaxs_cache(tmp_path: Path):
    found = [answers(start("kept", 8, tmp_path, shift))[0] for shift in (1, 1, 2)]
    assert found == [{"right": True, "hits": hits, "misses": 1 - hits} for hits in (0, 1, 0)]


def exporter() -> Any:
    try:
        return importlib.import_module("jax.export")
    except ImportError:  # JAX 0.6 needs absl for it, and doesn't say so
        return None


@pytest.mark.skipif(exporter() is None, reason=f"{OPTIONAL}jax.export")
def test_a_program_of_two_devices_is_exported(m: CompiledModule):
    export = exporter()
    x = np.ones((4, 3), np.float32)
    placed = jax.device_put(x, NamedSharding(make_mesh((2,), "x"), P("x", None)))
    checks = [export.DisabledSafetyCheck.custom_call(partition.TARGET)]
    exported = export.export(jax.jit(m.rows), disabled_checks=checks)(placed)
    program = jax.jit(exported.call)
    np.testing.assert_allclose(program(placed), np.cumsum(x, -1))
    assert "all-gather" not in str(program.lower(placed).compile().as_text())


@pytest.mark.full
def test_of_many_calls_on_two_devices_none_hangs_or_is_wrong():
    """From one thread and from two."""
    ways, calls = ("in_turn", "split", "a_thread_each", "both_each"), 100_000
    environ = environment(XLA_FLAGS="--xla_force_host_platform_device_count=2")
    code = "import sys; from tests.support.many_calls import main; main(*sys.argv[1:])"
    found = json.loads(run_python(code, "cpu", str(calls), env=environ).stdout.splitlines()[-1])
    assert {way: row["wrong"] for way, row in found["ways"].items()} == dict.fromkeys(ways, 0)
    assert found["called"] == len(ways) * calls


X = np.arange(24, dtype=np.float32).reshape(4, 6)
W = np.array([1, 0], np.float32)
MESH = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("b",))


def split(array: Any, *spec: Any) -> Any:
    return jax.device_put(array, NamedSharding(MESH, P(*spec)))


def calls_of(m: CompiledModule, function: Callable[..., Any], *arrays: Any) -> tuple[Any, int]:
    jax.block_until_ready(m.noted(np.float32(0)))
    results = jax.block_until_ready(function(*arrays))
    return results, int(m.noted(np.float32(0)))


@pytest.mark.parametrize(
    ("wrap", "w_axis", "has_side_effect"), [(jax.jit, None, False), (jax.jit, 0, True), (lambda f: f, 0, False)]
)
def test_each_device_computes_its_own_elements(m: CompiledModule, wrap: Any, w_axis: Any, has_side_effect: bool):
    w = W if w_axis is None else split(np.tile(W, (4, 1)), "b")
    function = wrap(jax.vmap(m.adds.with_options(has_side_effect=has_side_effect), in_axes=(0, w_axis)))
    (y, sizes), calls = calls_of(m, function, split(X, "b"), w)
    assert (calls, y.sharding.spec) == (4, P("b"))
    np.testing.assert_array_equal(y, X + 1)
    np.testing.assert_array_equal(sizes, [[6, 2]] * 4)
    (y, _), calls = calls_of(m, function, jnp.asarray(X), np.asarray(w))
    assert calls == 4, "on one device nothing changes"
    np.testing.assert_array_equal(y, X + 1)


@pytest.mark.parametrize("spec", [("b",), (None, "b")])
def test_batches_of_batches_too(m: CompiledModule, spec: tuple[Any, ...]):
    twice = np.stack([X, X + 100])
    w = np.tile(W, (4, 1)) * np.arange(4, dtype=np.float32)[:, None]
    function = jax.jit(jax.vmap(jax.vmap(lambda x, w: m.adds(x, w)[0]), in_axes=(0, None)))
    y, calls = calls_of(m, function, split(twice, *spec), w)
    assert (calls, y.sharding.spec) == (8, P(*spec))
    np.testing.assert_array_equal(y, twice + np.arange(4)[:, None])


def test_a_batch_that_devices_do_not_divide_is_gathered_and_that_is_told(m: CompiledModule):
    def summed(adds: Any) -> Any:
        def function(x: Any) -> Any:
            x = jax.lax.with_sharding_constraint(x * 1, NamedSharding(MESH, P("b")))
            return jax.vmap(lambda x: adds(x, W)[0])(x).sum()

        return jax.jit(function)(np.ones((3, 6), np.float32))

    reason = "2 devices do not divide the 3 elements of the axis"
    with pytest.warns(GatherWarning, match=reason):
        assert float(summed(m.adds)) == 36
    with pytest.raises((TransformError, jax.errors.JaxRuntimeError), match=reason):
        jax.block_until_ready(summed(m.adds.with_options(on_gather="error")))
