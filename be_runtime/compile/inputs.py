"""The inputs of a build: the files that its commands opened or searched for, even in vain.

A small library that is preloaded into compilers and linkers records the files (``native/looked_at.c``). It records
files that no depfile lists: missing headers, the assembler and the folders of its search, archives, linker scripts,
files of ``@`` and ``-specs=``. Depfiles are used instead if the library can't be loaded, as in a static program, or
would record the work of another program, as with ccache.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from be_runtime import errors, own_files
from be_runtime.compile.plan import BuildOrder, BuildPlan, Edge
from be_runtime.store import cache, keys
from be_runtime.store.folder import find_base
from be_runtime.store.manifest import NO_FILES, Manifest, absent_paths, shadowing_paths
from be_toolchain.find.record import ObservingSystem
from be_toolchain.machine.local_system import stamp_path
from be_toolchain.named import NamedTuple

_WORD = re.compile(r"(?:\\[\s\S]|\$\$|[^ \\])+")
_ESCAPE = re.compile(r"((?:\\\\)*)\\([ \t])|\\([#:])|\$(\$)")

_ASKED = r"\b__has_include(?:_next)?[ \t]*\([ \t]*(?:[<\"]([^>\"\n]+)[>\"])?"
_OPTIONS = (
    ("-iquote",),
    ("-I", "--include-path"),
    ("-isystem", "--system-include"),
    ("-idirafter",),
)
"""Options that name folders, in the order in which the folders are searched."""

CACHING_PROGRAMS = frozenset(("buildcache", "ccache", "clcache", "distcc", "icecc", "sccache"))
"""Programs that answer in place of a compiler, and so open other files."""

_SOURCE = own_files.NATIVE_DIR / "looked_at.c"
_LOG = "BE_LOOKED_AT"
_LIBRARY, _NONE = "looked_at.so", "none"
_TEMPORARY = ("TMPDIR", "TMP", "TEMP", "TEMPDIR")
_LOST = re.compile(
    r"be_runtime: records of files are lost|from LD_PRELOAD cannot be preloaded \(cannot (open|stat|read) "
)
_REFUSED = re.compile(r"[\s:;$]")
"""Characters that a path in ``LD_PRELOAD`` can't contain."""

_LISTS_LIBRARIES = "ld.gold"
"""The linker that lists the folders of libraries instead of looking up each name."""


def parse_depfile(text: str) -> tuple[str, ...]:
    r"""Return the prerequisites of every rule, in order, each once.

    Parameters
    ----------
    text : str
        A depfile.

    Examples
    --------
    >>> parse_depfile("k.o: k.cu \\\n /opt/my\\ dir/a.h\nk.o: k.cu b.h\n")
    ('k.cu', '/opt/my dir/a.h', 'b.h')
    """
    found: dict[str, None] = {}
    for rule in text.replace("\\\n", " ").split("\n"):
        words = _WORD.findall(rule)
        target = next((index for index, word in enumerate(words) if word.endswith(":")), None)
        if target is None:
            continue
        for word in words[target + 1 :]:
            found[_ESCAPE.sub(_unescaped, word)] = None
    return tuple(found)


def _unescaped(escaped: re.Match[str]) -> str:
    """Return the text of an escape."""
    backslashes, blank, sign, dollar = escaped.groups()
    return backslashes[::2] + blank if blank else sign or dollar


def read_from_outside(depfiles: Iterable[str], folder: Path) -> tuple[Path, ...]:
    """Return the files outside of a build folder that its compilers read, in order, without repeats.

    Parameters
    ----------
    depfiles : iterable of str
        Relative to the build folder.
    folder : Path
        The build folder.
    """
    read: dict[str, None] = {}
    for depfile in depfiles:
        text = (folder / depfile).read_bytes().decode("utf-8", "surrogateescape")
        read |= dict.fromkeys(parse_depfile(text))
    return tuple(_path(path) for path in read if path.startswith("/") and not path.startswith(f"{folder}/"))


@lru_cache(maxsize=4096)
def _path(text: str) -> Path:
    """Return one `Path` object for equal texts, since units read the same headers and an object caches its hash."""
    return Path(text)


