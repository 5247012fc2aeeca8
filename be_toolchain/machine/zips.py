"""Read zip archives from other users, within limits for the number of files and for their bytes."""

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
        The file is damaged, or has too many members. For some damage, `zipfile` raises other errors.
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
    """Read a member of a zip.

    Raises
    ------
    ValueError
        The member is too large, or its compression ratio is too high for code.
    Exception
        The member is missing or damaged.
    """
    info = archive.getinfo(name)
    if info.file_size > min(most_bytes, max(LARGE, _MOST_UNPACKED * info.compress_size)):
        raise ValueError(f"it would have {info.file_size} bytes")
    with archive.open(info) as file:
        return file.read(info.file_size)  # no more, even if the compressed bytes hold more
