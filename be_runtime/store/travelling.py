"""Entries that travel between machines: movable keys, packing and unpacking, imported archives and export files.

An entry is found elsewhere by its movable key, in which names such as ``<toolkit>`` replace this machine's folders. Its
archive is used only if a build here would read the same inputs. An export file is a zip of archives, each under its
digest, with a member ``be-export`` that states the format.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import shlex
import stat
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from be_runtime.errors import ArgumentError
from be_runtime.own_files import HERE
from be_runtime.store.archive import ArchiveError, Head, Sign, SignatureError, Verify, pack, unpack
from be_runtime.store.cache import BuildOutput, Recorded
from be_runtime.store.folder import DIGEST, cache_errors, make_way, own_folder
from be_runtime.store.keys import CacheKey
from be_runtime.store.lookup import replace_private
from be_runtime.store.manifest import NO_FILES, AbsentNames, FileRecord, Files, Manifest, group_absent
from be_runtime.store.publish import build_began, record_dependency
from be_toolchain.machine.local_system import stamp_path
from be_toolchain.machine.trust import LARGEST, distrust_entry, open_archive, open_regular, read_member, read_regular

COME = b""
"""Answer of a place if the entry is in this machine's cache by now."""

Say = Callable[[str], object]
"""Function that shows the user a message."""

_COMMON = frozenset({"", "/", "/usr", "/usr/local", "/opt"})
"""Folders that are too common for a name of their own."""

_SEARCHED = ("/usr/include", "/usr/local/include")
"""Folders that compilers search by default."""

_FOLDER_FLAGS = ("-I", "-L", "-isystem", "-iquote", "-idirafter")
_DEBUG_FLAG = re.compile(r"-g(gdb|dwarf)?[-\d]*|-G|-lineinfo|--device-debug|--generate-line-info|-pg|--coverage")
"""Flags that put the folders of the sources into compiled code."""

_OWN_PATH = re.compile(r"(?:^--?[A-Za-z]+|(?<![\w>.]))/(?!usr/|lib|bin/|sbin/|etc/|opt/)[\w.+-]+/")
"""A path outside the folders that all machines have."""

_NAMING_FLAG = re.compile(
    r"'?-ffile-prefix-map=/.*=<(?:python|site|toolkit|compiler|(?:include|source) \d+)>'?", re.DOTALL
)
"""A flag of `naming_flags`, of any machine."""

_AUTHORS = ("sources", "source", "expression")
"""Labels of an author's texts."""

_PATIENCE_S, _LARGEST_INPUT = 10.0, 1 << 32
_MARK, _FORMAT = "be-export", b"1\n"


class WantedEntry(NamedTuple):
    """An entry to ask other places for before it is built.

    Parameters
    ----------
    key : CacheKey
        The movable key, see `movable_key`. Its digest names the entry outside this machine.
    name : str
        Name for messages.
    has_come : callable
        Returns whether the entry is in this machine's cache by now: machines may share the cache's folder.
    """

    key: CacheKey
    name: str
    has_come: Callable[[], bool]


class EntryPlace(Protocol):
    """A place to ask for an entry. It moves bytes and never fails a load: the caller checks each archive.

    Attributes
    ----------
    label : str
        Name in messages, such as ``"https://cache.example.org"``.
    secrets : tuple of str
        Texts that the place receives and may repeat in its answers; no message shows them.
    """

    label: str
    secrets: tuple[str, ...]

    def fetch(self, wanted: WantedEntry) -> bytes | None:
        """Return an archive of the entry, `COME`, or None to build it here."""

    def offer(self, wanted: WantedEntry, data: bytes) -> None:
        """Take an archive of an entry that was built here, or that came from another place."""

    def abandon(self, wanted: WantedEntry, problem: str) -> None:
        """Learn that there will be no archive: the build failed, or its result is for this machine alone."""


