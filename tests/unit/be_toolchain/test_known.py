"""Texts as the real programs print them, names and versions as they are found, also odd ones, and fat binaries."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from be_toolchain.known import fatbin, layouts, versions
from be_toolchain.values import HostLimits

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
#$ INCLUDES="-I/usr/local/cuda-13.0/bin/../targets/x86_64-linux/include" -I"/a b/include"
#$ SYSTEM_INCLUDES="-isystem" "/usr/local/cuda-13.0/bin/../targets/x86_64-linux/include/cccl"
#$ LIBRARIES=  "-L/x/lib/stubs" "-L/x/lib"
#$ gcc -D__CUDA_ARCH_LIST__=750 -E -x c++ TOP=/nowhere
"""


def test_what_compilers_say_of_themselves():
    gcc = ("gcc", "12.2.0", "x86_64-linux-gnu", "gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)")
    assert versions.parse_host_version(GCC) == (*gcc, Path("/usr/lib/gcc/x86_64-linux-gnu/12/lto-wrapper"))
    clang = ("clang", "19.1.7", "x86_64-pc-linux-gnu", "Debian clang version 19.1.7 (3~deb12u1)")
    assert versions.parse_host_version(CLANG) == (*clang, Path("/usr/lib/llvm-19/bin/clang"))
    assert versions.parse_host_version("icc: command line warning #10006") is None
    tool = versions.parse_tool_version(CUDAFE)
    assert tool is not None
    assert tool.version == "13.0.88", "not the front end's"


def test_dryrun():
    cuda = Path("/usr/local/cuda-13.0")
    include = cuda / "targets/x86_64-linux/include"
    assert versions.parse_dryrun(DRYRUN) == versions.DryRun(
        *(cuda / "bin", cuda, cuda / "nvvm/bin", None),
        include_dirs=(include, Path("/a b/include"), include / "cccl"),
        library_dirs=(Path("/x/lib/stubs"), Path("/x/lib")),
    )
    for text in ("", "gcc: No such file\nnvcc fatal", '#$ INCLUDES="-I/unclosed'):
        assert versions.parse_dryrun(text) == versions.DryRun()


HOST_LIMITS = """#if (__clang_major__ >= 99) || (__clang_major__ < 3)
#error -- unsupported HOS clang version!
#if (__clang_major__ >= 20) || (__clang_major__ < 7) || foo
#error -- unsupported clang version!
"""


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("#if __GNUC__ > 15\n", HostLimits(gcc_max=15)),
        ("#if (__GNUC__ > 8)\n", HostLimits(gcc_max=8)),
        ("", HostLimits()),
        (HOST_LIMITS, HostLimits(clang_min=7, clang_max=19)),
    ],
)
def test_host_limits(text: str, limits: HostLimits):
    assert versions.parse_host_limits(text) == limits


def test_records_of_packages():
    names = ("cuda-crt-dev_linux-64-13.0.88-ha770c72_0.json", "history")
    assert versions.parse_conda_meta(names) == {"cuda-crt-dev_linux-64": "13.0.88"}
    for text in ("", "[]", "{", "[" * 100_000, '{"cuda": 1, "x": {"version": 2}}'):
        assert versions.parse_version_json(text) == {}


@pytest.mark.parametrize("define", ["#define CUDART_VERSION ", "#define CCCL_VERSION ", "#if __GNUC__ > "])
def test_a_number_that_no_release_has_is_none(define: str):
    """Python converts no text of 4300 digits to a number."""
    text = define + "9" * 5000
    assert (versions.parse_cudart_version(text), versions.parse_cccl_version(text)) == ("", "")
    assert versions.parse_host_limits(text).gcc_max is None
    assert versions.version_key("9" * 5000)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("nvidia_cuda_nvcc-13.0.88.dist-info", ("nvidia-cuda-nvcc", "13.0.88")),
        ("Nvidia.CUDA__nvcc-13.0.dist-info", ("nvidia-cuda-nvcc", "13.0")),
        ("nvidia-nvvm-13.0.88.dist-info", ("nvidia-nvvm", "13.0.88")),
        ("jaxlib-0.11.0rc1.dist-info", ("jaxlib", "0.11.0rc1")),
        ("jaxlib-0.11.0.dev20261101.dist-info", ("jaxlib", "0.11.0.dev20261101")),
        ("jaxlib-0.11.0+CU_130.dist-info", ("jaxlib", "0.11.0+CU_130")),
        ("jaxlib-1!2.0.0.dist-info", ("jaxlib", "1!2.0.0")),
        ("Jax-a.b.dist-info", ("jax", "a.b")),
        *((name, None) for name in ("JAX_-a.b.dist-info", "~vidia_nvvm-13.0.88.dist-info", "-13.0.88.dist-info")),
        *((name, None) for name in ("x.dist-info", "nvidia-13.0", "nvidia")),
    ],
)
def test_a_record_s_name(name: str, row: tuple[str, str] | None):
    assert layouts.parse_dist_info(name) == row
    assert layouts.parse_dist_infos((name, "lib")) == (dict([row]) if row else {})


