"""Nvcc's phases run one by one make what nvcc makes as a whole."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

import be_runtime
from tests.support.cuda import device_code, instructions, source
from tests.support.requirements import in_full

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


@pytest.mark.parametrize(
    ("kernel", "arch"),
    [
        ("arithmetic", "8.0,9.0"),
        *(in_full(*each) for each in (("events", "9.0"), ("half", "9.0"), ("cub_sums", "9.0"), ("styles", "8.0"))),
    ],
)
def test_the_machine_code_is_that_of_plain_nvcc(kernel: str, arch: str, tmp_path: Path):
    split, whole = (
        be_runtime.load_cuda_inline(
            name,
            source(kernel),
            auto_register=False,
            extra_cuda_cflags=["--no-compress", *flags],
            compute_capability=arch,
        )
        for name, flags in (("phases_split", []), ("phases_whole", ["--time", str(tmp_path / "t.csv")]))
    )
    assert "cudafe++" in commands(split)
    assert "cudafe++" not in commands(whole)
    split_code, whole_code = ([(code.kind, code.arch) for code in device_code(each.path)] for each in (split, whole))
    assert split_code == whole_code
    assert instructions(split.path) == instructions(whole.path) != []


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
