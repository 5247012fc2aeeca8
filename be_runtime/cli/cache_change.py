"""The ``cache`` commands that remove entries, copy them to other machines and sign them."""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from be_runtime.cli.cache_common import (
    KERNELS,
    SHORT,
    OpenCache,
    entry_json,
    manifest_of,
    open_cache,
    share_of,
    with_progress,
)
from be_runtime.cli.main import Answer, size_text
from be_runtime.errors import ArgumentError, CacheError, LoadError
from be_runtime.load.identity import own_code_digest
from be_runtime.load.obtain import say
from be_runtime.store.artifact import resigned, unpack
from be_runtime.store.cache import replace_file
from be_runtime.store.eviction import EntryInfo, beyond_limits, read_key
from be_runtime.store.examine import examine
from be_runtime.store.folder import cache_errors
from be_runtime.store.manifest import elsewhere
from be_runtime.store.places import ExportWriter, read_export
from be_runtime.store.remote import name_remote, open_signer, open_verifier
from be_runtime.store.sharing import pack_entry
from be_runtime.store.signing import make_keys, read_signer, write_private_key
from be_toolchain.machine.trust import open_regular, read_regular
from be_toolchain.terminal import many, printable_line, table

_DAY_S = 86400
_TRUST = "their code runs in your programs: import only files that you trust"
_KEY_FILE = Path("be-cache.key")
"""The default file of the private key."""


def prune(arguments: argparse.Namespace) -> Answer:
    """Remove entries beyond the limits and, on request, the entries that no load can use."""
    cache = open_cache()
    settings = cache.session.settings
    size_mib = settings.cache_max_size_mib if arguments.max_size is None else arguments.max_size
    age_days = settings.cache_max_age_days if arguments.max_age is None else arguments.max_age
    doomed = {
        info.path: info
        for store in cache.stores
        for info in beyond_limits(store.entries(), size_mib << 20, age_days, now_s=cache.now_s)
    }
    if arguments.stale:
        entries = with_progress(cache.entries(), "looking")
        doomed |= {info.path: info for info in entries if _is_stale(info)}
    old = [row for row in cache.imported.archives() if row[1].st_mtime < cache.now_s - age_days * _DAY_S]
    return _remove(cache, [*doomed.values()], old, is_dry=arguments.dry_run)


def _is_stale(info: EntryInfo) -> bool:
    """Return whether no load can use an entry: a file that it was made from has changed or is gone."""
    try:
        manifest = manifest_of(info)
    except CacheError:  # damaged, or removed just now
        return False
    key = read_key(info.path)
    if key is not None and key.texts("generator") not in ((), (own_code_digest(),)):
        manifest = elsewhere(manifest)
    return bool(examine(info.path, manifest).problem)


def clear(arguments: argparse.Namespace) -> Answer:
    """Remove the entries of a name, or all entries.

    Raises
    ------
    ArgumentError
        No entry has the name.
    """
    cache = open_cache()
    doomed = cache.entries(toolchain=arguments.everything)
    if arguments.name is not None:
        return _remove(cache, cache.named(arguments.name, doomed), [], is_dry=arguments.dry_run)
    answer = _remove(cache, doomed, cache.imported.archives(), is_dry=arguments.dry_run)
    if not arguments.dry_run:
        cache.session.cache.clear()  # also removes the leftovers of killed builds
    return answer


def _remove(
    cache: OpenCache, doomed: list[EntryInfo], archives: list[tuple[Path, os.stat_result]], *, is_dry: bool
) -> Answer:
    """Remove entries and imported artifacts, or list them in a dry run."""
    carried = [_archive_json(*row) for row in archives]
    removed = doomed if is_dry else cache.remove(doomed)
    if not is_dry:
        with cache_errors(str(cache.imported.folder)):
            for path, _ in archives:
                path.unlink(missing_ok=True)
    size = sum(info.size_bytes for info in removed) + sum(status.st_size for _, status in archives)
    verb = "would remove" if is_dry else "removed"
    imported = f" and {many(len(archives), 'imported artifact')}" if archives else ""
    text = f"{verb} {many(len(removed), 'entry', 'entries')}{imported}, {size_text(size)}"
    if is_dry:
        rows = [
            (info.digest[:SHORT], info.name or "(damaged)", info.kind, size_text(info.size_bytes)) for info in doomed
        ]
        rows += [(row["digest"][:SHORT], row["name"], "imported", size_text(row["size_bytes"])) for row in carried]
        if rows:
            text = f"{text}\n{table([('entry', 'name', 'kind', 'size'), *rows])}"
    data = {"removed": [*map(entry_json, removed)], "imported": carried, "size_bytes": size, "is_dry_run": is_dry}
    return Answer(text, data)


def _archive_json(path: Path, status: os.stat_result) -> dict[str, Any]:
    """Return an imported artifact as JSON data; the name is empty if it can't be read."""
    name = ""
    with contextlib.suppress(OSError, LoadError):
        inputs = unpack(read_regular(path), str(path)).table.inputs
        name = inputs.name if inputs else ""
    return {"name": name, "digest": path.name, "size_bytes": status.st_size}


