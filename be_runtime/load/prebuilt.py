"""Modules that were compiled beforehand, to be loaded without a compiler, as in a container image.

::

    <folder>/<name>/<digest>-<architectures>/   prebuilt.json, module.json, module.so

A prebuilt module is found by its request: sources, options, the ABI. The tools that made it do not matter, nor does our
release. Files that it was made from, such as headers, must be unchanged or missing; the library must be the
exported one. Loading only reads the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.cache import CacheKey, Entry, Store, make_key
from be_runtime.cache.folder.layout import KEY
from be_runtime.errors import CacheError
from be_runtime.generate.contents import CONTENTS, LIBRARY, Handlers, parse_contents
from be_runtime.load.identity import content_hash, origin_hash, request_fields
from be_runtime.load.own_code import own_code_digest
from be_runtime.request.options import BuildRequest
from be_toolchain.arch import Arch, parse_archs
from be_toolchain.machine.folder_trust import distrust_entry

RECORD = "prebuilt.json"
_SCHEMA = 2
_MODULE, _KIND = "module", "prebuilt"
_OF_TOOLS = frozenset({"generator", "xla", "tools", "archs", "toolchain"})
_DIGITS = 32


class Record(NamedTuple):
    """The record beside a prebuilt library.

    Parameters
    ----------
    key : CacheKey
        Key of the request.
    archs : tuple of Arch
        Architectures of its device code; empty for a C++ module.
    content : str
        Identity of the library's code, as for a module from the cache.
    origin : str
        The same without the list of its functions.
    library_sha256 : str
    dependencies : tuple of (str, str)
        Files that compilers read, and the hash of each.
    """

    key: CacheKey
    archs: tuple[Arch, ...]
    content: str
    origin: str
    library_sha256: str
    dependencies: tuple[tuple[str, str], ...]


class Prebuilt(NamedTuple):
    """A module that was found.

    Parameters
    ----------
    library : Path
    functions : dict of str to Handlers
    content, origin : str
    """

    library: Path
    functions: dict[str, Handlers]
    content: str
    origin: str


def request_key(request: BuildRequest) -> CacheKey:
    """Make the key that finds a prebuilt module. Pure."""
    return make_key(_KIND, *request_fields(request))


def serves(built: Sequence[Arch], wanted: Sequence[Arch]) -> bool:
    """Return whether device code for some architectures runs on all of others. Pure.

    Machine code runs on later minor versions of its major version; the driver compiles the PTX of the highest
    architecture without a suffix for any later one; code with the suffix ``a`` runs only on that capability.

    Examples
    --------
    >>> serves(parse_archs("8.0,9.0a"), parse_archs("8.6"))
    True
    >>> serves(parse_archs("9.0a"), parse_archs("10.0"))
    False
    """
    return all(_serves_one(built, arch) for arch in wanted)


def _serves_one(built: Sequence[Arch], wanted: Arch) -> bool:
    if wanted in built:
        return True
    if wanted.suffix:
        return False
    generic = [arch for arch in built if not arch.suffix]
    same_major = any(arch.suffix != "a" and arch.major == wanted.major and arch <= wanted for arch in built)
    return same_major or any(arch.base == wanted for arch in built) or (bool(generic) and max(generic) <= wanted)


def find(root: Path, key: CacheKey, wanted: Sequence[Arch]) -> Prebuilt | None:
    """Find the prebuilt module of a request that runs on all wanted architectures; if none is wanted, any module.

    Raises
    ------
    CacheError
        The folder does not exist, or another user could put libraries there.
    """
    _require_safe(root)
    for folder, record in _variants(root, key):
        if _obstacle(folder, record, wanted) is None:
            return _opened(folder, record)
    return None


def explain(root: Path, key: CacheKey, wanted: Sequence[Arch]) -> str:
    """Explain in one line why `find` found nothing."""
    language = " ".join(key.texts("language"))
    reasons = [reason for folder, record in _variants(root, key) if (reason := _obstacle(folder, record, wanted))]
    others = [record.key for folder in _folders(root / key.name) if (record := _read(folder)) is not None]
    if not reasons and others:
        reasons = [_difference(other, key) for other in others]
    return f"{root} holds no such {language} module: " + ("; ".join(dict.fromkeys(reasons)) or f"none named {key.name}")


def export(store: Store, folder: Path) -> tuple[Path, ...]:
    """Copy every valid module of a cache into a folder of prebuilt modules.

    Returns
    -------
    tuple of Path
        The folder of each module, sorted. Existing ones are replaced.

    Raises
    ------
    CacheError
        The cache has no module, one of them runs on this machine's CPU only, or the folder can't be written.
    """
    entries = dict(_modules(store))
    native = sorted({key.name for key in entries if any(key.texts("native"))})
    if native:
        raise CacheError(
            f"{', '.join(native)}: compiled with native=True, for this machine's CPU alone, so it can't be exported",
            hints=("load what is exported without native=True, with a cache folder of its own",),
        )
    if not entries:
        raise CacheError(
            f"there is nothing to export: the cache {store.root} holds no modules",
            hints=("load the modules first, with the same cache folder",),
        )
    try:
        return tuple(sorted(_export(folder, key, entry) for key, entry in entries.items()))
    except OSError as error:
        raise CacheError(f"{error.filename or folder} can't be written: {error.strerror}") from error


def _modules(store: Store) -> Iterator[tuple[CacheKey, Entry]]:
    """Iterate over the valid modules of a cache that this release made, without repetition."""
    for info in store.entries():
        if info.kind == _MODULE:
            key = CacheKey.from_json(Path(info.path, KEY).read_text(encoding="utf-8"))
            entry = store.get(key) if key.texts("generator") == (own_code_digest(),) else None
            if entry is not None:
                yield key, entry


def _export(root: Path, key: CacheKey, entry: Entry) -> Path:
    """Write one module, readable by every user, to a temporary folder beside its place, then rename it."""
    archs = tuple(map(Arch.parse, key.texts("archs")))
    outputs = {output.path: output.sha256 for output in entry.manifest.outputs.records}
    record = Record(
        key=CacheKey(_KIND, tuple(field for field in key.fields if field[0] not in _OF_TOOLS)),
        archs=archs,
        content=content_hash(key, entry),
        origin=origin_hash(key, entry),
        library_sha256=outputs[LIBRARY],
        dependencies=tuple((file.path, file.sha256) for file in entry.manifest.dependencies.records),
    )
    target = root / key.name / f"{_stem(record.key)}{'.'.join(arch.sm for arch in archs) or 'host'}"
    staging = target.with_name(f".{target.name}.{os.getpid()}")
    staging.mkdir(parents=True)
    try:
        for name in (LIBRARY, CONTENTS):
            shutil.copyfile(entry.output(name), staging / name)
        (staging / RECORD).write_text(_render(record), encoding="utf-8")
        for path, mode in ((root, 0o755), (target.parent, 0o755), (staging, 0o755), (staging / LIBRARY, 0o755)):
            path.chmod(mode)
        for name in (CONTENTS, RECORD):
            (staging / name).chmod(0o644)
        shutil.rmtree(target, ignore_errors=True)
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def _require_safe(path: Path) -> None:
    """Check that only the user and root can replace files in a folder: the cache's rule for it and its contents."""
    try:
        stats = (path.lstat(), path.stat())
    except OSError as error:
        raise CacheError(
            f"the folder of prebuilt modules can't be read: {path}: {error.strerror}",
            hints=("BE_PREBUILT_DIR names a folder that export_prebuilt wrote; unset it to use none",),
        ) from error
    problem = next(filter(None, (distrust_entry(status, os.geteuid()) for status in stats)), "")
    if problem:
        remedy = (
            f"chmod -R go-w {path}"
            if problem.startswith("can be written")
            else "export the modules as yourself or root"
        )
        raise CacheError(f"prebuilt modules are not loaded: {path} {problem}", hints=(remedy,))


