"""The path of a cache miss: one process builds in a staging folder and publishes, the others wait for the entry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from be_runtime.cache.folder.guard import cache_errors, disk_errors, repeatedly
from be_runtime.cache.folder.key import CacheKey
from be_runtime.cache.folder.layout import lock_file
from be_runtime.cache.folder.lock import Flock, OnWait, key_lock
from be_runtime.cache.output import BuildOutput
from be_runtime.cache.publish import open_stage, publish, trim
from be_runtime.cache.upkeep.staging import builder_of, make_staging, remove_tree
from be_runtime.cache.validity.lookup import Lookup, look_up, variant_folders
from be_runtime.errors import CacheError

Build = Callable[[Path], BuildOutput | None]


def build_once(
    base: str,
    key: CacheKey,
    build: Build,
    *,
    force: bool,
    timeout_s: float | None,
    on_wait: OnWait | None,
    flock: Flock,
) -> tuple[Lookup, bool]:
    """Build under the key's lock, unless another process did while this one waited.

    Returns
    -------
    tuple of (Lookup, bool)
        The valid entry, and whether this call built it. If it did, the lookup's `problem` is the reason for the build.
    """
    seen: list[str] = []

    def has_come() -> bool:
        """Return whether the entry exists already: the lock's holder may be slow to release the lock, or hang."""
        nonlocal seen
        before, seen = seen, variant_folders(base, key.digest)
        return seen != before and not force and look_up(base, key.digest).manifest is not None

    with key_lock(
        lock_file(base, key.digest),
        timeout_s=timeout_s,
        on_wait=on_wait,
        holder=lambda: builder_of(base, key.digest),
        is_needless=has_come,
        flock=flock,
    ):
        found = Lookup(problem="a rebuild was requested") if force else look_up(base, key.digest)
        return _build(base, key, build, found) if found.manifest is None else (found, False)


def _build(base: str, key: CacheKey, build: Build, found: Lookup) -> tuple[Lookup, bool]:
    """Build, publish, and remove superseded entries. The staging folder is removed in any case."""
    with cache_errors(base):
        folder = repeatedly(lambda: make_staging(base, key.digest))
    try:
        with cache_errors(base):
            stage = repeatedly(lambda: open_stage(folder, found.problem))
        with disk_errors(stage.work):
            output = build(Path(stage.work))
        if output is None:
            return _come(base, key), False
        with cache_errors(base):
            path, manifest = repeatedly(lambda: publish(base, key, stage, output))
    finally:
        remove_tree(folder)
    trim(base, key.digest, found.damaged)
    return Lookup(folder=path, manifest=manifest, problem=found.problem), True


def _come(base: str, key: CacheKey) -> Lookup:
    """Return the entry that another host has put into this folder, as the build found."""
    found = look_up(base, key.digest)
    if found.manifest is None:
        raise CacheError(f"{key.name or key.kind} was built by another machine, but not for this one: {found.problem}")
    return found
