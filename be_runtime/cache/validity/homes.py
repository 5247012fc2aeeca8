"""The paths of a manifest, on disk and in memory. Our own files and JAX's headers are wherever an environment has them.

So an entry serves each environment that has the same files by content, also after the one that built it is gone. Their
stats are those of the environment that looked last, and another one compares contents.
"""

from __future__ import annotations

from be_runtime.cache.validity.manifest import Files, Manifest
from be_runtime.own_files import by_name, by_path


def on_disk(manifest: Manifest) -> Manifest:
    """Return a manifest with names in the place of this environment's folders."""
    return manifest._replace(
        dependencies=_named(manifest.dependencies),
        others=_named(manifest.others),
        absent=tuple(row._replace(folder=by_name(row.folder)) for row in manifest.absent),
    )


def in_memory(manifest: Manifest) -> Manifest:
    """Return a manifest with this environment's folders. Every warm load calls it, so it looks at first letters."""
    return manifest._replace(
        dependencies=_located(manifest.dependencies),
        others=_located(manifest.others),
        absent=tuple([row if row[0][:1] == "/" else row._replace(folder=by_path(row[0])) for row in manifest.absent]),
    )


def elsewhere(manifest: Manifest) -> Manifest:
    """Return a manifest without these files, which another release has in an environment of its own."""
    rows = (manifest.dependencies.records, manifest.others.records)
    read, others = (Files.of(row for row in each if row.path == by_name(row.path)) for each in rows)
    absent = tuple(row for row in manifest.absent if row.folder == by_name(row.folder))
    return manifest._replace(dependencies=read, others=others, absent=absent)


def _named(files: Files) -> Files:
    return files._replace(paths=tuple(map(by_name, files.paths)))


def _located(files: Files) -> Files:
    return files._replace(paths=tuple([path if path[:1] == "/" else by_path(path) for path in files.paths]))