def _stem(key: CacheKey) -> str:
    return f"{key.digest[:_DIGITS]}-"


def _variants(root: Path, key: CacheKey) -> Iterator[tuple[Path, Record]]:
    """Find the modules of a request, one for each set of architectures it was exported for.

    Raises
    ------
    CacheError
        Another user could put libraries there.
    """
    for folder in _folders(root / key.name, _stem(key)):
        for path in (root / key.name, folder, *_folders(folder)):
            _require_safe(path)
        record = _read(folder)
        if record is not None and record.key.digest == key.digest:
            yield folder, record


def _folders(parent: Path, stem: str = "") -> list[Path]:
    try:
        found = sorted(parent.iterdir())
    except OSError:
        return []
    return [path for path in found if path.name.startswith(stem) and not path.name.startswith(".")]


def _obstacle(folder: Path, record: Record, wanted: Sequence[Arch]) -> str | None:
    """Return the reason a module of the right request can't be used; None if it can."""
    if not serves(record.archs, wanted):
        built, asked = ("/".join(arch.sm for arch in archs) for archs in (record.archs, wanted))
        return f"{record.key.name} is there for {built}, which does not run on {asked}"
    if _sha256(folder / LIBRARY) != record.library_sha256:
        return f"{folder / LIBRARY} is damaged"
    changed = next((path for path, digest in record.dependencies if _sha256(Path(path)) not in (None, digest)), None)
    return None if changed is None else f"{changed} changed since {record.key.name} was built"


def _difference(other: CacheKey, key: CacheKey) -> str:
    labels = [line.split(":", 1)[0] for line in other.explain(key)]
    return f"{key.name} is there with other {', '.join(labels)}"


def _opened(folder: Path, record: Record) -> Prebuilt:
    return Prebuilt(
        library=folder / LIBRARY,
        functions=parse_contents((folder / CONTENTS).read_bytes()),
        content=record.content,
        origin=record.origin,
    )


def _sha256(path: Path) -> str | None:
    """Hash a file; None if it is missing or not a regular file. A pipe in its place does not block."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - by descriptor
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return hashlib.file_digest(file, "sha256").hexdigest() if regular else None
    except OSError:
        return None


def _render(record: Record) -> str:
    document = record._asdict() | {
        "schema": _SCHEMA,
        "key": json.loads(record.key.to_json()),
        "archs": [str(arch) for arch in record.archs],
    }
    return json.dumps(document, indent=1)


def _read(folder: Path) -> Record | None:
    """Read a module's record; None if it is missing, damaged or of another schema."""
    try:
        document = json.loads((folder / RECORD).read_bytes())
        if document["schema"] != _SCHEMA:
            return None
        return Record(
            key=CacheKey.from_json(json.dumps(document["key"])),
            archs=parse_archs(",".join(document["archs"])) if document["archs"] else (),
            content=document["content"],
            origin=document["origin"],
            library_sha256=document["library_sha256"],
            dependencies=tuple((path, digest) for path, digest in document["dependencies"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
