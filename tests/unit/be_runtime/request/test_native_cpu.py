"""The identity of a CPU: the kind and its instructions, the same for every core and at every clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.request.native_cpu import identify_cpu

CORE = """processor\t: {core}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R)
cpu MHz\t\t: {clock}
flags\t\t: fpu sse2 {flags}

"""


ARM = "processor : 0\nBogoMIPS : {}\nFeatures : fp asimd\nCPU implementer : 0x41\nCPU part : {}\n"


def identity(folder: Path, text: str) -> str:
    (folder / "cpuinfo").write_text(text)
    identify_cpu.cache_clear()
    return identify_cpu(folder / "cpuinfo")


def test_kinds_and_instructions_decide_and_clocks_and_cores_do_not(tmp_path: Path):
    def intel(clock: str = "2000.0", flags: str = "avx2") -> str:
        return identity(tmp_path, "".join(CORE.format(core=core, clock=clock, flags=flags) for core in range(2)))

    assert intel() == intel(clock="3100.5") != intel(flags="avx2 avx512f")
    int(intel(), 16)
    first, same, other = (
        identity(tmp_path, ARM.format(*kind)) for kind in ((50, "0xd0c"), (99, "0xd0c"), (50, "0xd40"))
    )
    assert first == same != other


def test_an_unknown_cpu_is_refused(tmp_path: Path):
    with pytest.raises(ArgumentError, match="names none"):
        identity(tmp_path, "processor : 0\n")
    identify_cpu.cache_clear()
    with pytest.raises(ArgumentError, match="No such file"):
        identify_cpu(tmp_path / "missing")
