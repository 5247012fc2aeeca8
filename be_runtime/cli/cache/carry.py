"""The commands ``cache export`` and ``cache import``."""

from __future__ import annotations

import argparse
from pathlib import Path

from be_runtime.cache.upkeep.entries import EntryInfo
from be_runtime.cli.answer import Answer, size_text
from be_runtime.cli.cache.opened import KERNELS, OpenCache, key_of, open_cache
from be_runtime.cli.cache.shared import share_of
from be_runtime.cli.cache.show_entry import manifest_of
from be_runtime.cli.cache.text import SHORT, many, with_progress
from be_runtime.errors import ArgumentError, CacheError
from be_runtime.load.find_or_build import say
from be_runtime.sharing.archive import ArchiveError
from be_runtime.sharing.export_file import ExportWriter, read_export
from be_runtime.sharing.remote import name_remote, open_signer, open_verifier
from be_runtime.sharing.travelling_entry import pack_entry
from be_toolchain.terminal import printable_line

TRUST = "their code runs in your programs: import only files that you trust"


def export(arguments: argparse.Namespace) -> Answer:
    """Write entries to a file.

    Raises
    ------
    ArgumentError
        There is nothing of a name, nothing that other machines can use, or the file can't be written.
    """
    cache = open_cache()
    sign = open_signer(cache.session.settings, cache.session.system, say)
    written, left = [], {}
    with ExportWriter(arguments.file) as file:
        for info in with_progress(_chosen(cache, arguments.names), "exporting"):
            try:
                share = share_of(info, cache.session)
                file.add(share.key.digest, pack_entry(Path(info.path), manifest_of(info), share, sign))
            except (ArchiveError, CacheError, OSError) as problem:
                left[info.digest] = f"{info.name} {info.digest[:SHORT]} {problem}"
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
    """Keep the entries of a file, after all of them were checked.

    Raises
    ------
    ArgumentError
        There is no such file, or it is damaged, or not signed as asked for.
    """
    cache = open_cache()
    session = cache.session
    source = name_remote(session.settings, session.system, say)
    if arguments.public_key is not None:
        source = source._replace(keys=arguments.public_key, keys_named_by="--public-key")
    verify = open_verifier(source)
    heads = [head for head, _ in with_progress(read_export(arguments.file, verify), "checking")]
    for head, data in read_export(arguments.file, verify):
        cache.imported.store(head.digest, data)
    signed = "signed by a key that is trusted" if verify else f"not checked for a signature; {TRUST}"
    names = ", ".join(sorted({head.name for head in heads}))
    text = f"{many(len(heads), 'entry', 'entries')} in {cache.imported.folder}, {signed}\n{printable_line(names)}"
    listed = [{"name": head.name, "kind": head.kind, "digest": head.digest, "host": head.host} for head in heads]
    return Answer(text, {"folder": str(cache.imported.folder), "entries": listed, "is_signed": verify is not None})


def _chosen(cache: OpenCache, names: list[str]) -> list[EntryInfo]:
    """Return the entries to export; without names, our own libraries as well."""
    entries = [info for info in cache.entries(everything=not names) if not info.is_damaged]
    if not names:
        return [info for info in entries if info.kind in KERNELS or _is_own_library(info)]
    return [info for name in dict.fromkeys(names) for info in cache.named(name, entries)]


def _is_own_library(info: EntryInfo) -> bool:
    """Return whether it is a library of ours that is loaded beside kernels, such as their launcher."""
    key = key_of(info)
    return info.kind == "native" and key is not None and bool(key.texts("commands"))
