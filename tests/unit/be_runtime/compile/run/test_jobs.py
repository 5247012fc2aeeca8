"""How many commands run at a time, by processors and by memory, as recorded from machines and containers."""

from __future__ import annotations

import pytest

from be_runtime.compile.run.jobs import JOB_BYTES, available_memory_bytes, job_count
from be_toolchain.machine.local_system import LocalSystem
from tests.support.machines import MemorySystem

GIB = 2**30


@pytest.mark.parametrize(
    ("processors", "available", "wanted", "limit", "expected"),
    [
        (16, 128 * GIB, None, None, 16),
        (16, 4 * GIB, None, None, 3),
        (16, GIB // 2, None, None, 1),
        (2, None, None, None, 2),
        (16, 4 * GIB, 8, None, 8),
        (16, 4 * GIB, 8, 2, 2),
        (16, 128 * GIB, None, 4, 4),
    ],
)
def test_count(processors: int, available: int | None, wanted: int | None, limit: int | None, expected: int):
    assert job_count(processors, available, wanted, limit) == expected
    assert job_count(16, 8 * GIB) * JOB_BYTES <= 8 * GIB, "sixteen heavy files fit into what is free"


@pytest.mark.parametrize(
    ("own", "groups", "expected"),
    [
        ("", {}, 16 * GIB),
        (
            "0::/",
            {"memory.max": 4 * GIB, "memory.current": 3 * GIB, "memory.stat": f"a 5\ninactive_file {GIB}"},
            2 * GIB,
        ),
        (
            "0::/jobs/mine",
            {
                "jobs/mine/memory.max": "max",
                "jobs/mine/memory.current": GIB,
                "jobs/memory.max": 3 * GIB,
                "jobs/memory.current": GIB,
            },
            2 * GIB,
        ),
        (
            "8:pids:/\n4:memory:/slurm/job_7\n0::/",
            {
                "memory/slurm/job_7/memory.limit_in_bytes": 6 * GIB,
                "memory/slurm/job_7/memory.usage_in_bytes": GIB,
                "memory/memory.limit_in_bytes": 9223372036854771712,
                "memory/memory.usage_in_bytes": 9 * GIB,
            },
            5 * GIB,
        ),
    ],
    ids=["no groups", "a container, version 2", "the group around it has the limit", "a cluster's job, version 1"],
)
def test_available_memory(own: str, groups: dict[str, object], expected: int):
    machine = MemorySystem()
    assert available_memory_bytes(machine) is None, "nothing can be read"
    machine.write("/proc/meminfo", "MemTotal:  24689732 kB\nMemFree:    812312 kB\nMemAvailable:   16777216 kB\n")
    machine.write("/proc/self/cgroup", f"{own}\n")
    for name, content in groups.items():
        machine.write(f"/sys/fs/cgroup/{name}", f"{content}\n")
    assert available_memory_bytes(machine) == expected


def test_this_machine_says_how_much_it_has():
    assert (available_memory_bytes(LocalSystem()) or 0) > 2**20
