"""The manifest of an entry, with records of its outputs and inputs and of paths that must not exist, and their checks.

A compiler takes the first header that it finds, so a header that does not exist yet may change a build.
"""

from __future__ import annotations

import errno
import math
import operator
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from be_runtime.own_files import by_name, by_path
from be_runtime.store.folder import PASSING
from be_toolchain.machine.files import seal, unseal
from be_toolchain.named import NamedTuple

SCHEMA = 4

RACY_MARGIN_NS = 2_000_000_000
"""A file that changed less than this before its record may change again and keep its stat, so it is hashed.

Two seconds is the coarsest time stamp of a file system in use (FAT); git has the same rule for its index ("racy git").
"""

NO_FILES = re.compile(r"/(?:proc|sys|dev(?!/shm/))/")
"""Matches the paths of devices and of the kernel's own files, which are no inputs of a build."""

_PERHAPS_THERE = PASSING | {errno.ELOOP}


class FileRecord(NamedTuple):
    """A file's content and the stat it had when the content was hashed.

    Parameters
    ----------
    path : str
        Absolute path of a dependency, or path of an output relative to the entry.
    size, mtime_ns, ctime_ns, inode : int
        Bytes, nanoseconds and the inode number, from stat. The change time reveals an edit whose modification time was
        set back. The inode distinguishes files of an image, whose times are all the same. The device is not recorded,
        as each mount gets another.
    sha256 : str
        Hexadecimal digest of the content, or of the parts that identify the file, see
        `be_runtime.store.examine.record_file`. Empty if only the stat is compared.
    """

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    sha256: str


class Files(NamedTuple):
    """Records of files as columns, since a warm load reads hundreds of records and needs no objects for them.

    Parameters
    ----------
    paths : tuple of str
    sizes, mtimes_ns, ctimes_ns, inodes : tuple of int
    sha256s : tuple of str
        Fields of `FileRecord`, one element for each file.

    Examples
    --------
    >>> files = Files.of([FileRecord("m.so", 3, 1, 2, 5, "ab"), FileRecord("m.json", 4, 1, 2, 6, "cd")])
    >>> files.paths, files.sizes
    (('m.so', 'm.json'), (3, 4))
    >>> files.records[1].path
    'm.json'
    """

    paths: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    mtimes_ns: tuple[int, ...] = ()
    ctimes_ns: tuple[int, ...] = ()
    inodes: tuple[int, ...] = ()
    sha256s: tuple[str, ...] = ()

    @classmethod
    def of(cls, records: Iterable[FileRecord]) -> Files:
        """Convert records to columns."""
        return cls(*zip(*records, strict=True))

    def __add__(self, other: Files) -> Files:  # type: ignore[override]
        """Concatenate the columns of both."""
        return Files(*map(operator.add, self, other))

    @property
    def records(self) -> tuple[FileRecord, ...]:
        """Record of each file."""
        return tuple(map(FileRecord._make, zip(*self, strict=True)))


class AbsentNames(NamedTuple):
    """Paths below a folder that did not exist.

    Parameters
    ----------
    folder : str
        Nearest folder that existed, absolute.
    mtime_ns, ctime_ns, inode : int
        Stat of the folder, taken before the names were examined.
    names : tuple of str
        Paths relative to the folder; empty if only the folder itself is recorded.
    """

    folder: str
    mtime_ns: int
    ctime_ns: int
    inode: int
    names: tuple[str, ...]


class Making(NamedTuple):
    """The record of how an entry was made, for users who ask.

    Parameters
    ----------
    host : str
        Name of the machine that published it in this cache.
    seconds : float
        Duration of the build or of the transfer.
    reason : str
        Reason that there was no valid entry, such as ``"/home/me/x.cuh changed"``.
    source : str
        Place from which it was fetched; empty if it was built here.
    """

    host: str = ""
    seconds: float = 0.0
    reason: str = ""
    source: str = ""


class Manifest(NamedTuple):
    """The record that validates an entry's outputs.

    Parameters
    ----------
    digest, kind, name : str
        Digest, kind and name of the request's key. The key itself is in ``key.json`` next to the manifest, since only
        users who ask for the reason of a rebuild need it.
    created_ns : int
        Time of the build.
    recorded_ns : int
        Time at which the dependencies were last hashed or compared, taken before the first of them.
    outputs, dependencies : Files
        Files that were made, and every source and header outside of the build folder that compilers read.
    others : Files
        Other files that the outputs depend on, such as compilers and libraries.
    absent : tuple of AbsentNames
        Paths that must not exist, since a build would take a file there instead of a dependency, or of no file.
    uncertain : tuple of str
        Dependencies that changed while the build read them, so that the outputs may contain the old or the new
        content, and inputs that are not files. Only the builder's own process uses such outputs.
    made : Making
        Builder, duration and reason of the build.
    """

    digest: str
    kind: str
    name: str
    created_ns: int
    recorded_ns: int
    outputs: Files
    dependencies: Files
    others: Files = Files()
    absent: tuple[AbsentNames, ...] = ()
    uncertain: tuple[str, ...] = ()
    made: Making = Making()

    @property
    def size_bytes(self) -> int:
        """Size of all outputs together."""
        return sum(self.outputs.sizes)


