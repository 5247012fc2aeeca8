"""A checked build of a CUDA module compiles, and names the lines of its source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from be_runtime.load.process import PROCESS
from be_runtime.request.arguments import cuda_request, file_units, load_options
from tests.support.cuda import ARCH
from tests.support.planted.try_all import kernels


def load(kernel: Path, flags: list[str] | None = None, *, checked: bool = False) -> Any:
    units = file_units(kernel)
    request = cuda_request(kernel.stem, units, None, compute_capability=ARCH, extra_cuda_cflags=flags)
    wanted = request._replace(compile=request.compile._replace(checked=checked))
    return PROCESS.load(wanted, load_options(kernel.stem, auto_register=False))


@pytest.mark.filterwarnings("ignore::be_runtime.StreamWarning")
@pytest.mark.parametrize("kernel", kernels("cuda"), ids=lambda path: path.stem)
def test_each_planted_fault_compiles_checked(kernel: Path):
    assert load(kernel, checked=True).function_names == [kernel.stem]


@pytest.mark.parametrize("checked", [False, True], ids=["ordinary", "checked"])
def test_there_are_no_warnings(checked: bool):
    flags = ["-Xcompiler", "-Wall,-Wextra,-Werror", "-Werror", "all-warnings"]
    (kernel,) = (each for each in kernels("cuda") if each.stem == "index_outside")
    assert load(kernel, flags, checked=checked).function_names == ["index_outside"]


def test_only_a_checked_library_can_tell_of_an_access():
    (kernel,) = (each for each in kernels("cuda") if each.stem == "index_outside")
    assert b"be_access_taken" in load(kernel, checked=True).path.read_bytes()
    assert b"be_access_taken" not in load(kernel).path.read_bytes()
