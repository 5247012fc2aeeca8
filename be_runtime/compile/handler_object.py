"""The compiled handler of a toolchain, kept in the cache: all modules link the same object.

Its entry also says what the toolchain's own files hold, so that no later build hashes compilers and libraries again.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from be_runtime.cache import BuildOutput, CacheKey, Store, make_key
from be_runtime.cache.validity.examine import proven_records
from be_runtime.cache.validity.manifest import FileRecord
from be_runtime.compile.graph import HANDLER, handler_edge
from be_runtime.compile.inputs.observe import LookedAt, Observer
from be_runtime.own_files import by_name
from be_runtime.request.tools import Tools
from be_toolchain import Toolchain

_OBJECT = "handler.o"


class Handler(NamedTuple):
    """A compiled handler.

    Parameters
    ----------
    path : str
    records : mapping of str to FileRecord
        What is known of the files of its toolchain, by path.
    """

    path: str
    records: Mapping[str, FileRecord]


def find(tools: Tools, toolchain: Toolchain, toolchain_store: Store) -> Handler | None:
    """The handler of a toolchain, or None when it has to be compiled."""
    entry = toolchain_store.get(_key(tools, toolchain))
    return None if entry is None else Handler(str(entry.output(_OBJECT)), proven_records(entry.manifest))


def keep(
    tools: Tools,
    toolchain: Toolchain,
    toolchain_store: Store,
    folder: Path,
    observer: Observer,
    linked: tuple[str, ...],
) -> None:
    """Keep the handler that a build compiled in its folder, and what is known of the files that every link reads."""

    def copy(staging: Path) -> BuildOutput:
        shutil.copyfile(folder / HANDLER.object, staging / _OBJECT)
        looked_at = LookedAt.merged((observer.looked_at((handler_edge(tools),)), LookedAt(others=linked)))
        return BuildOutput((_OBJECT,), *looked_at)

    toolchain_store.keep(_key(tools, toolchain), copy)


def _key(tools: Tools, toolchain: Toolchain) -> CacheKey:
    argv = [*map(by_name, handler_edge(tools).argv)]
    return make_key("handler", ("name", "handler"), ("argv", argv), ("toolchain", toolchain.fingerprint))
