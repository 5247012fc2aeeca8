"""The layout of a fat binary, and the program that packs one; tests/cuda compares it with NVIDIA's own."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from be_toolchain.known import fatbin
from be_toolchain.known.fatbin import Image, main, parse_image, render_fatbin

PTX = b".version 8.5\n.target sm_90\n.address_size 64\n"


def cubin(*, compat: bytes = b"", abi: int = 7) -> bytes:
    """The least ELF file: a header and section headers, one of them ``.nv.compat``'s."""
    header = bytearray(64)
    header[:9] = b"\x7fELF\x02\x01\x01\x33" + bytes([abi])
    struct.pack_into("<Q", header, 0x28, 64)
    struct.pack_into("<HH", header, 0x3A, 64, 2)
    section = struct.pack("<IIQQQQIIQQ", 0, 0x70000086 if compat else 1, 0, 0, 192, len(compat), 0, 0, 0, 0)
    return bytes(header) + bytes(64) + section + compat


def parts(made: bytes) -> list[tuple[int, ...]]:
    """Kind, header, payload, options, minor, major, architecture and flags of each image."""
    magic, version, header, size = struct.unpack_from("<IHHQ", made)
    assert (magic, version, header, size) == (0xBA55ED50, 1, 16, len(made) - 16)
    rows: list[tuple[int, ...]] = []
    position = 16
    while position < len(made):
        kind, _, head, payload, packed, options, minor, major, arch, name, length, flags, zero, size = (
            struct.unpack_from("<HHIQIIHHIIIQQQ", made, position)
        )
        assert (packed, name, length, zero, size) == (0, 0, 0, 0, 0)
        rows.append((kind, head, payload, options, minor, major, arch, flags))
        position += head + payload
    assert position == len(made)
    return rows


def test_machine_code_and_ptx():
    made = render_fatbin((Image("elf", "90", cubin()), Image("ptx", "90", PTX)))
    assert parts(made) == [(2, 64, 192, 0, 7, 1, 90, 0x11), (1, 80, 48, 64, 5, 8, 90, 0x11)]
    assert made[80 : 80 + 192] == cubin()
    assert made.endswith(PTX + bytes(48 - len(PTX)))


@pytest.mark.parametrize(("arch", "number", "flags"), [("90a", 90, 0x100011), ("120f", 120, 0x200011)])
def test_suffixes_are_flags(arch: str, number: int, flags: int):
    (row,) = parts(render_fatbin((Image("elf", arch, cubin()),)))
    assert row[6:] == (number, flags)


def test_compatibility_rows_are_options_from_sm_100_on():
    data = cubin(compat=bytes.fromhex("02020100 02050500"), abi=8)
    made = render_fatbin((Image("elf", "100", data), Image("elf", "90", data)))
    assert [row[1:6] for row in parts(made)] == [(80, 200, 64, 8, 1), (64, 200, 0, 8, 1)]
    assert [row[-1] for row in parts(made)] == [0x1000011, 0x11]
    assert made[80:96] == struct.pack("<II", 72, 8) + bytes.fromhex("0002020100020505")


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (Image("elf", "90", PTX), "not a 64-bit"),
        (Image("ptx", "90", b"// nothing"), r"no \.version"),
        (Image("ptx", "sm_90", PTX), "not an architecture"),
    ],
)
def test_what_is_no_image_is_refused(image: Image, words: str):
    with pytest.raises(ValueError, match=words):
        render_fatbin((image,))


def test_the_program_takes_what_clang_says(tmp_path: Path):
    (tmp_path / "a.cubin").write_bytes(cubin())
    (tmp_path / "a.s").write_bytes(PTX)
    images = ("--image=profile=sm_90,file=a.cubin", "--image3=kind=ptx,sm=90,file=a.s")
    command = (sys.executable, "-I", "-S", fatbin.__file__, "-64", "--create", "a.fatbin", *images)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    wanted = render_fatbin((Image("elf", "90", cubin()), Image("ptx", "90", PTX)))
    assert (tmp_path / "a.fatbin").read_bytes() == wanted


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
    assert main(arguments) == 1
    assert words in capsys.readouterr().err


def test_a_file_may_have_commas():
    assert parse_image("kind=elf,sm=90,file=a,b=c.cubin")[2] == "a,b=c.cubin"
