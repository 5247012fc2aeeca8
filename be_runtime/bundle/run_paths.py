"""Libraries that were linked here, without the folders of this machine's conda environments.

conda's gcc writes its environment's folder into all that it links, and rattler-build has every linker do so.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

_LOAD, _DYNAMIC = 1, 2
_END, _STRINGS, _RUN_PATHS = 0, 5, frozenset({15, 29})
_ELF64 = b"\x7fELF\x02\x01"


def read_image(library: Path) -> bytes:
    """Read a library as it is shipped: it looks for no other one in conda environments of this machine."""
    return without_run_paths(library.read_bytes(), _is_of_conda)


def _is_of_conda(folder: str) -> bool:
    path = Path(folder)
    return path.name == "lib" and (path.parent / "conda-meta").is_dir()


def without_run_paths(data: bytes, is_unwanted: Callable[[str], bool]) -> bytes:
    """Take folders out of a library's run path. Pure.

    Parameters
    ----------
    data : bytes
        An ELF file; another one, or one for 32 bits, is returned as it is.
    is_unwanted : callable
        Function that is given each folder.
    """
    if not data.startswith(_ELF64):
        return data
    (start,) = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<2H", data, 0x36)
    headers = [struct.unpack_from("<2I4Q", data, start + size * i) for i in range(count)]
    places = {address: (offset, length) for kind, _, offset, address, _, length in headers if kind == _LOAD}
    result = bytearray(data)
    for offset, length in ((row[2], row[5]) for row in headers if row[0] == _DYNAMIC):
        rows = [struct.unpack_from("<2Q", data, offset + i) for i in range(0, length, 16)]
        address = next(value for tag, value in rows if tag == _STRINGS)
        strings = next(address - start + at for start, (at, size) in places.items() if start <= address < start + size)
        kept = [row for row in rows if row[0] not in _RUN_PATHS or _shorten(result, strings + row[1], is_unwanted)]
        kept += [(_END, 0)] * (len(rows) - len(kept))
        struct.pack_into(f"<{2 * len(rows)}Q", result, offset, *(number for row in kept for number in row))
    return bytes(result)


def _shorten(data: bytearray, start: int, is_unwanted: Callable[[str], bool]) -> bool:
    """Rewrite a run path in place; return whether any of it is left."""
    end = data.index(0, start)
    folders = data[start:end].decode(errors="surrogateescape").split(":")
    kept = [folder for folder in folders if not is_unwanted(folder)]
    if kept != folders:
        text = ":".join(kept).encode(errors="surrogateescape")
        # Linkers let a name that is the end of another share its bytes: what follows the last slash stays.
        last = max(data.rfind(b"/", start, end) + 1, start + len(text))
        data[start:last] = text.ljust(last - start, b"\0")
        data[start + len(text)] = 0
    return bool(kept)