def render_manifest(manifest: Manifest) -> str:
    """Format a manifest as JSON; `parse_manifest` is the inverse."""
    return seal({"schema": SCHEMA, **manifest._asdict()})


def parse_manifest(text: str | bytes) -> Manifest:
    """Parse the text of `render_manifest`.

    Raises
    ------
    ValueError
        The text is damaged, or of another schema.
    """
    try:
        document = unseal(text)
        if document.pop("schema") != SCHEMA:
            raise ValueError("a manifest of another schema")
        for name in ("outputs", "dependencies", "others"):
            document[name] = _files(document[name])
        document["absent"] = tuple(_absent(*row) for row in document["absent"])
        document["uncertain"] = tuple(document["uncertain"])
        document["made"] = made = Making._make(document["made"])
        manifest = Manifest(**document)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a manifest: {error!r}") from error
    texts = (manifest.digest, manifest.kind, manifest.name, made.host, made.reason, made.source)
    if not _are(str, texts, manifest.uncertain) or not _are(int, (manifest.created_ns, manifest.recorded_ns)):
        raise ValueError("damaged texts or times")
    if type(made.seconds) is not float or not math.isfinite(made.seconds):
        raise ValueError("a damaged duration")
    return manifest


def _files(columns: Any) -> Files:
    """Check columns from JSON. A path must be a str, since stat takes a number as a file descriptor."""
    files = Files._make(map(tuple, columns))
    is_whole = len(set(map(len, files))) == 1
    if not is_whole or not _are(str, files.paths, files.sha256s) or not _are(int, *files[1:-1]):
        raise ValueError("damaged records of files")
    return files


def _absent(folder: str, mtime_ns: int, ctime_ns: int, inode: int, names: Any) -> AbsentNames:
    """Check one row from JSON, and its hundreds of names in one step."""
    row = AbsentNames(folder, mtime_ns, ctime_ns, inode, tuple(names))
    if type(folder) is not str or not _are(int, (mtime_ns, ctime_ns, inode)) or not _are(str, row.names):
        raise ValueError("damaged names of absent files")
    return row


def _are(kind: type, *columns: tuple[Any, ...]) -> bool:
    """Return whether all values have exactly this type."""
    return all(set(map(type, column)) <= {kind} for column in columns)


def on_disk(manifest: Manifest) -> Manifest:
    """Return a manifest with names instead of this environment's folders."""
    return manifest._replace(
        dependencies=_named(manifest.dependencies),
        others=_named(manifest.others),
        absent=tuple(row._replace(folder=by_name(row.folder)) for row in manifest.absent),
    )


def in_memory(manifest: Manifest) -> Manifest:
    """Return a manifest with this environment's folders. Every warm load calls it, so it compares first letters."""
    return manifest._replace(
        dependencies=_located(manifest.dependencies),
        others=_located(manifest.others),
        absent=tuple([row if row[0][:1] == "/" else row._replace(folder=by_path(row[0])) for row in manifest.absent]),
    )


def elsewhere(manifest: Manifest) -> Manifest:
    """Return a manifest without this environment's files, of which another release has its own."""
    rows = (manifest.dependencies.records, manifest.others.records)
    read, others = (Files.of(row for row in each if row.path == by_name(row.path)) for each in rows)
    absent = tuple(row for row in manifest.absent if row.folder == by_name(row.folder))
    return manifest._replace(dependencies=read, others=others, absent=absent)


def _named(files: Files) -> Files:
    return files._replace(paths=tuple(map(by_name, files.paths)))


def _located(files: Files) -> Files:
    return files._replace(paths=tuple([path if path[:1] == "/" else by_path(path) for path in files.paths]))


def group_absent(paths: Iterable[str]) -> tuple[tuple[AbsentNames, ...], tuple[str, ...]]:
    """Group paths by their nearest existing folder; the second result has the paths that exist now.

    Parameters
    ----------
    paths : iterable of str
        Absolute paths. A path that ends with ``/.`` is a folder that existed, or that could not be used. If the folder
        does not exist now, it counts as any other path. A dangling link does not exist.

    Raises
    ------
    OSError
        A network file system failed, so that a folder can't be checked.
    """
    stamps: dict[str, _Stamp | None] = {}
    links: dict[str, bool | None] = {}
    names: dict[str, list[str]] = {}
    present: list[str] = []
    rest = list(dict.fromkeys(paths))
    known, gone = set(rest), set[str]()
    while rest:
        path = rest.pop()
        parent = os.path.dirname(path)
        # The folder's stamp is taken before the name is checked, so that a file that appears in between is noticed.
        folder = _nearest(parent, stamps)
        if path.endswith("/."):
            if folder == parent:
                names.setdefault(folder, [])
                continue
            path = parent  # a file may take the name of a removed folder
            gone.add(path)
        # Below the folder, only a dangling link can exist, and a file may appear at its target.
        first = path if folder == os.path.dirname(path) else path[: path.find("/", len(folder.rstrip("/")) + 1)]
        if first not in links:
            links[first] = _is_link(first)
        is_there = links[first] is not None and _is_there(path)
        if links[first] and not is_there:
            real = os.path.realpath(first) + path[len(first) :]
            rest += () if real in known else (real,)
            known.add(real)
        if not is_there:
            names.setdefault(folder, []).append(path[len(folder.rstrip("/")) + 1 :])
        elif os.path.isdir(path) and path not in gone:
            rest.append(f"{path}/.")
        else:
            present.append(path)
    rows = (AbsentNames(at, *(stamps[at] or (0, 0, 0)), tuple(sorted(found))) for at, found in sorted(names.items()))
    return tuple(rows), tuple(present)


