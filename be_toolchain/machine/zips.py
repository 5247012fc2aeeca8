"""Read zip archives that others wrote, within limits for the number of files and for the bytes of each."""

from __future__ import annotations

import zipfile
from typing import BinaryIO

from be_toolchain.machine.trust import LARGE

MOST_FILES = 50_000
"""The largest number of files in a zip: zipfile makes an object of a kilobyte for each."""

_ROW = b"PK\1\2"
_PIECE_BYTES = 1 << 20
_MOST_UNPACKED = 16
"""The largest ratio of compression of a large file: machine code shrinks to a tenth, zeros to a thousandth."""


def open_archive(file: BinaryIO) -> zipfile.ZipFile:
    """Open a zip.

    Raises
    ------
    zipfile.BadZipFile
        It is damaged, or has too many files. `zipfile` raises other errors for some damage too.
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
        It would be too large, or its ratio of compression is too high for code.
    Exception
        It is missing or damaged.
    """
    info = archive.getinfo(name)
    if info.file_size > min(most_bytes, max(LARGE, _MOST_UNPACKED * info.compress_size)):
        raise ValueError(f"it would have {info.file_size} bytes")
    with archive.open(info) as file:
        return file.read(info.file_size)  # no more, even if the compressed bytes hold more