class Roots(NamedTuple):
    """Folders and their names.

    Parameters
    ----------
    folders : tuple of (str, str)
        Paths and names. Several paths may share a name, such as the folders of installed Python packages.

    Examples
    --------
    >>> roots = Roots((("/home/me/env", "<python>"), ("/home/me/env/lib/site", "<site>")))
    >>> roots.name("/home/me/env/lib/site/jaxlib"), roots.name("/usr/include"), roots.name("-I/home/me/env/include")
    ('<site>/jaxlib', '/usr/include', '-I<python>/include')
    >>> roots.paths("<site>/jaxlib")
    ('/home/me/env/lib/site/jaxlib',)
    """

    folders: tuple[tuple[str, str], ...]

    def name(self, text: str) -> str:
        """Replace the nearest root in a path, or in a compiler's flag with a path, by its name; other text stays."""
        flag = next((flag for flag in _FOLDER_FLAGS if text.startswith(f"{flag}/")), "")
        path = text[len(flag) :]
        within = [(folder, name) for folder, name in self.folders if path == folder or path.startswith(f"{folder}/")]
        if not within:
            return text
        folder, name = max(within, key=lambda pair: len(pair[0]))
        return f"{flag}{name}{path[len(folder) :]}"

    def paths(self, named: str) -> tuple[str, ...]:
        """Return the paths here that `name` turns into this text; none if the root is unknown here."""
        if not named.startswith("<"):
            return (named,)
        head, _, rest = named.partition(">")
        return tuple(folder + rest for folder, name in self.folders if name == f"{head}>")

    def named_in(self, data: bytes) -> str:
        """Return the first folder that compiled code names; empty if it names none."""
        texts = (re.escape(folder.encode("utf-8", "surrogateescape")) for folder, _ in self.folders)
        found = re.search(rb"(?:" + b"|".join(texts) + rb")(?![\w.+-])", data) if self.folders else None
        return found[0].decode("utf-8", "replace") if found else ""


def key_roots(key: CacheKey, machine: Iterable[tuple[str, str]], folders: Iterable[Path] = ()) -> Roots:
    """Return the roots of a key: the author's folders, the toolkit, the compiler, and the machine's roots.

    An author's folder below another folder of the search gets no name of its own. A compiler finds its files by either
    folder, so machines share an entry only if their folders are nested in the same way.

    Parameters
    ----------
    key : CacheKey
        A key with some of the fields of a module's key.
    machine : iterable of (str, str)
        Paths and names that do not depend on the key.
    folders : iterable of Path
        Folders of headers, besides the folders in the key.
    """
    if any(_DEBUG_FLAG.fullmatch(flag) for flag in key.texts("cflags")):
        return Roots(())
    headers = [*key.texts("include_paths"), *map(str, folders)]
    sources = dict.fromkeys(path.rpartition("/")[0] for path in key.texts("sources")[1::4])
    authors = [(folder, f"<include {at}>") for at, folder in enumerate(headers)]
    authors += [(folder, f"<source {at}>") for at, folder in enumerate(filter(None, sources))]
    texts = key.texts("toolchain")
    toolchain = dict(zip(texts[::2], texts[1::2], strict=True))
    named = [(toolchain.get("cuda.root", ""), "<toolkit>")]
    hosts = (toolchain.get(f"{label}.path", "") for label in ("cxx", "cuda.host"))
    named += [(path[: path.rfind("/bin/")], "<compiler>") for path in hosts if "/bin/" in path]
    named += machine
    searched = {*headers, *sources, *_SEARCHED, *_searched_by_flags(key, toolchain)} - _COMMON
    above = {"<include": searched | {folder for folder, _ in named} - _COMMON, "<source": searched}
    authors = [
        (folder, name)
        for folder, name in authors
        if not any(folder.startswith(f"{each}/") for each in above[name.partition(" ")[0]])
    ]
    distinct: dict[str, str] = {}
    for folder, name in (*authors, *named):
        if folder not in _COMMON:
            distinct.setdefault(folder, name)
    return Roots(tuple(distinct.items()))


def _searched_by_flags(key: CacheKey, toolchain: Mapping[str, str]) -> Iterator[str]:
    """Iterate over the folders that flags and variables such as CPATH name."""
    variables = (value for name, value in toolchain.items() if name.startswith("env."))
    for text in (*key.texts("cflags"), *variables):
        for path in text.split(":"):
            yield path[max(path.find("/"), 0) :].rstrip("/")


def movable_key(key: CacheKey, roots: Roots) -> CacheKey:
    """Return the key of the same build on any machine with the same components."""
    key = CacheKey(key.kind, tuple(field for field in key.fields if field[0] != HERE))
    texts = {label: key.texts(label) for label, _ in key.fields}
    own = naming_flags(roots, is_cuda=key.texts("language") == ("cuda",))
    flags = key.texts("cflags")
    texts["cflags"] = flags[len(own) if own and flags[: len(own)] == own else _count_naming(flags) :]
    named = {label: [roots.name(text) for text in found] for label, found in texts.items()}
    # A component of the toolchain is its version and its path.
    parts = (text.partition(" ") if text[:1].isdigit() else ("", "", text) for text in key.texts("toolchain"))
    named["toolchain"] = [f"{version}{space}{roots.name(path)}" for version, space, path in parts]
    return key.with_texts(named)