@pytest.mark.parametrize(
    ("version", "normalized"),
    [
        ("13.0.0", "13.0.0"),
        ("13.1.0-RC.1", "13.1.0rc1"),
        ("13.0-1", "13.0.post1"),
        ("2.9.0+CU-130", "2.9.0+cu.130"),
        ("1!2.0", "1!2.0"),
        ("a.b", "a.b"),
    ],
)
def test_a_name_and_a_version_have_one_spelling(version: str, normalized: str):
    assert layouts.normalize("NVIDIA__Cuda.nvcc", version) == ("nvidia-cuda-nvcc", normalized)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("nvidia-cuda-nvcc>=13.0.48", ("nvidia-cuda-nvcc", ">=13.0.48")),
        ("nvidia_nvvm [a,b] (>=13.0)", ("nvidia_nvvm", ">=13.0")),
        ('nvidia.nvvm ==13.0.* ; python_version < "4"', ("nvidia.nvvm", "==13.0.*")),
        ("ziglang", ("ziglang", "")),
        *((text, None) for text in ("", "# via x", "-e ./here", "--index-url https://example.org", "x>=", "a b")),
    ],
)
def test_a_requirement(text: str, row: tuple[str, str] | None):
    found = layouts.parse_requirement(text)
    assert (found and (found.name, str(found.specifier))) == row


PTX = b".version 8.5\n.target sm_90\n.address_size 64\n"


def cubin(*, compat: bytes = b"", abi: int = 7) -> bytes:
    """The least ELF file: a header and section headers, one of them ``.nv.compat``'s."""
    header = bytearray(64)
    header[:9] = b"\x7fELF\x02\x01\x01\x33" + bytes([abi])
    struct.pack_into("<Q", header, 0x28, 64)
    struct.pack_into("<HH", header, 0x3A, 64, 2)
    section = struct.pack("<IIQQQQIIQQ", 0, 0x70000086 if compat else 1, 0, 0, 192, len(compat), 0, 0, 0, 0)
    return bytes(header) + bytes(64) + section + compat


BOTH = fatbin.render_fatbin((fatbin.Image("elf", "90", cubin()), fatbin.Image("ptx", "90", PTX)))


def parts(made: bytes) -> list[tuple[int, ...]]:
    """Kind, header, payload, options, minor, major, architecture and flags of each image."""
    magic, version, header, size = struct.unpack_from("<IHHQ", made)
    assert (magic, version, header, size) == (0xBA55ED50, 1, 16, len(made) - 16)
    rows: list[tuple[int, ...]] = []
    position = 16
    while position < len(made):
        kind, _, head, payload, *row = struct.unpack_from("<HHIQIIHHIIIQQQ", made, position)
        packed, options, minor, major, arch, name, length, flags, zero, size = row
        assert (packed, name, length, zero, size) == (0, 0, 0, 0, 0)
        rows.append((kind, head, payload, options, minor, major, arch, flags))
        position += head + payload
    assert position == len(made)
    return rows


def test_a_fat_binary_holds_machine_code_and_ptx():
    """tests/cuda compares it with NVIDIA's own."""
    assert parts(BOTH) == [(2, 64, 192, 0, 7, 1, 90, 0x11), (1, 80, 48, 64, 5, 8, 90, 0x11)]
    assert BOTH[80 : 80 + 192] == cubin()
    assert BOTH.endswith(PTX + bytes(48 - len(PTX)))
    for arch, number, flags in (("90a", 90, 0x100011), ("120f", 120, 0x200011)):
        (row,) = parts(fatbin.render_fatbin((fatbin.Image("elf", arch, cubin()),)))
        assert row[6:] == (number, flags), "suffixes are flags"


def test_compatibility_rows_are_options_from_sm_100_on():
    data = cubin(compat=bytes.fromhex("02020100 02050500"), abi=8)
    made = fatbin.render_fatbin((fatbin.Image("elf", "100", data), fatbin.Image("elf", "90", data)))
    assert [row[1:6] for row in parts(made)] == [(80, 200, 64, 8, 1), (64, 200, 0, 8, 1)]
    assert [row[-1] for row in parts(made)] == [0x1000011, 0x11]
    assert made[80:96] == struct.pack("<II", 72, 8) + bytes.fromhex("0002020100020505")


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (fatbin.Image("elf", "90", PTX), "not a 64-bit"),
        (fatbin.Image("ptx", "90", b"// nothing"), r"no \.version"),
        (fatbin.Image("ptx", "sm_90", PTX), "not an architecture"),
    ],
)
def test_what_is_no_image_is_refused(image: fatbin.Image, words: str):
    with pytest.raises(ValueError, match=words):
        fatbin.render_fatbin((image,))


def test_the_program_takes_what_clang_says(tmp_path: Path):
    (tmp_path / "a,b.cubin").write_bytes(cubin())
    (tmp_path / "a.s").write_bytes(PTX)
    images = ("--image=profile=sm_90,file=a,b.cubin", "--image3=kind=ptx,sm=90,file=a.s")
    command = (sys.executable, "-I", "-S", fatbin.__file__, "-64", "--create", "a.fatbin", *images)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "a.fatbin").read_bytes() == BOTH


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--create", "x.fatbin"], "at least one --image3"),
        (["--create", "x.fatbin", "--image3=kind=elf,sm=90,file=gone"], "No such file"),
        (["--create", "x.fatbin", "--image3=kind=lto,sm=90,file=x"], "is not an image"),
        (["--link"], "'--link' is an unknown option"),
    ],
)
def test_the_program_says_what_is_wrong(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]):
    assert fatbin.main(arguments) == 1
    assert words in capsys.readouterr().err
