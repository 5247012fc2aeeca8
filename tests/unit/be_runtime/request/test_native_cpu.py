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


def identity(folder: Path, *, clock: str = "2000.0", flags: str = "avx2", text: str = "") -> str:
    path = folder / "cpuinfo"
    path.write_text(text or "".join(CORE.format(core=core, clock=clock, flags=flags) for core in range(2)))
    identify_cpu.cache_clear()
    return identify_cpu(path)


def test_instructions_decide_and_clocks_do_not(tmp_path: Path):
    assert identity(tmp_path) == identity(tmp_path, clock="3100.5")
    assert identity(tmp_path) != identity(tmp_path, flags="avx2 avx512f")
    int(identity(tmp_path), 16)


def test_an_arm_has_other_lines(tmp_path: Path):
    arm = "processor : 0\nBogoMIPS : {}\nFeatures : fp asimd\nCPU implementer : 0x41\nCPU part : {}\n"
    assert identity(tmp_path, text=arm.format(50, "0xd0c")) == identity(tmp_path, text=arm.format(99, "0xd0c"))
    assert identity(tmp_path, text=arm.format(50, "0xd0c")) != identity(tmp_path, text=arm.format(50, "0xd40"))


def test_an_unknown_cpu_is_refused(tmp_path: Path):
    with pytest.raises(ArgumentError, match="names none"):
        identity(tmp_path, text="processor : 0\n")
    identify_cpu.cache_clear()
    with pytest.raises(ArgumentError, match="No such file"):
        identify_cpu(tmp_path / "missing")