def naming_flags(roots: Roots, *, is_cuda: bool) -> tuple[str, ...]:
    """Return the compiler's flags that replace a root's path by its name in compiled code, as in ``__FILE__``.

    See https://gcc.gnu.org/onlinedocs/gcc/Overall-Options.html#index-ffile-prefix-map; the last flag that fits counts.
    `-Xcompiler` splits its argument at commas, so a folder with a comma gets no flag for CUDA: machines do not share
    code with its path.
    """
    folders = [pair for pair in sorted(roots.folders) if not (is_cuda and "," in pair[0])]
    flags = [f"-ffile-prefix-map={folder}={name}" for folder, name in folders]
    return tuple(part for flag in flags for part in ("-Xcompiler", shlex.quote(flag))) if is_cuda else tuple(flags)


def _count_naming(flags: Sequence[str]) -> int:
    """Count the leading flags of `naming_flags`, from any environment: an author's flags come after them."""
    step = 2 if flags[:1] == ("-Xcompiler",) else 1
    count = 0
    while _NAMING_FLAG.fullmatch("".join(flags[count + step - 1 : count + step])) and (
        step == 1 or flags[count] == "-Xcompiler"
    ):
        count += step
    return count


def unnamed_paths(key: CacheKey) -> tuple[str, ...]:
    """Return the paths in a movable key, one a line: only machines with equal paths share its entry."""
    fields = ((label, text) for label, _ in key.fields if label not in _AUTHORS for text in key.texts(label))
    return tuple(dict.fromkeys(f"{label}: {text}" for label, text in fields if _OWN_PATH.search(text)))


class Shareable(NamedTuple):
    """The part of an entry that other machines can use.

    Parameters
    ----------
    key : CacheKey
        The movable key.
    roots : Roots
        Folders of this machine, with their names.
    outputs : tuple of str
        Patterns of the names of shared outputs; an archive has at least one output for each pattern, and no others.
    known : tuple of (str, bytes)
        Outputs with the content that a build here would write; an archive with other content is not of this entry.
    """

    key: CacheKey
    roots: Roots
    outputs: tuple[str, ...]
    known: tuple[tuple[str, bytes], ...] = ()

    def takes(self, name: str) -> bool:
        """Return whether an output is shared."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.outputs)


def pack_entry(folder: Path, manifest: Manifest, share: Shareable, sign: Sign | None = None) -> bytes:
    """Make an archive of an entry.

    Raises
    ------
    ArchiveError
        The entry is for this machine alone, was removed, or has a file that can't be read.
    """
    if manifest.uncertain:
        raise ArchiveError(f"is for one process alone, since {manifest.uncertain[0]} may have changed during the build")
    files = [record for record in manifest.outputs.records if share.takes(record.path)]
    try:
        outputs = {record.path: read_regular(folder / record.path, record.size) for record in files}
    except OSError as error:
        raise ArchiveError(f"can't be read: {error.strerror}: {error.filename}") from error
    for name, data in outputs.items():
        named = share.roots.named_in(data)
        if named:
            raise ArchiveError(f"is for this machine alone: its {name} names the folder {named}")
    head = Head(
        digest=share.key.digest,
        kind=manifest.kind,
        name=manifest.name,
        outputs=tuple((record.path, record.size, record.sha256) for record in files),
        dependencies=tuple(_named(manifest.dependencies, share.roots)),
        others=tuple(_named(manifest.others, share.roots)),
        absent=tuple(_absent(manifest.absent, share.roots)),
        host=manifest.made.host,
        seconds=manifest.made.seconds,
    )
    return pack(head, outputs, sign)


def unpack_entry(
    data: bytes, share: Shareable, staging: Path, source: str, verify: Verify | None = None
) -> BuildOutput:
    """Write the outputs of an archive into a folder, if a build here would read the same inputs.

    Parameters
    ----------
    data : bytes
        The archive.
    share : Shareable
        The entry to unpack.
    staging : Path
        Folder for the outputs.
    source : str
        Place that the archive comes from, for the entry's record.
    verify : callable, optional
        Checks the archive's signature.

    Raises
    ------
    ArchiveError
        The archive is damaged, not signed as required, of another entry, or made from other files than this machine's.
    """
    began_ns = build_began(str(staging), time.time_ns())
    head, outputs = unpack(data, verify)
    if head.digest != share.key.digest:
        raise ArchiveError("is of another entry")
    if odd := next((name for name in outputs if not share.takes(name)), None):
        raise ArchiveError(f"is damaged: it has {odd}, which no {head.kind} has")
    if missing := next((pattern for pattern in share.outputs if not fnmatch.filter(outputs, pattern)), None):
        raise ArchiveError(f"is damaged: it has no {missing}")
    if other := next((name for name, content in share.known if outputs[name] != content), None):
        raise ArchiveError(f"is damaged: its {other} is not what a build here would write")
    try:
        roots = _without_links(share.roots)
        read, others = _local(head.dependencies, roots), _local(head.others, roots)
        recorded = Recorded(began_ns, time.time_ns(), _compared({**others, **read}))
        absent = _absent_here(head.absent, roots)
        for name, content in outputs.items():
            (staging / name).write_bytes(content)
    except (OSError, ValueError) as error:  # such as a folder instead of a header, or a name that is not valid here
        raise ArchiveError(f"can't be used here: {error}") from error
    return BuildOutput(tuple(outputs), tuple(read), tuple(others), absent, recorded, source=source)


def _compared(files: Mapping[str, str]) -> dict[str, FileRecord]:
    """Record files of this machine after a comparison of their hashes.

    An archive may name any file, so there are limits. Devices and the kernel's files are no inputs of a build, and
    opening some of them has effects.
    """
    records, until = {}, time.monotonic() + _PATIENCE_S
    for path, digest in files.items():
        stamp = None if NO_FILES.match(os.path.realpath(path)) else stamp_path(path)
        record = record_dependency(path) if stamp is not None and stamp.size_bytes <= _LARGEST_INPUT else None
        if record is None or record.sha256 != digest:
            raise ArchiveError(f"was built with another {path} than the one here")
        if time.monotonic() > until:
            raise ArchiveError(f"is made from more than can be compared in {_PATIENCE_S:g} s")
        records[path] = record
    return records


def _named(files: Files, roots: Roots) -> Iterator[tuple[str, str]]:
    """Iterate over paths with the names of roots, and hashes."""
    for path, digest in zip(files.paths, files.sha256s, strict=True):
        yield roots.name(path), digest


def _without_links(roots: Roots) -> Roots:
    """Return the roots with one path for each folder."""
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for folder, name in roots.folders:
        first.setdefault((name, os.path.realpath(folder)), (folder, name))
    return Roots(tuple(first.values()))


def _local(files: Iterable[tuple[str, str]], roots: Roots) -> dict[str, str]:
    """Return the paths here and their expected hashes; of paths with one name all that exist: a build may read any."""
    found: dict[str, str] = {}
    for named, digest in files:
        paths = roots.paths(named)
        if not paths:
            raise ArchiveError(f"was built with {named}, and there is no such folder here")
        found |= dict.fromkeys([*filter(os.path.exists, paths)] or paths[:1], digest)
    return found


def _absent(rows: Sequence[AbsentNames], roots: Roots) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Iterate over the absent names for an archive, see `Head.absent`."""
    first = {row.inode: at for at, row in reversed([*enumerate(rows)])}
    for row in rows:  # each folder exists, so it has an inode
        yield roots.name(row.folder), first[row.inode], row.names


