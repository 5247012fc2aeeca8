"""How many commands run at a time, by processors and by memory, as recorded from machines and containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.compile.run.jobs import JOB_BYTES, available_memory_bytes, job_count
from be_toolchain.machine.local_system import LocalSystem

GIB = 2**30
MEMINFO = "MemTotal:       24689732 kB\nMemFree:          812312 kB\nMemAvailable:   16777216 kB\n"


class Machine(LocalSystem):
    """A machine whose files are given."""

    def __init__(self, **files: str) -> None:
        super().__init__({})
        self.files = {f"/{name.replace('__', '/')}": text for name, text in files.items()}

    def read_text(self, path: Path, limit_bytes: int = 1 << 20) -> str | None:
        return self.files.get(str(path).replace(".", "_"))


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


def test_sixteen_heavy_files_fit_into_what_is_free():
    assert job_count(16, 8 * GIB) * JOB_BYTES <= 8 * GIB


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"proc__meminfo": MEMINFO}, 16 * GIB, id="no groups"),
        pytest.param({}, None, id="nothing can be read"),
        pytest.param(
            {
                "proc__meminfo": MEMINFO,
                "proc__self__cgroup": "0::/\n",
                "sys__fs__cgroup__memory_max": f"{4 * GIB}\n",
                "sys__fs__cgroup__memory_current": f"{3 * GIB}\n",
                "sys__fs__cgroup__memory_stat": f"anon 5\ninactive_file {GIB}\n",
            },
            2 * GIB,
            id="a container, version 2",
        ),
        pytest.param(
            {
                "proc__meminfo": MEMINFO,
                "proc__self__cgroup": "0::/jobs/mine\n",
                "sys__fs__cgroup__jobs__mine__memory_max": "max\n",
                "sys__fs__cgroup__jobs__mine__memory_current": f"{GIB}\n",
                "sys__fs__cgroup__jobs__memory_max": f"{3 * GIB}\n",
                "sys__fs__cgroup__jobs__memory_current": f"{GIB}\n",
            },
            2 * GIB,
            id="the group around it has the limit",
        ),
        pytest.param(
            {
                "proc__meminfo": MEMINFO,
                "proc__self__cgroup": "8:pids:/\n4:memory:/slurm/job_7\n0::/\n",
                "sys__fs__cgroup__memory__slurm__job_7__memory_limit_in_bytes": f"{6 * GIB}\n",
                "sys__fs__cgroup__memory__slurm__job_7__memory_usage_in_bytes": f"{GIB}\n",
                "sys__fs__cgroup__memory__memory_limit_in_bytes": "9223372036854771712\n",
                "sys__fs__cgroup__memory__memory_usage_in_bytes": f"{9 * GIB}\n",
            },
            5 * GIB,
            id="a cluster's job, version 1",
        ),
    ],
)
def test_available_memory(files: dict[str, str], expected: int | None):
    assert available_memory_bytes(Machine(**files)) == expected


def test_this_machine_says_how_much_it_has():
    available = available_memory_bytes(LocalSystem())
    assert available is not None
    assert available > 2**20
