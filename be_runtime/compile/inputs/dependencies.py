"""Files that the compilers of a build read, from the depfiles in its folder."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from be_runtime.compile.inputs.depfile import parse_depfile


def read_from_outside(depfiles: Iterable[str], folder: Path) -> tuple[Path, ...]:
    """Return every file outside of a build folder that its compilers read, in order, each once.

    Parameters
    ----------
    depfiles : iterable of str
        Relative to the build folder.
    folder : Path
        The build folder.
    """
    read: dict[str, None] = {}
    for depfile in depfiles:
        text = (folder / depfile).read_bytes().decode("utf-8", "surrogateescape")
        read |= dict.fromkeys(parse_depfile(text))
    return tuple(_path(path) for path in read if path.startswith("/") and not path.startswith(f"{folder}/"))


@lru_cache(maxsize=4096)
def _path(text: str) -> Path:
    """Return one `Path` object per text. Units of a folder read the same headers; one object is hashed only once."""
    return Path(text)
