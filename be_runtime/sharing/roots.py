"""Names for the folders in which machines differ, so that builds of two machines have one key. Pure.

A path below a *root* is written with the root's name: ``<site>/jaxlib/include``. What is not below a root stays as it
is, and machines on which it differs do not share the entry. The text of sources stays as it is too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.cache import CacheKey
from be_runtime.own_files import HERE

_COMMON = frozenset({"", "/", "/usr", "/usr/local", "/opt"})
"""Folders that are too common for a name of their own."""

_SEARCHED = ("/usr/include", "/usr/local/include")
"""Folders that compilers search unasked."""

_FOLDER_FLAGS = ("-I", "-L", "-isystem", "-iquote", "-idirafter")
_DEBUG_FLAG = re.compile(r"-g(gdb|dwarf)?[-\d]*|-G|-lineinfo|--device-debug|--generate-line-info|-pg|--coverage")
"""Flags by which compiled code names the folders of its sources."""


_OWN_PATH = re.compile(r"(?:^--?[A-Za-z]+|(?<![\w>.]))/(?!usr/|lib|bin/|sbin/|etc/|opt/)[\w.+-]+/")
"""A path that is not below a folder that all machines have."""

_NAMING_FLAG = re.compile(
    r"'?-ffile-prefix-map=/.*=<(?:python|site|toolkit|compiler|(?:include|source) \d+)>'?", re.DOTALL
)
"""A flag of `naming_flags`, of any machine."""

_AUTHORS = ("sources", "source", "expression")
"""Labels of an author's texts."""


class Roots(NamedTuple):
    """Folders and their names.

    Parameters
    ----------
    folders : tuple of (str, str)
        Paths and names. Several paths may have one name, such as the folders of installed Python packages.

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
        """Write a path, or a compiler's flag with one, by the name of its nearest root; other text stays."""
        flag = next((flag for flag in _FOLDER_FLAGS if text.startswith(f"{flag}/")), "")
        path = text[len(flag) :]
        within = [(folder, name) for folder, name in self.folders if path == folder or path.startswith(f"{folder}/")]
        if not within:
            return text
        folder, name = max(within, key=lambda pair: len(pair[0]))
        return f"{flag}{name}{path[len(folder) :]}"

    def paths(self, named: str) -> tuple[str, ...]:
        """Return the paths here that `name` may have been given; none if the root is unknown here."""
        if not named.startswith("<"):
            return (named,)
        head, _, rest = named.partition(">")
        return tuple(folder + rest for folder, name in self.folders if name == f"{head}>")

    def named_in(self, data: bytes) -> str:
        """Return the first folder that occurs in compiled code; empty if there is none."""
        texts = (re.escape(folder.encode("utf-8", "surrogateescape")) for folder, _ in self.folders)
        found = re.search(rb"(?:" + b"|".join(texts) + rb")(?![\w.+-])", data) if self.folders else None
        return found[0].decode("utf-8", "replace") if found else ""


def key_roots(key: CacheKey, machine: Iterable[tuple[str, str]], folders: Iterable[Path] = ()) -> Roots:
    """Return the roots of a key: the author's folders, the toolkit, the compiler, and those of the machine.

    An author's folder below another one that may be searched has no name of its own. A file in it is found by either,
    so machines share it only if one lies in the other in the same way.

    Parameters
    ----------
    key : CacheKey
        A key with the fields of a module's, or some of them.
    machine : iterable of (str, str)
        Paths and names that do not depend on the key.
    folders : iterable of Path
        Folders of headers, besides those in the key.
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
    authors = [(folder, name) for folder, name in authors if not _is_below(folder, above[name.partition(" ")[0]])]
    return Roots(tuple(_distinct((*authors, *named))))


def _searched_by_flags(key: CacheKey, toolchain: Mapping[str, str]) -> Iterator[str]:
    """Return the folders that flags and variables such as CPATH name."""
    variables = (value for name, value in toolchain.items() if name.startswith("env."))
    for text in (*key.texts("cflags"), *variables):
        for path in text.split(":"):
            yield path[max(path.find("/"), 0) :].rstrip("/")


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _distinct(folders: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Return each folder once, with the first of its names; without those that are on every machine."""
    seen = set(_COMMON)
    for folder, name in folders:
        if folder not in seen:
            seen.add(folder)
            yield folder, name


def movable_key(key: CacheKey, roots: Roots) -> CacheKey:
    """Return the key of the same build on any machine with the same components."""
    key = CacheKey(key.kind, tuple(field for field in key.fields if field[0] != HERE))
    own = naming_flags(roots, is_cuda=key.texts("language") == ("cuda",))

    def named(label: str, texts: tuple[str, ...]) -> Sequence[str]:
        if label == "cflags":
            texts = texts[len(own) if own and texts[: len(own)] == own else _count_naming(texts) :]
        if label == "toolchain":  # a component is its version and its path
            parts = (text.partition(" ") if text[:1].isdigit() else ("", "", text) for text in texts)
            return [f"{version}{space}{roots.name(path)}" for version, space, path in parts]
        return [roots.name(text) for text in texts]

    return key.with_texts(named)


def naming_flags(roots: Roots, *, is_cuda: bool) -> tuple[str, ...]:
    """Return the compiler's flags by which code says a root's name where it would say its path, as in ``__FILE__``.

    See https://gcc.gnu.org/onlinedocs/gcc/Overall-Options.html#index-ffile-prefix-map; the last that fits counts.
    A folder with a comma has none for CUDA, where `-Xcompiler` splits them: code that says its path is not shared.
    """
    folders = [pair for pair in sorted(roots.folders) if not (is_cuda and "," in pair[0])]
    flags = [f"-ffile-prefix-map={folder}={name}" for folder, name in folders]
    return tuple(part for flag in flags for part in ("-Xcompiler", shlex.quote(flag))) if is_cuda else tuple(flags)


def _count_naming(flags: Sequence[str]) -> int:
    """Count the first flags that `naming_flags` gave, in whichever environment: an author's flags come after them."""
    step = 2 if flags[:1] == ("-Xcompiler",) else 1
    count = 0
    while _NAMING_FLAG.fullmatch("".join(flags[count + step - 1 : count + step])) and (
        step == 1 or flags[count] == "-Xcompiler"
    ):
        count += step
    return count


def unnamed_paths(key: CacheKey) -> tuple[str, ...]:
    """Return lines about paths in a movable key: only machines that have the same share its entry."""
    fields = ((label, text) for label, _ in key.fields if label not in _AUTHORS for text in key.texts(label))
    return tuple(dict.fromkeys(f"{label}: {text}" for label, text in fields if _OWN_PATH.search(text)))
