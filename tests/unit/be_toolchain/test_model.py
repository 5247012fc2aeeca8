"""The values of a toolchain: what a toolkit can target."""

from __future__ import annotations

import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.arch import Arch, parse_archs
from be_toolchain.errors import ArchError
from be_toolchain.model import CudaToolkit, check_archs
from tests.support.machines import MemorySystem


@pytest.fixture(scope="module")
def toolkit() -> CudaToolkit:
    machine = MemorySystem(environ={"PATH": "/usr/bin:/usr/local/cuda/bin", "HOME": "/home/ada"})
    machine.gxx("/usr/bin/g++")
    machine.runfile("/usr/local/cuda")
    found = resolve(ToolchainRequest(need_cuda=True), system=machine).cuda
    assert found is not None
    return found


def test_what_a_toolkit_can_target(toolkit: CudaToolkit):
    toolkit = toolkit._replace(archs=parse_archs("75 80 90 90a 120"))
    check_archs(parse_archs("8.0, 9.0a"), toolkit)
    with pytest.raises(ArchError, match=r"cannot target sm_999[\s\S]*sm_75, sm_80, sm_90, sm_90a, sm_120"):
        check_archs(parse_archs("8.0, sm_999"), toolkit)
    with pytest.raises(ArchError, match=r"sm_80a"):
        check_archs((Arch(8, 0, "a"),), toolkit)
    with pytest.raises(ArchError, match=r"sm_61 needs an older CUDA release"):
        check_archs((Arch(6, 1),), toolkit)


def test_a_toolkit_that_lists_no_suffixes_is_asked_for_the_base(toolkit: CudaToolkit):
    toolkit = toolkit._replace(archs=parse_archs("80 90"))
    check_archs((Arch(9, 0, "a"),), toolkit)
    with pytest.raises(ArchError):
        check_archs((Arch(10, 0, "a"),), toolkit)
