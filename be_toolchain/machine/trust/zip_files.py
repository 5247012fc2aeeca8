"""Zips from elsewhere: how many files they have, and how large, is checked before anything is unpacked."""

from __future__ import annotations

import zipfile
from typing import BinaryIO

from be_toolchain.machine.trust.regular_file import LARGE

MOST_FILES = 50_000
"""How many files a zip may have: zipfile makes an object of a kilobyte for each."""

_ROW = b"PK\1\2"
_PIECE_BYTES = 1 << 20
_MOST_UNPACKED = 16
"""Bytes that a packed byte of a large file may stand for: machine code is packed to a tenth, zeros to a thousandth."""


def open_archive(file: BinaryIO) -> zipfile.ZipFile:
    """Open a zip.

    Raises
    ------
    zipfile.BadZipFile
        It is damaged, or has too many files. `zipfile` meets damage with errors of other kinds too.
    """
    file.seek(0)
    count, end = 0, b""
    while piece := file.read(_PIECE_BYTES):
        count += (end + piece).count(_ROW)
        end = piece[1 - len(_ROW) :]
    if count > MOST_FILES:
        raise zipfile.BadZipFile(f"it has more than {MOST_FILES} files")
    return zipfile.ZipFile(file)


def read_member(archive: zipfile.ZipFile, name: str, most_bytes: int) -> bytes:
    """Read a file in a zip.

    Raises
    ------
    ValueError
        It would be larger than it may be, or is packed as only bytes are that are all the same.
    Exception
        It is not there, or damaged.
    """
    info = archive.getinfo(name)
    if info.file_size > min(most_bytes, max(LARGE, _MOST_UNPACKED * info.compress_size)):
        raise ValueError(f"it would have {info.file_size} bytes")
    with archive.open(info) as file:
        return file.read(info.file_size)  # and no more, whatever it is packed from
