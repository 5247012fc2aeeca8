"""The number of commands that run at a time, which processors and memory limit."""

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
"""A limit above this stands for no limit in cgroup v1."""


def job_count(processors: int, available_bytes: int | None, wanted: int | None = None, limit: int | None = None) -> int:
    """Return the number of commands to run at a time. Pure.

    Parameters
    ----------
    processors : int
        Number of processors that this process may use.
    available_bytes : int or None
        Available memory; None if unknown.
    wanted : int, optional
        Number that the caller requests; memory is not checked then.
    limit : int, optional
        Upper limit.

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
    """Return the memory that this process and its children may still take: the machine's, or a control group's limit.

    It is read from `/proc/meminfo <https://docs.kernel.org/filesystems/proc.html#meminfo>`_ and both versions of
    `control groups <https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files>`_; None if neither can
    be read.
    """
    found = [room for group in _memory_groups(system) if (room := _group_room(system, group)) is not None]
    meminfo = re.search(r"^MemAvailable:\s+(\d+) kB$", system.read_text(_MEMINFO) or "", re.MULTILINE)
    if meminfo is not None:
        found.append(int(meminfo[1]) * 1024)
    return min(found, default=None)


def _memory_groups(system: System) -> list[Path]:
    """List the folders of this process's control group and its ancestors, each of which may have a limit."""
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
    """Return the bytes that a control group may still take; page cache that can be dropped counts as free."""
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