def export(arguments: argparse.Namespace) -> Answer:
    """Write entries to a file.

    Raises
    ------
    ArgumentError
        No entry has a name, other machines can use no entry, or the file can't be written.
    """
    cache = open_cache()
    sign = open_signer(cache.session.settings, cache.session.system, say)
    written, left = [], {}
    with ExportWriter(arguments.file) as file:
        for info in with_progress(_chosen(cache, arguments.names), "exporting"):
            try:
                share = share_of(info, cache.session)
                file.add(share.key.digest, pack_entry(Path(info.path), manifest_of(info), share, sign))
            except (LoadError, CacheError) as problem:
                left[info.digest] = problem.message
            else:
                written.append(info)
        if not written:
            raise ArgumentError("there is nothing to export", hints=tuple(left.values()))
    size = arguments.file.stat().st_size
    lines = [f"{arguments.file}: {many(len(written), 'entry', 'entries')}, {size_text(size)}"]
    lines += [printable_line(f"left out: {text}") for text in left.values()]
    names = [{"name": info.name, "kind": info.kind, "digest": info.digest} for info in written]
    data = {"file": str(arguments.file), "entries": names, "left_out": [*left.values()], "size_bytes": size}
    return Answer("\n".join(lines), data)


def import_file(arguments: argparse.Namespace) -> Answer:
    """Check all entries of a file, and add them to the cache.

    Raises
    ------
    ArgumentError
        The file is missing or damaged, or lacks the requested signature.
    """
    cache = open_cache()
    session = cache.session
    source = name_remote(session.settings, session.system, say)
    if arguments.public_key is not None:
        source = source._replace(keys=arguments.public_key, keys_named_by="--public-key")
    verify = open_verifier(source)
    found = [each.table.inputs for each in with_progress(read_export(arguments.file, verify), "checking")]
    checked = [inputs for inputs in found if inputs]
    for artifact in read_export(arguments.file, verify):
        if artifact.table.inputs:
            cache.imported.store(artifact.table.inputs.digest, artifact.packed)
    signed = "signed by a trusted key" if verify else f"not checked for a signature; {_TRUST}"
    names = ", ".join(sorted({each.name for each in checked}))
    text = f"{many(len(checked), 'entry', 'entries')} in {cache.imported.folder}, {signed}\n{printable_line(names)}"
    listed = [{"name": each.name, "kind": each.kind, "digest": each.digest, "host": each.host} for each in checked]
    return Answer(text, {"folder": str(cache.imported.folder), "entries": listed, "is_signed": verify is not None})


def _chosen(cache: OpenCache, names: list[str]) -> list[EntryInfo]:
    """Return the entries to export; without names, all kernels and this package's libraries for them."""
    if names:
        kernels = cache.kernels()
        return [info for name in dict.fromkeys(names) for info in cache.named(name, kernels)]
    entries = [info for info in cache.entries() if not info.is_damaged]
    return [info for info in entries if info.kind in KERNELS or _is_own_library(info)]


def _is_own_library(info: EntryInfo) -> bool:
    """Return whether an entry is a library of this package that kernels need, such as their launcher."""
    key = read_key(info.path)
    return info.kind == "native" and key is not None and bool(key.texts("commands"))


def keygen(arguments: argparse.Namespace) -> Answer:
    """Write a private key to the file `arguments.out`, and print the public key.

    Raises
    ------
    ArgumentError
        The file exists or can't be written, or the package cryptography is missing.
    """
    path = Path(arguments.out or _KEY_FILE).absolute()  # a setting is read in any working folder
    private, public = make_keys()
    write_private_key(path, private)
    text = (
        f"{path}: the private key, for those who fill a cache: BE_REMOTE_CACHE_PRIVATE_KEY={path}\n"
        f"the public key, for those who read it: BE_REMOTE_CACHE_PUBLIC_KEY={public}"
    )
    return Answer(text, {"private_key_file": str(path), "public_key": public})


def sign(arguments: argparse.Namespace) -> Answer:
    """Sign the export or archive `arguments.file` by the private key in the file `arguments.key`.

    Raises
    ------
    ArgumentError
        The file or the key is damaged, or the package cryptography is missing.
    """
    path: Path = arguments.file
    signer = read_signer(arguments.key, "--key")
    try:
        with open_regular(path) as opened:
            is_export = is_zipfile(opened)
        if is_export:
            with ExportWriter(path) as file:
                for artifact in read_export(path):
                    if artifact.table.inputs:
                        file.add(artifact.table.inputs.digest, resigned(artifact.packed, artifact.where, signer))
        else:
            replace_file(str(path), resigned(read_regular(path), str(path), signer), mode=0o666, is_new=True)
    except LoadError as error:
        raise ArgumentError(error.message, hints=error.hints) from None
    except OSError as error:
        raise ArgumentError(f"{path} can't be signed: {error.strerror}") from None
    return Answer(f"{path} is signed", {"file": str(path)})
