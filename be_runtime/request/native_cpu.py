"""Identity of this machine's CPU, for code that is compiled for no other."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from be_runtime.errors import ArgumentError

_CPUINFO = Path("/proc/cpuinfo")
_LABELS = frozenset(
    {
        *("vendor_id", "cpu family", "model", "model name", "flags", "cache size"),
        *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
        *("cpu", "isa", "uarch", "machine", "processor version"),
    }
)
"""Lines that decide what a compiler makes of ``-march=native``; other lines differ between the cores of one CPU."""


@lru_cache(maxsize=1)
def identify_cpu(path: Path = _CPUINFO) -> str:
    """Hash the kind of the first core and the instructions that it has, once: some kernels take 10 ms to say them.

    Raises
    ------
    ArgumentError
        The system does not say what CPU it has.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise _unknown(f"{path}: {error.strerror}") from None
    pairs = [line.partition(":") for line in text.partition("\n\n")[0].splitlines()]
    known = sorted((label.strip(), value.strip()) for label, _, value in pairs if label.strip() in _LABELS)
    if not known:
        raise _unknown(f"{path} names none")
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def _unknown(reason: str) -> ArgumentError:
    return ArgumentError(
        f"native=True needs to know this machine's CPU, and {reason}",
        hints=("name the instructions instead, as in extra_cflags=['-march=x86-64-v3']",),
    )
