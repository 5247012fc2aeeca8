"""The part of an entry in the cache that other machines can use, by its kind."""

from __future__ import annotations

from be_runtime.cache.upkeep.entries import EntryInfo
from be_runtime.cli.cache.opened import key_of
from be_runtime.generate.contents import CONTENTS, LIBRARY
from be_runtime.kernels.cuda.images import Origin, share_kernel
from be_runtime.kernels.cuda.raw_compiler import stored_origin
from be_runtime.load.find_or_build import shareable
from be_runtime.load.session import Session
from be_runtime.sharing.archive import ArchiveError
from be_runtime.sharing.travelling_entry import Shareable


def share_of(info: EntryInfo, session: Session) -> Shareable:
    """Return the part of an entry that other machines can use.

    Raises
    ------
    ArchiveError
        It has none.
    """
    key = key_of(info)
    if key is None:
        raise ArchiveError("has no key that can be read")
    if key.kind == "module":
        return shareable(key, session, (LIBRARY, CONTENTS))
    if key.kind == "native":
        return shareable(key, session, (LIBRARY,))
    if key.kind == "numba-cuda":
        return share_kernel(key, Origin(key), session)
    origin = stored_origin(key, session) if key.kind == "kernel" else None
    if origin is None:
        raise ArchiveError("is for this machine alone")
    return share_kernel(key, origin, session)
