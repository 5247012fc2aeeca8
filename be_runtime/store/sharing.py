"""Artifacts for other machines, with movable keys and a list of the inputs of cache entries.

Another machine finds an artifact by its movable key, in which names such as ``<toolkit>`` replace this machine's
folders. The artifact is used only if a build here would read the same inputs.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from be_runtime import errors, own_files
from be_runtime.store import cache, index, keys, publish, signing
from be_runtime.store.artifact import Artifact, open_own, pack, write_images
from be_runtime.store.manifest import NO_FILES, AbsentNames, FileRecord, Files, Manifest, group_absent
from be_toolchain.machine.local_system import stamp_path

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


class Query(NamedTuple):
    """An artifact that stores may have, so that it need not be built.

    Parameters
    ----------
    key : CacheKey
        The movable key, see `movable_key`.
    name : str
        Name for messages.
    has_come : callable
        Returns whether the entry is in this machine's cache by now, since machines may share the cache's folder.
    verify : Verifier, optional
        The trusted keys.
    """

    key: keys.CacheKey
    name: str
    has_come: Callable[[], bool]
    verify: signing.Verifier | None = None


class Store(Protocol):
    """A place that may have an artifact. Its errors stop no load: the caller reports them and asks the next store.

    Attributes
    ----------
    secrets : tuple of str
        Texts that the store may repeat in its answers; no message shows them.
    """

    secrets: tuple[str, ...]

    def describe(self) -> str:
        """Return the store's name for messages, such as ``"https://cache.example.org"``."""

    def get(self, wanted: Query) -> Artifact | None:
        """Return the artifact, or None to build it here.

        Raises
        ------
        LoadError
            The artifact is damaged, or not signed by a key that is trusted here.
        """

    def put(self, wanted: Query, artifact: Artifact) -> None:
        """Store an artifact that was built here, or that came from another store."""


def where_of(store: Store) -> str:
    """Return the place of an artifact from a store, for messages."""
    return f"the artifact from {store.describe()}"


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
        """Replace the nearest root in a path, or in a compiler's flag with a path, by its name; keep other text."""
        flag = next((flag for flag in _FOLDER_FLAGS if text.startswith(f"{flag}/")), "")
        path = text[len(flag) :]
        within = [(folder, name) for folder, name in self.folders if path == folder or path.startswith(f"{folder}/")]
        if not within:
            return text
        folder, name = max(within, key=lambda pair: len(pair[0]))
        return f"{flag}{name}{path[len(folder) :]}"

    def paths(self, named: str) -> tuple[str, ...]:
        """Return the paths on this machine that `name` converts to this text; none if the root is unknown here."""
        if not named.startswith("<"):
            return (named,)
        head, _, rest = named.partition(">")
        return tuple(folder + rest for folder, name in self.folders if name == f"{head}>")

    def named_in(self, data: bytes) -> str:
        """Return the first folder that compiled code contains; empty if it contains none."""
        texts = (re.escape(folder.encode("utf-8", "surrogateescape")) for folder, _ in self.folders)
        found = re.search(rb"(?:" + b"|".join(texts) + rb")(?![\w.+-])", data) if self.folders else None
        return found[0].decode("utf-8", "replace") if found else ""


def key_roots(key: keys.CacheKey, machine: Iterable[tuple[str, str]], folders: Iterable[Path] = ()) -> Roots:
    """Return the roots of a key, which are the author's folders, the toolkit, the compiler, and the machine's roots.

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
    sources = dict.fromkeys(path.rpartition("/")[0] for path in _source_paths(key))
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


def _searched_by_flags(key: keys.CacheKey, toolchain: Mapping[str, str]) -> Iterator[str]:
    """Iterate over the folders that flags and variables such as CPATH name."""
    variables = (value for name, value in toolchain.items() if name.startswith("env."))
    for text in (*key.texts("cflags"), *variables):
        for path in text.split(":"):
            yield path[max(path.find("/"), 0) :].rstrip("/")


def movable_key(key: keys.CacheKey, roots: Roots) -> keys.CacheKey:
    """Return the key of the same build on any machine with the same components."""
    key = keys.CacheKey(key.kind, tuple(field for field in key.fields if field[0] != own_files.HERE))
    texts = {label: key.texts(label) for label, _ in key.fields}
    own = naming_flags(roots, is_cuda=key.texts("language") == ("cuda",))
    flags = key.texts("cflags")
    texts["cflags"] = flags[len(own) if own and flags[: len(own)] == own else _count_naming(flags) :]
    named = {label: [roots.name(text) for text in found] for label, found in texts.items()}
    # A component of the toolchain has a version and a path.
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
    """Count the leading flags of `naming_flags`, from any environment; an author's flags follow them."""
    step = 2 if flags[:1] == ("-Xcompiler",) else 1
    count = 0
    while _NAMING_FLAG.fullmatch("".join(flags[count + step - 1 : count + step])) and (
        step == 1 or flags[count] == "-Xcompiler"
    ):
        count += step
    return count