def new_file(rows: Sequence[AbsentNames], newest_ns: int) -> str:
    """Return the first path that exists now; empty if nothing has changed.

    Two folders that have become one, or the reverse, are also a change, since compilers search a folder once.

    Parameters
    ----------
    rows : sequence of AbsentNames
    newest_ns : int
        Limit for times. The stamp of a folder that changed at this time or later proves nothing.
    """
    moved: dict[str, int] = {}
    for folder, mtime_ns, ctime_ns, inode, names in rows:
        try:
            now = os.stat(folder)
        except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError):
            now = None  # in another user's folder, this user's compilers find nothing either
        except OSError as error:  # for example, a loop of links, at which a compiler stops
            if inode or error.errno in PASSING:
                return folder
            continue
        is_same = now is not None and (now.st_mtime_ns, now.st_ctime_ns, now.st_ino) == (mtime_ns, ctime_ns, inode)
        if is_same and mtime_ns < newest_ns and ctime_ns < newest_ns:
            continue
        if now is not None and not stat.S_ISDIR(now.st_mode):
            return folder
        for name in names:
            if _is_there(f"{folder}/{name}"):
                return f"{folder}/{name}"
        if now is None or now.st_ino != inode:
            moved[folder] = now.st_ino if now is not None else -len(moved) - 1
    pairs = {(row.inode, moved.get(row.folder, row.inode)) for row in rows} if moved else set()
    befores, afters = {before for before, _ in pairs}, {after for _, after in pairs}
    return "" if len(pairs) == len(befores) == len(afters) else next(iter(moved))


def absent_paths(rows: Iterable[AbsentNames]) -> tuple[str, ...]:
    """Return the paths in the rows of `group_absent`."""
    return tuple(f"{row.folder.rstrip('/')}/{name}" for row in rows for name in (*row.names, "."))


def _is_there(path: str) -> bool:
    """Return whether a path exists, is a loop of links, or can't be checked."""
    try:
        os.stat(path)
    except OSError as error:
        return error.errno in _PERHAPS_THERE
    except ValueError:
        return False
    return True


_Stamp = tuple[int, int, int]
"""Modification time, change time and inode of a folder."""


def _nearest(folder: str, stamps: dict[str, _Stamp | None]) -> str:
    """Return the folder, or the nearest existing one above it, and record its stamp."""
    while True:
        if folder not in stamps:
            stamps[folder] = _stamp(folder)
        parent = os.path.dirname(folder)
        if stamps[folder] is not None or parent == folder:
            return folder
        folder = parent


def _stamp(folder: str) -> _Stamp | None:
    """Return a folder's stamp; None for other paths."""
    try:
        status = os.stat(folder)
    except ValueError:
        return None
    except OSError as error:
        if error.errno in PASSING:
            raise
        return None
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def _is_link(path: str) -> bool | None:
    """Return whether a path is a link; None if it does not exist."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except ValueError:
        return None
    except OSError as error:
        return False if error.errno in PASSING else None


def shadowing_paths(dependencies: Iterable[Path], include_folders: Sequence[Path]) -> tuple[Path, ...]:
    """Return the paths at which a new file would precede a dependency in the compiler's search.

    A depfile names the files that were found, not the places that were searched before. For a dependency found in one
    include folder, the result has the same relative path in every folder searched earlier. The result belongs in
    `BuildOutput.absent`.

    Parameters
    ----------
    dependencies : iterable of Path
        Files of the depfile. A file outside all the folders, such as a system header, adds nothing.
    include_folders : sequence of Path
        Folders in the compiler's order, beginning with the source's own folder.

    Examples
    --------
    >>> [str(path) for path in shadowing_paths([Path("/b/x/y.h")], [Path("/a"), Path("/b")])]
    ['/a/x/y.h']
    """
    folders = [f"{str(folder).rstrip('/')}/" for folder in include_folders]
    found: dict[str, None] = {}
    for dependency in map(str, dependencies):
        # A folder may be in another folder, so a dependency may be in several.
        for at, folder in enumerate(folders):
            if dependency.startswith(folder):
                relative = dependency.removeprefix(folder)
                found.update(dict.fromkeys(f"{earlier}{relative}" for earlier in folders[:at]))
    return tuple(Path(path) for path in found if not os.path.lexists(path))