def names_asked_for(text: str) -> tuple[str, ...]:
    """Return the headers that ``__has_include`` names in a text; the name is empty if it is a macro.

    Examples
    --------
    >>> names_asked_for("#if __has_include(<tbb/tbb.h>) || __has_include(CONFIG)")
    ('tbb/tbb.h', '')
    """
    return tuple(re.findall(_ASKED, text)) if "__has_include" in text else ()


def include_folders(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the folders that a compiler's flags name, in the order of the search.

    Examples
    --------
    >>> include_folders(["-isystem", "/c", "-I/a", "--include-path=/b"])
    ('/a', '/b', '/c')
    """
    found: dict[str, None] = {}
    for options in _OPTIONS:
        for flag, following in zip(flags, (*flags[1:], ""), strict=False):
            option = next((option for option in options if flag.startswith(option)), None)
            if option is not None:
                found[flag.removeprefix(option).removeprefix("=") or following] = None
    return tuple(folder for folder in found if folder.startswith("/"))


class Records(NamedTuple):
    """Paths that programs opened or searched for, in order, without repeats.

    Parameters
    ----------
    programs : tuple of str
        Programs that ran.
    there : tuple of str
        Files and folders that existed, including the programs.
    absent : tuple of str
        Paths that did not exist.
    listed : tuple of str
        Folders that were listed.
    made : tuple of str
        Files that programs wrote, made or removed; these are neither in `there` nor in `absent`.
    """

    programs: tuple[str, ...] = ()
    there: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    made: tuple[str, ...] = ()


def parse_records(data: bytes, outside: Iterable[str]) -> Records:
    r"""Parse the records that the programs of a build wrote.

    Parameters
    ----------
    data : bytes
        The records of all programs.
    outside : iterable of str
        Folders whose files are ignored, such as the build's own.

    Examples
    --------
    >>> parse_records(b"x/bin/cc\0-/a/k.h\0+/b/k.h\0w/tmp/k.s\0+/tmp/k.s\0+/build/k.cc\0", ["/build"])
    Records(programs=('/bin/cc',), there=('/bin/cc', '/b/k.h'), absent=('/a/k.h',), listed=(), made=('/tmp/k.s',))
    >>> parse_records(b"+/dev/null\0+/dev/shm/libx.a\0", ["/build"]).there
    ('/dev/shm/libx.a',)
    """
    found: dict[str, dict[str, None]] = {kind: {} for kind in "x+-lw"}
    skipped = tuple(f"{folder.rstrip('/')}/" for folder in outside)
    for record in dict.fromkeys(data.decode("utf-8", "surrogateescape").split("\0")):
        kind, path = record[:1], _normalized(record[1:])
        if kind in found and path.startswith("/") and not path.startswith(skipped) and not NO_FILES.match(path):
            found[kind][path] = None
    made, programs = found["w"], found["x"]
    there = {path: None for path in (*programs, *found["+"], *found["l"]) if path not in made}
    absent = {path: None for path in found["-"] if path not in made and path not in there}
    return Records(tuple(programs), tuple(there), tuple(absent), tuple(found["l"]), tuple(made))


def library_names(files: Iterable[str], folders: Iterable[str]) -> Iterator[str]:
    """Return the paths at which a linker would find another library in place of one that it read.

    Examples
    --------
    >>> list(library_names(["/b/libm.so", "/b/crt1.o"], ["/a"]))
    ['/a/libm.so', '/a/libm.a']
    """
    names = {path.rpartition("/")[2] for path in files if ".so" in path or path.endswith(".a")}
    wanted = {name: None for each in sorted(names) for name in (each, *_siblings(each))}
    return (f"{folder}/{name}" for folder in folders for name in wanted)


def _siblings(name: str) -> tuple[str, ...]:
    """Return the name of the other file that the same ``-l`` may find."""
    stem, ending = name.rpartition(".")[::2]
    return tuple(f"{stem}.{other}" for other in ("so", "a") if {ending, other} == {"so", "a"})


def _normalized(path: str) -> str:
    """Return a path without repeated slashes, and without a final dot or slash."""
    if "//" in path:
        path = re.sub("//+", "/", path)
    return path.removesuffix("/.").rstrip("/")


class LookedAt(NamedTuple):
    """The files and absent paths that determine the result of a build.

    Parameters
    ----------
    read : tuple of str
        Sources and headers, as compilers list them.
    others : tuple of str
        Further files that existed; a folder that was listed ends with a slash, and with ``/.`` if only the names of
        libraries count.
    absent : tuple of str
        Paths without a file; a path where there was a folder ends with ``/.``.
    """

    read: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """All files that existed."""
        return (*self.read, *self.others)

    @classmethod
    def merged(cls, parts: Iterable[LookedAt]) -> LookedAt:
        """Merge the inputs of several parts of a build."""
        every = list(parts)
        read = dict.fromkeys(path for part in every for path in part.read)
        others = dict.fromkeys(path for part in every for path in part.others if path not in read)
        return cls(tuple(read), tuple(others), tuple(dict.fromkeys(path for part in every for path in part.absent)))

    @classmethod
    def of(cls, manifest: Manifest) -> LookedAt:
        """Return the inputs of a cache entry, from its manifest."""
        return cls(manifest.dependencies.paths, manifest.others.paths, absent_paths(manifest.absent))

    @classmethod
    def of_listings(cls, system: ObservingSystem) -> LookedAt:
        """Return the folders that were listed to find libraries."""
        there = {path: stamp is not None and stamp.is_dir for path, stamp in system.listed.items()}
        listed = tuple(f"{path}/." for path, is_folder in there.items() if is_folder)
        return cls(others=listed, absent=tuple(path for path, is_folder in there.items() if not is_folder))


def is_incomplete(output: str) -> bool:
    """Return whether a command's output reports lost records, for example on a full disk."""
    return _LOST.search(output) is not None


class Observer:
    """Observer of the commands of one build; the toolchain's store keeps the preloaded library.

    Parameters
    ----------
    order : BuildOrder
        Files in its stores are ignored.
    staging : Path
        The build folder.
    """

    def __init__(self, order: BuildOrder, staging: Path) -> None:
        request, environ = order.request, order.system.environ
        roots = (str(staging), *(find_base(str(store.root)) for store in (order.toolchain_store, order.module_store)))
        self._staging = staging
        self._library = _find_library(order)
        self._preloaded = environ.get("LD_PRELOAD", "")
        self._launcher = order.settings.compiler_launcher
        self._outside = tuple(dict.fromkeys((*roots, *map(os.path.realpath, roots))))
        # Listings of temporary folders are ignored, since nvcc and ptxas list them.
        variables = (environ.get(name, "").rstrip("/") for name in _TEMPORARY)
        self._temporary = ("/tmp", "/var/tmp", *variables)  # noqa: S108
        # Folders that are searched first for headers, for commands that can't be watched.
        self._folders = (
            *(unit.path.parent for unit in request.units if unit.path is not None),
            *request.compile.include_paths,
            *map(Path, include_folders(request.compile.cflags)),
        )

    def watch(self, plan: BuildPlan) -> BuildPlan:
        """Return the plan with the library preloaded into its commands."""
        if not self._library:
            return plan
        link = None if plan.link is None else self._watched(plan.link)
        return plan._replace(edges=tuple(map(self._watched, plan.edges)), link=link)

    def _watched(self, edge: Edge) -> Edge:
        if self._launcher and edge.tool == "compile":
            return edge
        # The user's libraries come first, since AddressSanitizer's library must be the first.
        preload = f"{self._preloaded}:{self._library}".lstrip(":")
        return edge._replace(environ=(("LD_PRELOAD", preload), (_LOG, str(self._log(edge)))))

    def looked_at(self, edges: Iterable[Edge]) -> LookedAt:
        """Return the inputs of commands that have run."""
        return LookedAt.merged(map(self._inputs_of, edges))

    def _inputs_of(self, edge: Edge) -> LookedAt:
        files = read_from_outside((edge.depfile,) if edge.depfile is not None else (), self._staging)
        try:
            records = parse_records(self._log(edge).read_bytes(), self._outside)
        except FileNotFoundError:
            records = Records()
        listed = tuple(path for path in map(str, files) if path not in records.made)
        caching = CACHING_PROGRAMS.intersection(path.rpartition("/")[2] for path in records.programs)
        if listed and caching:
            return self._depfile(listed)
        seen = _inputs_from(records, listed, self._temporary)
        # A script or another program may hide the files that the compiler looked at.
        is_hidden = set(records.there).isdisjoint(listed)
        return LookedAt.merged((seen, self._depfile(listed))) if is_hidden else seen

    def _depfile(self, listed: Sequence[str]) -> LookedAt:
        """Return the files that a depfile lists, and the absent paths at which other headers would come first."""
        absent = shadowing_paths(map(Path, listed), self._folders)
        return LookedAt(read=tuple(listed), absent=tuple(map(str, absent)))

    def _log(self, edge: Edge) -> Path:
        return self._staging / f"{edge.outputs[0]}.looked_at"


def _inputs_from(records: Records, read: tuple[str, ...], temporary: tuple[str, ...]) -> LookedAt:
    """Derive the inputs from records, the files that a depfile lists, and the files that exist now."""
    files, absent, folders = dict.fromkeys(read), dict.fromkeys(records.absent), []
    for path in records.there:
        status = None if path in files else stamp_path(path)
        if status is not None and status.is_dir:
            folders.append(path)
        elif status is not None:
            files[path] = None
    if any(program.endswith(_LISTS_LIBRARIES) for program in records.programs):
        absent |= dict.fromkeys(path for path in library_names(files, records.listed) if stamp_path(path) is None)
    else:
        # Folders that the build itself changes, and temporary folders, are not inputs.
        changed = {*temporary, *(path.rpartition("/")[0] for path in records.made)}
        files |= {f"{path}/": None for path in records.listed if path not in changed}
    return LookedAt(read, tuple(files)[len(read) :], (*absent, *(f"{path}/." for path in folders)))


class _NoLibraryError(Exception):
    """The library can't be compiled now, so the cache keeps nothing."""


def _find_library(order: BuildOrder) -> str:
    """Return the path of the preloaded library; empty if the compiler's programs can't load it."""
    compiler, system, store = order.tools.cxx, order.system, order.toolchain_store
    command = (str(compiler.path), "-x", "c", "-shared", "-fPIC", str(_SOURCE), "-o")
    fields = ("command", [*map(own_files.by_name, command)]), ("toolchain", order.toolchain.fingerprint)
    shipped = order.shipped / _LIBRARY if order.shipped is not None else None
    key = keys.make_key("native", ("name", _SOURCE.stem), *fields, ("shipped", str(shipped and shipped.parent.name)))

    def build(staging: Path) -> cache.BuildOutput:
        library, log = staging / _LIBRARY, staging / "log"
        if shipped is not None:
            shutil.copyfile(shipped, library)
        elif system.run((*command, str(library), "-Wl,--as-needed", "-ldl")).returncode != 0:
            raise _NoLibraryError
        tried = ("env", f"LD_PRELOAD={library}", f"{_LOG}={log}", str(compiler.path), "--version")
        found = system.run(tried)
        if found.returncode == 0 and log.is_file():
            return cache.BuildOutput(outputs=(_LIBRARY,), dependencies=(_SOURCE,))
        if is_incomplete(found.stderr):
            raise errors.CacheError(
                f"the files that compilers look at can't be recorded below {staging}: {found.stderr.strip()}"
            )
        (staging / _NONE).touch()
        return cache.BuildOutput(outputs=(_NONE,), dependencies=(_SOURCE,))

    if _REFUSED.search(str(store.root)):
        return ""
    try:
        entry = store.get_or_build(key, build)
    except _NoLibraryError:
        return ""
    return str(entry.output(_LIBRARY)) if _LIBRARY in entry.manifest.outputs.paths else ""
