"""How many commands run at a time: as many as there are processors and room in memory for."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from be_toolchain.machine.system import System

JOB_BYTES = 5 * 2**28
"""Memory that one compiler may need: 1.25 GiB, a quarter above cicc's peak over a file full of CUB and Thrust."""

_MEMINFO = Path("/proc/meminfo")
_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
_UNLIMITED_BYTES = 2**60
"""A limit beyond this is cgroup v1's way to say that there is none."""


def job_count(processors: int, available_bytes: int | None, wanted: int | None = None, limit: int | None = None) -> int:
    """Commands to run at a time. Pure.

    Parameters
    ----------
    processors : int
        That this process may use.
    available_bytes : int or None
        Memory; None when it isn't known.
    wanted : int, optional
        As the caller asked: then memory is theirs to judge.
    limit : int, optional
        Never more than this.

    Examples
    --------
    >>> job_count(16, 8 * 2**30)
    6
    >>> job_count(16, 8 * 2**30, wanted=12, limit=10)
    10
    """
    count = wanted
    if count is None:
        room = processors if available_bytes is None else available_bytes // JOB_BYTES
        count = max(1, min(processors, room))
    return count if limit is None else min(count, limit)


def available_memory_bytes(system: System) -> int | None:
    """What this process and its children may still take: the machine's, or less where a control group limits it.

    From `/proc/meminfo <https://docs.kernel.org/filesystems/proc.html#meminfo>`_ and both versions of `control groups
    <https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files>`_; None where neither can be read.
    """
    found = [room for group in _memory_groups(system) if (room := _group_room(system, group)) is not None]
    meminfo = re.search(r"^MemAvailable:\s+(\d+) kB$", system.read_text(_MEMINFO) or "", re.MULTILINE)
    if meminfo is not None:
        found.append(int(meminfo[1]) * 1024)
    return min(found, default=None)


def _memory_groups(system: System) -> list[Path]:
    """The folders of this process's control group and of those around it, each of which may have a limit."""
    folders: list[Path] = []
    for line in (system.read_text(_OWN_GROUPS) or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        root = _GROUPS / "memory" if controllers else _GROUPS
        path = PurePosixPath(group)
        folders += [root / str(each).lstrip("/") for each in (path, *path.parents)]
    return list(dict.fromkeys(folders))


def _group_room(system: System, folder: Path) -> int | None:
    """The bytes that a control group may still take, page cache that can be dropped counted as free."""
    for limit_file, used_file in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit, used = (_number(system, folder / name) for name in (limit_file, used_file))
        if limit is not None and used is not None and limit < _UNLIMITED_BYTES:
            cached = re.search(
                r"^(?:total_)?inactive_file (\d+)$", system.read_text(folder / "memory.stat") or "", re.MULTILINE
            )
            return max(0, limit - used + (int(cached[1]) if cached is not None else 0))
    return None


def _number(system: System, path: Path) -> int | None:
    text = (system.read_text(path) or "").strip()
    return int(text) if text.isdecimal() else None
