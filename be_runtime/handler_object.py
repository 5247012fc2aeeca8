"""The compiled handler of a toolchain, kept in the cache: all modules link the same object."""

from __future__ import annotations

import shutil
from pathlib import Path

from be_toolchain import Toolchain

from .build.graph import HANDLER_OBJECT, handler_edge
from .cache import BuildOutput, CacheKey, Store, make_key
from .looked_at import Observer
from .tools import Tools

_OBJECT = "handler.o"


def find(tools: Tools, toolchain: Toolchain, store: Store) -> str | None:
    """The path of the handler's object, or None when it has to be compiled."""
    entry = store.get(_key(tools, toolchain))
    return None if entry is None else str(entry.output(_OBJECT))


def keep(tools: Tools, toolchain: Toolchain, store: Store, folder: Path, observer: Observer) -> None:
    """Keep the handler that a build compiled in its folder."""

    def copy(staging: Path) -> BuildOutput:
        shutil.copyfile(folder / HANDLER_OBJECT, staging / _OBJECT)
        return BuildOutput((_OBJECT,), *observer.looked_at((handler_edge(tools),)))

    store.keep(_key(tools, toolchain), copy)


def _key(tools: Tools, toolchain: Toolchain) -> CacheKey:
    argv = handler_edge(tools).argv
    return make_key("handler", ("name", "handler"), ("argv", argv), ("toolchain", toolchain.fingerprint))