def _source_paths(key: keys.CacheKey) -> Sequence[str]:
    """Return the paths of the sources; the field has a stem, a path, a name and a text for each source."""
    return key.texts("sources")[1::4]


def unnamed_paths(key: keys.CacheKey) -> tuple[str, ...]:
    """Return the paths in a movable key, one a line, since only machines with equal paths share its entry."""
    fields = [("sources", path) for path in _source_paths(key)]
    fields += [(label, text) for label, _ in key.fields if label not in _AUTHORS for text in key.texts(label)]
    return tuple(dict.fromkeys(f"{label}: {text}" for label, text in fields if _OWN_PATH.search(text)))


class Shareable(NamedTuple):
    """The part of an entry that other machines can use, which is its artifact.

    Parameters
    ----------
    key : CacheKey
        The movable key. Its digest names the artifact outside this machine.
    roots : Roots
        Folders of this machine, with their names.
    functions : str or None
        The list of functions that a build here would write; an artifact of a module with another list is not used.
    """

    key: keys.CacheKey
    roots: Roots
    functions: str | None = None


def pack_entry(folder: Path, manifest: Manifest, share: Shareable, sign: signing.Sign | None = None) -> bytes:
    """Return the artifact of an entry as one file, with its inputs.

    Raises
    ------
    LoadError
        The entry is only for this machine, was removed, or has a file that can't be read.
    """
    name = f"{manifest.name} {manifest.digest[:12]}"
    if manifest.uncertain:
        raise errors.LoadError(
            f"{name} is for one process alone, since {manifest.uncertain[0]} may have changed during the build"
        )
    try:
        artifact = open_own(folder)._replace(is_checked=False)
        images = {digest: artifact.image(digest) for digest in artifact.table.images}
    except OSError as error:
        raise errors.LoadError(f"{name} can't be read: {error.strerror}: {error.filename}") from error
    except errors.LoadError as error:
        raise error if os.path.exists(folder) else errors.LoadError(f"{name} was removed while it was read") from error
    for what, data in (("index", index.render_index(artifact.table).encode()), *images.items()):
        if named := share.roots.named_in(data):
            raise errors.LoadError(f"{name} is for this machine alone: its {what[:12]} names the folder {named}")
    inputs = index.Inputs(
        digest=share.key.digest,
        kind=manifest.kind,
        name=manifest.name,
        dependencies=tuple(_named(manifest.dependencies, share.roots)),
        others=tuple(_named(manifest.others, share.roots)),
        absent=tuple(_absent(manifest.absent, share.roots)),
        host=manifest.made.host,
        seconds=manifest.made.seconds,
    )
    return pack(artifact.table._replace(inputs=inputs), images, sign)


