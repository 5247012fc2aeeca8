"""Texts as the real programs print them."""

from __future__ import annotations

import pytest

from be_toolchain.known import versions
from be_toolchain.model import HostLimits

GCC = """Using built-in specs.
COLLECT_GCC=g++
COLLECT_LTO_WRAPPER=/usr/lib/gcc/x86_64-linux-gnu/12/lto-wrapper
OFFLOAD_TARGET_NAMES=nvptx-none:amdgcn-amdhsa
Target: x86_64-linux-gnu
Configured with: ../src/configure -v --with-pkgversion='Debian 12.2.0-14+deb12u1'
gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)
"""
CLANG = """Debian clang version 19.1.7 (3~deb12u1)
Target: x86_64-pc-linux-gnu
Thread model: posix
InstalledDir: /usr/lib/llvm-19/bin
Found candidate GCC installation: /usr/bin/../lib/gcc/x86_64-linux-gnu/12
"""
CUDAFE = """cudafe: NVIDIA (R) Cuda Language Front End
Based on Edison Design Group C/C++ Front End, version 6.6 (Aug 20 2025 13:59:03)
Cuda compilation tools, release 13.0, V13.0.88
"""
DRYRUN = """#$ _NVVM_BRANCH_=nvvm
#$ _SPACE_=
#$ _HERE_=/usr/local/cuda-13.0/bin
#$ TOP=/usr/local/cuda-13.0/bin/..
#$ CICC_PATH=/usr/local/cuda-13.0/bin/../nvvm/bin
#$ NVVMIR_LIBRARY_DIR=/usr/local/cuda-13.0/bin/../nvvm/libdevice
#$ INCLUDES="-I/usr/local/cuda-13.0/bin/../targets/x86_64-linux/include" -I"/a b/include"
#$ SYSTEM_INCLUDES="-isystem" "/usr/local/cuda-13.0/bin/../targets/x86_64-linux/include/cccl"
#$ LIBRARIES=  "-L/x/lib/stubs" "-L/x/lib"
#$ gcc -D__CUDA_ARCH_LIST__=750 -E -x c++ TOP=/nowhere
"""


def test_gcc():
    found = versions.parse_host_version(GCC)
    assert found is not None
    assert (found.family, found.version, found.target) == ("gcc", "12.2.0", "x86_64-linux-gnu")
    assert found.banner == "gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)"
    assert str(found.install_file) == "/usr/lib/gcc/x86_64-linux-gnu/12/lto-wrapper"


def test_clang():
    found = versions.parse_host_version(CLANG)
    assert found is not None
    assert (found.family, found.version, found.target) == ("clang", "19.1.7", "x86_64-pc-linux-gnu")
    assert str(found.install_file) == "/usr/lib/llvm-19/bin/clang"


def test_neither():
    assert versions.parse_host_version("icc: command line warning #10006") is None


def test_cudafe_is_not_taken_for_its_front_end():
    found = versions.parse_tool_version(CUDAFE)
    assert found is not None
    assert found.version == "13.0.88"


def test_dryrun():
    found = versions.parse_dryrun(DRYRUN)
    assert str(found.here) == "/usr/local/cuda-13.0/bin"
    assert str(found.top) == "/usr/local/cuda-13.0"
    assert str(found.cicc_dir) == "/usr/local/cuda-13.0/nvvm/bin"
    assert [str(path) for path in found.include_dirs] == [
        "/usr/local/cuda-13.0/targets/x86_64-linux/include",
        "/a b/include",
        "/usr/local/cuda-13.0/targets/x86_64-linux/include/cccl",
    ]
    assert [str(path) for path in found.library_dirs] == ["/x/lib/stubs", "/x/lib"]


@pytest.mark.parametrize("text", ["", "gcc: No such file\nnvcc fatal", '#$ INCLUDES="-I/unclosed'])
def test_a_dryrun_that_says_nothing(text: str):
    assert versions.parse_dryrun(text) == versions.DryRun()


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("#if __GNUC__ > 15\n", HostLimits(gcc_max=15)),
        ("#if (__GNUC__ > 8)\n", HostLimits(gcc_max=8)),
        ("", HostLimits()),
        (
            (
                "#if (__clang_major__ >= 99) || (__clang_major__ < 3)\n#error -- unsupported HOS clang version!\n"
                "#if (__clang_major__ >= 20) || (__clang_major__ < 7) || foo\n#error -- unsupported clang version!\n"
            ),
            HostLimits(clang_min=7, clang_max=19),
        ),
    ],
)
def test_host_limits(text: str, limits: HostLimits):
    assert versions.parse_host_limits(text) == limits


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"cuda": 1, "x": {"version": 2}}'])
def test_a_version_json_without_versions(text: str):
    assert versions.parse_version_json(text) == {}


def test_packages():
    assert versions.parse_conda_meta(("cuda-crt-dev_linux-64-13.0.88-ha770c72_0.json", "history")) == {
        "cuda-crt-dev_linux-64": "13.0.88"
    }


@pytest.mark.parametrize("define", ["#define CUDART_VERSION ", "#define CCCL_VERSION ", "#if __GNUC__ > "])
def test_a_number_that_no_release_has_is_none(define: str):
    """Python converts no text of 4300 digits to a number."""
    text = define + "9" * 5000
    assert (versions.parse_cudart_version(text), versions.parse_cccl_version(text)) == ("", "")
    assert versions.parse_host_limits(text).gcc_max is None
    assert versions.version_key("9" * 5000)