def _absent_here(rows: Sequence[tuple[str, int, tuple[str, ...]]], roots: Roots) -> tuple[str, ...]:
    """Return the paths that must be absent here, after a check that they are.

    Folders that were one folder on the machine of the build must be one here: compilers search a folder once.
    """
    folders = [roots.paths(named) for named, *_ in rows]
    if not all(folders):
        raise ArchiveError("was built with folders that are not here")
    paths = tuple(
        f"{folder.rstrip('/')}/{name}"
        for found, (_, _, names) in zip(folders, rows, strict=True)
        for folder in found
        for name in (*names, ".")
    )
    present = group_absent(paths)[1]
    if present:
        raise ArchiveError(f"was built where there is no {present[0]}")
    inodes = [next(filter(None, map(_inode, found)), 0) for found in folders]
    pairs = {(row[1], inode) for row, inode in zip(rows, inodes, strict=True) if inode}
    if not len(pairs) == len({same for same, _ in pairs}) == len({inode for _, inode in pairs}):
        raise ArchiveError("was built where other folders are links to one another")
    return paths


def _inode(folder: str) -> int:
    """Return the inode of a folder; 0 if it does not exist."""
    try:
        return Path(folder).stat().st_ino
    except (OSError, ValueError):
        return 0


class Imported:
    """The imported archives of one cache, each under the digest of its movable key.

    Parameters
    ----------
    root : Path
        The cache's folder.

    Raises
    ------
    CacheError
        Another user could put files there.
    """

    def __init__(self, root: Path) -> None:
        self.folder = Path(own_folder(str(root)), "imported")
        self.label = str(self.folder)
        self.secrets: tuple[str, ...] = ()

    @property
    def is_there(self) -> bool:
        """True if anything was imported."""
        return self.folder.is_dir()

    def fetch(self, wanted: WantedEntry) -> bytes | None:
        """See `EntryPlace.fetch`. An archive that another user could have written counts as missing."""
        path = self._path(wanted.key.digest)
        with contextlib.suppress(OSError):
            for status in (self.folder.lstat(), path.parent.lstat()):
                if not stat.S_ISDIR(status.st_mode) or distrust_entry(status, os.geteuid()):
                    return None
            # A crash may leave an empty file.
            return read_regular(path, judge=distrust_entry, follows_link=False) or None
        return None

    def offer(self, wanted: WantedEntry, data: bytes) -> None:
        """See `EntryPlace.offer`. It does nothing: only a person imports archives."""

    def abandon(self, wanted: WantedEntry, problem: str) -> None:
        """See `EntryPlace.abandon`. It does nothing."""

    def store(self, digest: str, data: bytes) -> None:
        """Keep an archive, and replace an older one of the same entry.

        Raises
        ------
        CacheError
            The archive can't be written.
        """
        path = self._path(digest)
        with cache_errors(str(path)):
            make_way(str(path.parent))
            replace_private(str(path), data, is_new=True)

    def archives(self) -> list[tuple[Path, os.stat_result]]:
        """List the archives and their stats."""
        found = []
        for path in sorted(self.folder.glob("??/*")):
            with contextlib.suppress(OSError):
                found.append((path, path.lstat()))
        return found

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest


