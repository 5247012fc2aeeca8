"""Nvcc's phases run one by one make what nvcc makes as a whole."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

import be_runtime
from tests.support.cuda import device_code, source

WHOLE = {
    "--time": ["--time", "{}"],
    "--keep": ["--keep", "--keep-dir", "{}"],
    "--threads": ["--threads", "1"],
}
"""Flags under which nvcc is not taken apart, by the first of them."""


def load(name: str, *flags: str, compute_capability: str | None = None) -> be_runtime.CompiledModule:
    return be_runtime.load_cuda_inline(
        name,
        source("arithmetic"),
        auto_register=False,
        extra_cuda_cflags=list(flags),
        compute_capability=compute_capability,
    )


def commands(module: be_runtime.CompiledModule) -> str:
    return (module.path.parent / "build.log").read_text()


@pytest.mark.parametrize("arch", ["sm_90", "8.0,9.0"])
def test_the_machine_code_is_the_same(arch: str, tmp_path: Path):
    split = load("phases_split", compute_capability=arch)
    whole = load("phases_whole", "--time", str(tmp_path / "t.csv"), compute_capability=arch)
    assert "cudafe++" in commands(split)
    assert "cudafe++" not in commands(whole)
    split_code, whole_code = device_code(split.path), device_code(whole.path)
    assert [(code.kind, code.arch, code.size_bytes) for code in split_code] == [
        (code.kind, code.arch, code.size_bytes) for code in whole_code
    ]


@pytest.mark.parametrize("flag", WHOLE)
def test_flags_that_change_nvccs_steps_run_it_as_a_whole(flag: str, tmp_path: Path):
    folder = tmp_path / "out"
    folder.mkdir()
    flags = [part.format(folder / "t.csv" if flag == "--time" else folder) for part in WHOLE[flag]]
    module = load(f"phases{flag.replace('-', '_')}", *flags)
    assert "cudafe++" not in commands(module)
    assert ctypes.CDLL(str(module.path)).host_is_optimized() == 1


def test_the_dry_run_is_asked_once_for_a_set_of_flags(tmp_cache: Path):
    for name in ("phases_first", "phases_second"):
        load(name)
    load("phases_other", "-DOTHER")
    kept = sorted((tmp_cache / "toolchain").rglob("dryrun.txt"))
    assert len(kept) == 2
