"""Write NVIDIA's fat binary: machine code and PTX for several GPUs in one file, from which the CUDA runtime chooses.

The CUDA 12 wheels lack the ``fatbinary`` program that writes it. This file is one: it needs nothing but Python's
standard library and is also copied, as ``bin/fatbinary``, into the folder that clang is given as its CUDA installation.

NVIDIA documents how a fat binary is embedded (``fatbinary_section.h``) but not its content. The layout below was
read off the output of NVIDIA's program with ``--compress-mode=none`` (CUDA 13.0), which this one equals byte for byte
but for the white space in PTX::

    header  u32 magic 0xBA55ED50, u16 version 1, u16 size of the header 16, u64 size of all that follows
    image   u16 kind (1 PTX, 2 ELF), u16 version 0x0101, u32 size of this header, u64 size of the padded payload,
            u32 compressed size 0, u32 offset of the options (0 for none), u16 minor and u16 major version,
            u32 architecture, u32 and u32 offset and length of a name, u64 flags, u64 0, u64 uncompressed size 0,
            [options: u32 offset of the text, u32 its length, the text, padded to a multiple of 16],
            payload, padded with zeros to a multiple of 8

PTX has its own version, and always options; an ELF image has version 1.x, x being its ABI version (byte 8), and from
sm_100 on its section ``.nv.compat`` as options.
"""

from __future__ import annotations

import re
import struct
import sys
from typing import NamedTuple

_HEADER = struct.Struct("<IHHQ")
_IMAGE = struct.Struct("<HHIQIIHHIIIQQQ")
_OPTIONS = struct.Struct("<II")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_MAGIC = 0xBA55ED50
_PTX, _ELF = 1, 2
_IMAGE_VERSION = 0x0101

_IS_64_BIT, _FOR_LINUX, _HAS_COMPAT = 0x1, 0x10, 1 << 24
_SUFFIXES = {"": 0, "a": 1 << 20, "f": 1 << 21}
_COMPAT_SECTION = 0x70000086
_FIRST_WITH_COMPAT = 100
_ABI_VERSION = 8
"""The byte of an ELF file that holds the version of its ABI."""


class Image(NamedTuple):
    """One image of a fat binary.

    Parameters
    ----------
    kind : {"elf", "ptx"}
        A cubin, or PTX in its text form.
    arch : str
        The architecture, such as ``"90"`` or ``"90a"``.
    data : bytes
        The file's content.
    """

    kind: str
    arch: str
    data: bytes


def render_fatbin(images: tuple[Image, ...]) -> bytes:
    r"""Return an uncompressed fat binary.

    Parameters
    ----------
    images : tuple of Image
        The images in the order in which they are stored; the runtime prefers machine code at any place.

    Raises
    ------
    ValueError
        An image is not of its kind, or its architecture is invalid.

    Examples
    --------
    >>> made = render_fatbin((Image("ptx", "90", b".version 8.5\n.target sm_90\n"),))
    >>> made[:4].hex(), len(made)
    ('50ed55ba', 128)
    """
    body = b"".join(_render_image(image) for image in images)
    return _HEADER.pack(_MAGIC, 1, _HEADER.size, len(body)) + body


def _render_image(image: Image) -> bytes:
    """Return one image with its header."""
    match = re.fullmatch(r"(\d{2,3})([af]?)", image.arch)
    if match is None:
        raise ValueError(f"{image.arch!r} is not an architecture: write it as 90 or 90a")
    flags = _IS_64_BIT | _FOR_LINUX | _SUFFIXES[match[2]]
    if image.kind == "elf":
        major, minor, options, payload = _read_elf(image.data)
        options = options if int(match[1]) >= _FIRST_WITH_COMPAT else None
        flags |= _HAS_COMPAT if options is not None else 0
    else:
        major, minor, payload = _read_ptx(image.data)
        options = b""
    block, offset = b"", 0
    if options is not None:
        offset = _IMAGE.size
        block = _OPTIONS.pack(offset + _OPTIONS.size, len(options)) + options
        block += bytes(-len(block) % 16)
    padded = payload + bytes(-len(payload) % 8)
    kind, size = _ELF if image.kind == "elf" else _PTX, _IMAGE.size + len(block)
    numbers = (kind, _IMAGE_VERSION, size, len(padded), 0, offset, minor, major, int(match[1]), 0, 0, flags, 0, 0)
    return _IMAGE.pack(*numbers) + block + padded