def unpack_entry(artifact: Artifact, share: Shareable, staging: Path, source: str) -> cache.BuildOutput:
    """Write an artifact into a folder as the outputs of a build, if a build here would read the same inputs.

    Parameters
    ----------
    artifact : Artifact
    share : Shareable
        The entry to make.
    staging : Path
        Folder for the outputs.
    source : str
        Place from which the artifact comes, for the entry's record.

    Raises
    ------
    LoadError
        The artifact is of another entry, or was made from files that differ from this machine's.
    """
    began_ns = publish.build_began(str(staging), time.time_ns())
    where, table = artifact.where, artifact.table
    inputs = table.inputs
    if inputs is None or inputs.digest != share.key.digest:
        raise errors.LoadError(f"{where} belongs to another entry")
    if share.functions is not None and [row.get("functions") for row in table.modules.values()] != [share.functions]:
        raise errors.LoadError(f"{where} is damaged: its list of functions differs from a build here")
    try:
        roots = _without_links(share.roots)
        read, others = _local(inputs.dependencies, roots, where), _local(inputs.others, roots, where)
        recorded = cache.Recorded(began_ns, time.time_ns(), _compared({**others, **read}, where))
        absent = _absent_here(inputs.absent, roots, where)
        images = {digest: artifact.image(digest) for digest in table.images}
        names = write_images(staging, table._replace(inputs=None), images)
    except (OSError, ValueError) as error:  # such as a folder instead of a header, or a name that is not valid here
        raise errors.LoadError(f"{where} can't be used here: {error}") from error
    return cache.BuildOutput(names, tuple(read), tuple(others), absent, recorded, source=source)


def _compared(files: Mapping[str, str], where: str) -> dict[str, FileRecord]:
    """Record files of this machine after a comparison of their hashes.

    An artifact may name any file, so large files, devices and the kernel's files are refused. Devices and the kernel's
    files are no inputs of a build, and opening some of them has effects.
    """
    records, until = {}, time.monotonic() + _PATIENCE_S
    for path, digest in files.items():
        stamp = None if NO_FILES.match(os.path.realpath(path)) else stamp_path(path)
        record = publish.record_dependency(path) if stamp is not None and stamp.size_bytes <= _LARGEST_INPUT else None
        if record is None or record.sha256 != digest:
            raise errors.LoadError(f"{where} was built with another {path} than the one here")
        if time.monotonic() > until:
            raise errors.LoadError(f"{where} has more inputs than can be compared in {_PATIENCE_S:g} s")
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


def _local(files: Iterable[tuple[str, str]], roots: Roots, where: str) -> dict[str, str]:
    """Return paths of this machine and their expected hashes; of paths with one name, all that exist may be read."""
    found: dict[str, str] = {}
    for named, digest in files:
        paths = roots.paths(named)
        if not paths:
            raise errors.LoadError(f"{where} was built with {named}, a folder that is not here")
        found |= dict.fromkeys([*filter(os.path.exists, paths)] or paths[:1], digest)
    return found


def _absent(rows: Sequence[AbsentNames], roots: Roots) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Iterate over the absent names of a manifest, see `Inputs.absent`."""
    first = {row.inode: at for at, row in reversed([*enumerate(rows)])}
    for row in rows:  # each existing folder has an inode
        yield roots.name(row.folder), first[row.inode], row.names


def _absent_here(rows: Sequence[tuple[str, int, tuple[str, ...]]], roots: Roots, where: str) -> tuple[str, ...]:
    """Return the paths that must be absent here, after a check that they are.

    Folders that were one folder on the machine of the build must be one here, since compilers search a folder once.
    """
    folders = [roots.paths(named) for named, *_ in rows]
    if not all(folders):
        raise errors.LoadError(f"{where} was built with folders that are not here")
    paths = tuple(
        f"{folder.rstrip('/')}/{name}"
        for found, (_, _, names) in zip(folders, rows, strict=True)
        for folder in found
        for name in (*names, ".")
    )
    present = group_absent(paths)[1]
    if present:
        raise errors.LoadError(f"{where} was built where there is no {present[0]}")
    inodes = [next(filter(None, map(_inode, found)), 0) for found in folders]
    pairs = {(row[1], inode) for row, inode in zip(rows, inodes, strict=True) if inode}
    if not len(pairs) == len({same for same, _ in pairs}) == len({inode for _, inode in pairs}):
        raise errors.LoadError(f"{where} was built where other folders are links to one another")
    return paths


def _inode(folder: str) -> int:
    """Return the inode of a folder; 0 if it does not exist."""
    try:
        return Path(folder).stat().st_ino
    except (OSError, ValueError):
        return 0
