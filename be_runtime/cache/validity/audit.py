"""The check of an entry by the content of every file, for a person who asks; a load trusts stat."""

from __future__ import annotations

from typing import NamedTuple

from be_runtime.cache.validity.absent import new_file
from be_runtime.cache.validity.examine import record_file
from be_runtime.cache.validity.manifest import Manifest


class Audit(NamedTuple):
    """Findings about an entry.

    Parameters
    ----------
    damaged : tuple of str
        Outputs that are not what the build made.
    changed : tuple of str
        What the entry was made from and is not as it was; the next load builds again.
    """

    damaged: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


def audit(folder: str, manifest: Manifest, known: dict[str, str]) -> Audit:
    """Hash all files of an entry, and all it was made from.

    Parameters
    ----------
    folder : str
        Folder of the entry.
    manifest : Manifest
    known : dict of str to str
        Hashes of files that earlier entries were made from, which are hashed once; this function adds to it.
    """
    outputs, inputs = manifest.outputs, (manifest.dependencies + manifest.others).records
    made = zip(outputs.paths, outputs.sha256s, strict=True)
    damaged = tuple(name for name, digest in made if _digest(f"{folder}/{name}", name) != digest)
    for record in inputs:
        if record.path not in known:
            known[record.path] = _digest(record.path, record.path)
    changed = [record.path for record in inputs if record.sha256 and known[record.path] != record.sha256]
    appeared = new_file(manifest.absent, newest_ns=0)
    return Audit(damaged, (*manifest.uncertain, *changed, *([appeared] if appeared else ())))


def _digest(path: str, name: str) -> str:
    """Return a file's hash as a build records it; for a file that is gone, something that is no hash."""
    try:
        return record_file(path, name).sha256
    except OSError as error:
        return str(error.strerror)
