"""The architectures that device code is compiled for."""

from __future__ import annotations

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.kernels.cuda.calls import choose_archs as choose_archs_of_a_kernel
from be_runtime.kernels.cuda.calls import new_session
from be_runtime.request.tools import choose_archs
from be_runtime.settings import Settings
from be_toolchain import ToolchainRequest, resolve
from tests.support.machines import MemorySystem


def test_a_module_and_a_kernel_are_told_the_same_where_no_gpu_is_visible():
    """A module is compiled for what most GPUs run, with a warning; a kernel has to know."""
    settings = Settings.from_environ({})
    machine = MemorySystem(environ={"PATH": "/usr/bin", "HOME": "/home/ada"})
    machine.clang("/usr/bin/clang++-19")
    machine.joined_cu12()
    toolkit = resolve(ToolchainRequest(need_cuda=True), system=machine).cuda
    assert toolkit is not None
    with pytest.warns(UserWarning, match="no GPU is visible, so CUDA code is compiled for sm_") as warned:
        choose_archs(None, (), settings, toolkit, tuple)
    session = new_session()._replace(system=machine, settings=settings, archs=())
    with pytest.raises(ArgumentError, match="no GPU is visible, so the architecture") as raised:
        choose_archs_of_a_kernel(None, session)
    assert warned[0].filename == __file__
    _, *hints = str(warned[0].message).split("\n")
    assert hints == [f"hint: {hint}" for hint in raised.value.hints]
    assert len(hints) == 2
