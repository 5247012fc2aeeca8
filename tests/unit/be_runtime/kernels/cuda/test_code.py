"""Machine code and PTX as `cubin_kernel` reads them, in files that the tests write byte by byte."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.kernels.cubin import cubin_kernel
from be_runtime.kernels.device_code import Code, KernelFacts, choose_entry, kernel_facts, read_code
from be_toolchain.arch import Arch

HEADER, ROW = 64, struct.Struct("<IIQQQQIIQQ")
NO_BITS = 8


def elf(sections: dict[str, bytes], *, kinds: dict[str, int] | None = None, abi: int = 8, **changes: int) -> bytes:
    """A cubin for 9.0 with some sections, whose names come last; `changes` are fields of its header."""
    names = bytearray(b"\0")
    body, rows = bytearray(), [ROW.pack(*[0] * 10)]
    for name, data in {**sections, ".names": b""}.items():
        at = len(names)
        names += name.encode() + b"\0"
        data = bytes(names) if name == ".names" else data  # noqa: PLW2901
        rows.append(ROW.pack(at, (kinds or {}).get(name, 1), 0, 0, HEADER + len(body), len(data), 0, 0, 0, 0))
        body += data
    fields = {"kind": 2, "machine": 190, "flags": 90 << 8, "segments": 0, "segment_size": 0, "segment_count": 0}
    fields |= {"size": ROW.size, "count": len(rows), "names_at": len(rows) - 1, "width": 2} | changes
    f = fields
    header = struct.pack("<4s5B7xHHIQQQI6H", b"\x7fELF", f["width"], 1, 1, 0x41, abi, f["kind"], f["machine"], 1, 0,
                         f["segments"], HEADER + len(body), f["flags"], HEADER, f["segment_size"], f["segment_count"],
                         f["size"], f["count"], f["names_at"])  # fmt: skip
    return header + bytes(body) + b"".join(rows)


def parameter(ordinal: int, size: int, kind: int = 0x17) -> bytes:
    return struct.pack("<BBHIHHI", 4, kind, 12, 0, ordinal, 0, size << 18)


def threads(kind: int, *numbers: int) -> bytes:
    return struct.pack("<BBH3I", 4, kind, 12, *numbers)


def kernel(info: bytes, name: str = "f") -> dict[str, bytes]:
    return {f".nv.info.{name}": info, f".text.{name}": b"code", f".nv.constant0.{name}": b""}


def facts(info: bytes) -> KernelFacts:
    return kernel_facts(read_code(elf(kernel(info)), "k.cubin"), "f")


GOOD = parameter(1, 4) + struct.pack("<BBH", 3, 0x1B, 99) + parameter(0, 8)


def test_a_kernel_has_text_constants_and_a_description():
    info = {".nv.info": b"", ".nv.info.g": b"", ".text.g": b"", ".nv.info.h": b"", ".nv.constant0.h": b""}
    code = read_code(elf(kernel(GOOD) | info), "k.cubin")
    assert (code.kernels, code.arch, code.is_ptx) == (("f",), Arch(9, 0), False)


def test_the_facts_of_a_cubin():
    assert facts(b"") == KernelFacts(())
    assert facts(GOOD) == KernelFacts((8, 4))
    assert facts(GOOD + threads(5, 16, 8, 1)) == KernelFacts((8, 4), 128)
    assert facts(threads(16, 64, 2, 1) + GOOD) == KernelFacts((8, 4), None, (64, 2, 1))
    assert facts(threads(16, 0, 0, 0) + GOOD) == KernelFacts((8, 4))


@pytest.mark.parametrize(("note", "arch"), [(b"-arch sm_90a -O3", "9.0a"), (b"-arch sm_80a -O3", "9.0"), (b"", "9.0")])
def test_the_suffix_of_an_architecture_is_in_the_note_of_the_tool(note: bytes, arch: str):
    code = read_code(elf(kernel(GOOD) | {".note.nv.tkinfo": note}), "k.cubin")
    assert str(code.arch) == arch


def test_a_section_without_bytes_may_be_of_any_size():
    sections = kernel(GOOD) | {".bss": b""}
    data = bytearray(elf(sections, kinds={".bss": NO_BITS}))
    struct.pack_into("<Q", data, len(data) - 2 * ROW.size + 32, 10**9)
    assert read_code(bytes(data), "k.cubin").kernels == ("f",)


DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "of 32 bits": ({"width": 1}, "is an ELF file, but not a cubin"),
    "of a CPU": ({"machine": 62}, "its ELF machine is 62"),
    "relocatable": ({"kind": 1}, "is relocatable"),
    "segments": ({"segments": 10**6, "segment_size": 56, "segment_count": 1}, "its segments are described from byte"),
    "small rows": ({"size": 40}, "sections of 40 bytes"),
    "no names": ({"names_at": 99}, "with their names in section 99"),
    "more rows": ({"count": 99}, "it ends before byte"),
    "other names": ({"names_at": 1}, "the name of a section begins at byte"),
    "architecture": ({"flags": 10 << 8}, "k.cubin: .*1.0"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_header_that_is_wrong_is_named(case: str):
    changes, message = DAMAGED[case]
    with pytest.raises(ArgumentError, match=message):
        read_code(elf(kernel(GOOD), **changes), "k.cubin")


def test_a_section_that_ends_after_the_file_is_named():
    data = bytearray(elf(kernel(GOOD)))
    struct.pack_into("<Q", data, len(data) - 2 * ROW.size + 32, 10**6)
    with pytest.raises(ArgumentError, match="a section of 1000000 bytes begins at byte"):
        read_code(bytes(data), "k.cubin")


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (struct.pack("<BBH", 0, 0x17, 0), "an attribute has the form 0"),
        (struct.pack("<BBH", 5, 0x17, 0), "an attribute has the form 5"),
        (parameter(0, 8)[:-1], "an attribute of 12 bytes ends after its section"),
        (b"\x04\x17", "it ends before byte 4"),
        (struct.pack("<BBHI", 4, 0x17, 4, 0), "it ends before byte 12"),
        (parameter(0, 8) + parameter(0, 8), "parameter 0 is described twice"),
        (parameter(0, 8) + parameter(2, 8), "it describes the parameters 0, 2"),
    ],
)
def test_a_description_that_is_wrong_is_named(info: bytes, message: str):
    with pytest.raises(ArgumentError, match=message):
        facts(info)


def ptx(params: str = "", *, target: str = "sm_80", more: str = "") -> Code:
    text = f".version 8.0\n.target {target}\n.address_size 64\n{more}.visible .entry f({params}) {{ ret; }}"
    return read_code(text.encode() + b"\0\0", "k.ptx")


def test_ptx_has_each_kernel_once_and_no_final_zeros():
    code = ptx(".param .u64 a", more=".visible .entry f(.param .u64 a);\n")
    assert code.kernels == ("f",)
    assert code.data.endswith(b"}")


@pytest.mark.parametrize(
    ("param", "size"),
    [(".param .u64 a", 8), (".param .align 4 .b8 a[12]", 12), (".param .texref a", 8), (".param .b128 a", 16)],
)
def test_the_size_of_a_parameter_of_ptx(param: str, size: int):
    assert kernel_facts(ptx(param), "f").sizes == (size,)


@pytest.mark.parametrize("param", [".param .pred a", ".param .b4 a", ".param .b12 a", ".param .b256 a", ".reg .u64 a"])
def test_another_parameter_of_ptx_is_named(param: str):
    with pytest.raises(ArgumentError, match=f"the parameter '{param}' of f is not understood"):
        kernel_facts(ptx(param), "f")


def test_another_architecture_of_ptx_is_named():
    with pytest.raises(ArgumentError, match=r"k.ptx: .*1\.0"):
        ptx(target="sm_10")


def test_a_kernel_is_named_as_in_the_code_or_as_in_cpp():
    def choose(name: str, *kernels: str) -> str:
        return choose_entry(Code("k.ptx", b"", True, Arch(8, 0), kernels), name)

    assert choose("_Z1fi", "_Z1fi", "_Z1ff") == "_Z1fi"
    assert choose("f", "_Z1fi", "_Z1gi") == "_Z1fi"
    with pytest.raises(ArgumentError, match="'f' may be any of: _Z1ff, _Z1fi\nhint: pass one of these names"):
        choose("f", "_Z1fi", "_Z1ff")
    with pytest.raises(ArgumentError, match="has no kernel 'f<'; its kernels are: none"):
        choose("f<")


def test_arguments_of_a_wrong_kind_are_named():
    code = ptx(".param .u64 a").data
    with pytest.raises(ArgumentError, match="name must be a string, not int: 3"):
        cubin_kernel(code, 3, "ret[n]:float32", grid=1, block=1)  # type: ignore[arg-type]
    for signature in (7, ["ret[1]:float32", 7]):
        with pytest.raises(ArgumentError, match="signature must be a string or a list of strings"):
            cubin_kernel(code, "f", signature, grid=1, block=1)  # type: ignore[arg-type]
