"""Programs of calls beyond one process: several processes, JAX's persistent cache, exported programs, many calls."""

from __future__ import annotations

import importlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from be_runtime import CompiledModule
from be_runtime.xla import partition
from tests.support.jax_names import make_mesh
from tests.support.requirements import OPTIONAL
from tests.support.runtime import ROOT, environment, run_python


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