def _read_ptx(data: bytes) -> tuple[int, int, bytes]:
    """Return the version of PTX and its zero-terminated text; NVIDIA's program also strips comments and indentation."""
    match = re.search(rb"^\s*\.version\s+(\d+)\.(\d+)", data, re.MULTILINE)
    if match is None:
        raise ValueError("an image of kind ptx has no .version")
    return int(match[1]), int(match[2]), data.rstrip(b"\0") + b"\0"


def _read_elf(data: bytes) -> tuple[int, int, bytes | None, bytes]:
    """Return a cubin's version, its section ``.nv.compat`` as options, and the cubin."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("an image of kind elf is not a 64-bit little-endian ELF file")
    offset = int.from_bytes(data[0x28:0x30], "little")
    entry_size, count = struct.unpack_from("<HH", data, 0x3A)
    for index in range(count):
        _, kind, _, _, start, size, *_ = _SECTION.unpack_from(data, offset + index * entry_size)
        if kind == _COMPAT_SECTION:
            # The options begin with a zero, and the section's last byte, a zero too, falls off.
            return 1, data[_ABI_VERSION], b"\0" + data[start : start + size - 1], data
    return 1, data[_ABI_VERSION], None, data


def parse_image(text: str) -> tuple[str, str, str]:
    """Return the kind, architecture and file of an image in clang's argument for ``fatbinary``.

    Examples
    --------
    >>> parse_image("kind=elf,sm=90a,file=a.cubin")
    ('elf', '90a', 'a.cubin')
    >>> parse_image("profile=compute_90,file=a.ptx")
    ('ptx', '90', 'a.ptx')
    """
    match = re.fullmatch(r"(?:kind=(elf|ptx),sm=|profile=(sm|compute)_)(\w+),file=(.+)", text, re.DOTALL)
    if match is None:
        raise ValueError(f"{text!r} is not an image: write it as kind=elf,sm=90,file=PATH or profile=sm_90,file=PATH")
    return match[1] or {"sm": "elf", "compute": "ptx"}[match[2]], match[3], match[4]


def main(arguments: list[str]) -> int:
    """Run ``fatbinary --create FILE --image3=…`` with the options that clang passes; return the exit code."""
    try:
        target, named = _parse_arguments(arguments)
        made = render_fatbin(tuple(Image(kind, arch, _read(path)) for kind, arch, path in named))
        with open(target, "wb") as file:  # noqa: PTH123 - pathlib would double the time that this program takes
            file.write(made)
    except (OSError, ValueError) as error:
        print(f"fatbinary: error: {error}", file=sys.stderr)  # noqa: T201 - a program's message
        return 1
    return 0


def _parse_arguments(arguments: list[str]) -> tuple[str, list[tuple[str, str, str]]]:
    """Return the file to create, and the images."""
    target = ""
    images: list[tuple[str, str, str]] = []
    rest = iter(arguments)
    for argument in rest:
        name, has_value, value = argument.partition("=")
        if name in {"--create", "-create"}:
            target = value if has_value else next(rest, "")
        elif name in {"--image", "--image3", "-image", "-image3"}:
            images.append(parse_image(value if has_value else next(rest, "")))
        elif name in {"--cmdline", "-cmdline"}:
            next(rest, "")
        elif name not in {"-64", "--64", "-g", "--debug"}:
            raise ValueError(f"{argument!r} is an unknown option")
    if not target or not images:
        raise ValueError("--create FILE and at least one --image3 are needed")
    return target, images


def _read(path: str) -> bytes:
    """Read a file."""
    with open(path, "rb") as file:  # noqa: PTH123 - as in main
        return file.read()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
