"""The file of an exported program: a zip of its index, its StableHLO and its images, every byte of it under a hash.

Images are not compressed: they are hashed and mapped from where they lie. An image is named by its hash, and the zip's
comment has that of all the rest. Every file has the same date, so that equal programs are equal files.
"""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import PurePosixPath

from be_runtime.bundle.index import IMAGES, INDEX, Index, image_file, parse_index, render_index
from be_runtime.bundle.mapped_images import Bundle, read_index
from be_runtime.errors import LoadError
from be_toolchain.machine.trust.regular_file import LARGE
from be_toolchain.machine.trust.zip_files import open_archive, read_member

PROGRAM = "program.stablehlo"
"""Name of what JAX exported."""

_SEAL = b"sha256 of all but the images: "
_SEAL_BYTES = len(_SEAL) + 64
_DATE = (1980, 1, 1, 0, 0, 0)


def write_container(index: Index, program: bytes, images: Mapping[str, bytes]) -> bytes:
    """Write the file of a program.

    Parameters
    ----------
    index : Index
    program : bytes
    images : dict of str to bytes
        Images by hash.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for digest in sorted(images):
            archive.writestr(zipfile.ZipInfo(image_file(digest, index.images[digest]), _DATE), images[digest])
        for name, data in ((PROGRAM, program), (INDEX, render_index(index).encode())):
            # A reader unpacks no more than this, as what is packed may stand for anything.
            how = zipfile.ZIP_DEFLATED if len(data) <= LARGE else zipfile.ZIP_STORED
            archive.writestr(zipfile.ZipInfo(name, _DATE), data, how)
        archive.comment = b" " * _SEAL_BYTES  # the zip says how long it is
    data = out.getvalue()
    with zipfile.ZipFile(out) as archive:
        return data[:-_SEAL_BYTES] + _seal(archive, memoryview(data))


def open_container(data: bytes, where: str) -> Bundle:
    """Open the file of a program, whose hashes are checked first.

    Returns
    -------
    Bundle
        Its file `PROGRAM` is what JAX exported.

    Raises
    ------
    LoadError
        It is no program, only a part of one, damaged, or of a format or ABI that this release does not read.
    """
    view = memoryview(data)
    if bytes(view[-_SEAL_BYTES:][: len(_SEAL)]) != _SEAL:
        raise LoadError(
            f"{where} is not an exported program, or only a part of one",
            hints=("be_runtime.export makes them", "copy it again"),
        )
    try:
        archive = open_archive(io.BytesIO(data))
        is_whole = bytes(view[-_SEAL_BYTES:]) == _seal(archive, view)
    except Exception:  # noqa: BLE001 - zipfile meets damage with errors of many kinds
        is_whole = False
    if not is_whole:
        raise LoadError(f"{where} is damaged: its bytes are not those that were saved", hints=("copy it again",))
    index = parse_index(read_index(archive, INDEX, where), where)
    if not index.program:
        raise LoadError(f"{where} holds kernels, and no program", hints=("be_runtime.export makes programs",))
    return Bundle(where, index, partial(_read, archive, view), is_checked=True)


def _read(archive: zipfile.ZipFile, view: memoryview, name: str, most_bytes: int) -> bytes | memoryview:
    """Return a file, and an image without a copy."""
    if name == PROGRAM:
        is_packed = archive.getinfo(name).compress_type != zipfile.ZIP_STORED
        return read_member(archive, name, min(most_bytes, LARGE) if is_packed else most_bytes)
    start, end = _place(archive.getinfo(name), view)
    return view[start:end]


def _place(info: zipfile.ZipInfo, view: memoryview) -> tuple[int, int]:
    """Return where the bytes of a file that is not compressed begin and end."""
    lengths = view[info.header_offset + 26 : info.header_offset + 30]  # of its name, and of a field that follows
    start = info.header_offset + 30 + sum(struct.unpack("<HH", lengths))
    return start, start + info.file_size


def _seal(archive: zipfile.ZipFile, view: memoryview) -> bytes:
    """Hash all but the images, and check those.

    Raises
    ------
    ValueError
        An image has another hash than its name says, or shares bytes with one before it.
    """
    rest, at = hashlib.sha256(), 0
    for info in archive.infolist():
        if info.filename.startswith(f"{IMAGES}/"):
            start, end = _place(info, view)
            # Entries that share bytes would be hashed as often as they are named.
            if start < at or hashlib.sha256(view[start:end]).hexdigest() != PurePosixPath(info.filename).stem:
                raise ValueError(info.filename)
            rest.update(view[at:start])
            at = end
    rest.update(view[at:-_SEAL_BYTES])
    return _SEAL + rest.hexdigest().encode()