class ExportWriter:
    """Write an export file, which gets its name once it is whole.

    Raises
    ------
    ArgumentError
        The file can't be written.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._partial = path, path.with_name(f"{path.name}.{os.urandom(4).hex()}.partial")
        self._seen: set[str] = set()

    def __enter__(self) -> Self:
        with self._writing():
            self._file = self._partial.open("xb")  # through no link, and into no file of somebody else
            self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED)
            self._zip.writestr(zipfile.ZipInfo(_MARK), _FORMAT)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with self._writing():
                self._zip.close()
                self._file.close()
                if kind is None:
                    self._partial.replace(self._path)
        finally:
            self._partial.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._file.close()

    def add(self, digest: str, data: bytes) -> None:
        """Add an archive, unless the file has one of the same entry."""
        if digest not in self._seen:
            self._seen.add(digest)
            with self._writing():
                self._zip.writestr(zipfile.ZipInfo(digest), data)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ArgumentError(f"{self._path} can't be written: {error.strerror}") from error


def read_export(path: Path, verify: Verify | None = None) -> Iterator[tuple[Head, bytes]]:
    """Iterate over the archives in an export file; check the hashes of each, and its signature with `verify`.

    Raises
    ------
    ArgumentError
        The file does not exist, is damaged, has another format, or has an archive without a trusted signature.
    """
    try:
        with open_regular(path) as file, open_archive(file) as opened:
            members = opened.infolist()
            names = [member.filename for member in members]
            if _MARK not in names or opened.getinfo(_MARK).file_size > len(_FORMAT):
                raise ArgumentError(f"{path} is no export of the cache", hints=("python -m be_runtime cache export",))
            if opened.read(_MARK) != _FORMAT:
                raise ArgumentError(f"{path} is of another release's format")
            for member in members:
                if member.filename != _MARK:
                    yield _read_archive(opened, member, verify, path)
    except zipfile.BadZipFile as error:
        hint = "an export is the file that python -m be_runtime cache export writes; it may have been cut short"
        raise ArgumentError(f"{path} is no export of the cache, or is damaged: {error}", hints=(hint,)) from error
    except (OSError, RuntimeError, EOFError) as error:
        raise ArgumentError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from error


def _read_archive(
    opened: zipfile.ZipFile, member: zipfile.ZipInfo, verify: Verify | None, path: Path
) -> tuple[Head, bytes]:
    name = member.filename
    if not DIGEST.fullmatch(name) or member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise ArgumentError(f"{path} has {name!r}, which is no archive of an entry")
    try:
        data = read_member(opened, name, LARGEST)
    except ValueError as error:
        raise ArgumentError(f"{path}: the archive {name[:12]} can't be read: {error}") from error
    try:
        head, _ = unpack(data, verify)
    except ArchiveError as problem:
        hints = ["nothing was taken from it"]
        if isinstance(problem, SignatureError):
            hints.append("--public-key, else BE_REMOTE_CACHE_PUBLIC_KEY, names who is trusted")
        raise ArgumentError(f"{path}: the archive {name[:12]} {problem}", hints=tuple(hints)) from None
    if head.digest != name:
        raise ArgumentError(f"{path}: the archive {name[:12]} is not of the entry that its name gives")
    return head, data
