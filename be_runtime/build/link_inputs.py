"""Which files a linker copies from, and where it looks for them: ``-lfoo`` names one only together with ``-L``. Pure.

A shared library is no such file: it is read again when the module is loaded. Of a linker script, and of a thin archive,
the files that they name are read too: https://sourceware.org/binutils/docs/ld/Implicit-Linker-Scripts.html.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from .libraries import ListFolder, library_version

ReadFile = Callable[[Path], str | None]
"""A file as text, bytes that are none replaced; None when there is no such file."""

_STATIC = frozenset(("-static", "-Bstatic", "-dn", "-non_shared"))
_DYNAMIC = frozenset(("-Bdynamic", "-dy", "-call_shared"))
_SHARED_OBJECT = "\x03"
"""The type in the header of an ELF file, behind its 16 bytes of identification."""

_READING_OPTIONS = frozenset(
    (
        *("T", "script", "dT", "default-script", "version-script", "dynamic-list", "export-dynamic-symbol-list"),
        *("R", "just-symbols", "retain-symbols-file", "symbol-ordering-file", "section-ordering-file"),
    )
)
"""The linker's options that name a file to be read; others, such as ``-Map``, name one that is written."""

_LINKED = re.compile(r"\.(?:a|o|so(?:\.\d+)*|lds?)\Z")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_SCRIPT_WORD = re.compile(r"[^\s(),;]+")
_MEMBERS = re.compile(r"// {40,}\d+ *`\n((?:[^\n]+/\n)+)")
_DEEPEST = 8


class LinkInputs(NamedTuple):
    """What a link depends on.

    Parameters
    ----------
    files : tuple of Path
        What is copied from.
    absent : tuple of Path
        What would be found in their place.
    """

    files: tuple[Path, ...]
    absent: tuple[Path, ...]


def link_inputs(
    ldflags: Sequence[str], folders: Sequence[Path], last: Sequence[Path], list_folder: ListFolder, read: ReadFile
) -> LinkInputs:
    """What the author's linker flags make the linker read.

    Parameters
    ----------
    ldflags : sequence of str
        The author's.
    folders : sequence of Path
        Where a ``-l`` name is looked up after the ``-L`` folders.
    last : sequence of Path
        Where it is looked up after those: the system's folders, to which nothing is expected to come.
    list_folder : callable
        The names in a folder.
    read : callable
        A file as text.
    """
    words = list(_words(ldflags))
    named = [Path(value) for option, value in words if option == "-L" and value.startswith("/")]
    search = _Search((*named, *folders), tuple(last), list_folder, read, {}, {})
    search.follow(words, _DEEPEST)
    return LinkInputs(tuple(search.files), tuple(search.absent))


class _Search(NamedTuple):
    """Where to look, and what was found so far."""

    folders: tuple[Path, ...]
    last: tuple[Path, ...]
    list_folder: ListFolder
    read: ReadFile
    files: dict[Path, None]
    absent: dict[Path, None]

    def follow(self, words: Sequence[tuple[str, str]], depth: int) -> None:
        """Note what the words name, and what that names in turn."""
        static, before = False, ""
        for option, value in words:
            static = value in _STATIC or (static and value not in _DYNAMIC)
            found = self._library(value, static) if option == "-l" else None if option else _path(value, before)
            before = value
            if found is not None and found not in self.files:
                self._note(found, depth)

    def _note(self, path: Path, depth: int) -> None:
        text = self.read(path)
        if text is None or (text.startswith("\x7fELF") and text[16:17] == _SHARED_OBJECT):
            return
        self.files[path] = None
        if depth and not text.startswith(("\x7fELF", "!<arch>")):
            self.follow([*_inner_words(text, path.parent)], depth - 1)

    def _library(self, name: str, static: bool) -> Path | None:
        """The file that ``-l`` means; None for one that is nowhere, or only there with a version, as a shared one."""
        exact = name.startswith(":")
        wanted = [name[1:]] if exact else [f"lib{name}.a"] if static else [f"lib{name}.so", f"lib{name}.a"]
        for folder in dict.fromkeys((*self.folders, *self.last)):
            names = self.list_folder(folder)
            for file in wanted:
                if file in names:
                    return folder / file
                if folder in self.folders:
                    self.absent[folder / file] = None
            if not (exact or static) and any(library_version(each, name) for each in names):
                return None
        return None


def _words(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The linker's words as (``-l`` or ``-L``, value), or ("", word)."""
    flat = [part for flag in flags if flag != "-Xlinker" for part in _parts(flag)]
    rest = iter(flat)
    for word in rest:
        long, _, value = word.removeprefix("--").partition("=")
        if word in ("-l", "-L"):
            yield word, next(rest, "")
        elif word.startswith(("-l", "-L")):
            yield word[:2], word[2:]
        elif word.startswith("--") and long in ("library", "library-path"):
            yield "-l" if long == "library" else "-L", value or next(rest, "")
        else:
            yield "", word


def _parts(flag: str) -> list[str]:
    return flag.split(",")[1:] if flag.startswith("-Wl,") else [flag]


def _path(word: str, before: str) -> Path | None:
    """The absolute path of a file to be read that a word is or names, given the word before it."""
    option, _, value = word.partition("=")
    if not word.startswith("-"):
        value = word.removeprefix("@")
        is_read = word.startswith("@") or _names_input(before) or _LINKED.search(word) is not None
    else:
        is_read = _names_input(option)
    return Path(value) if is_read and value.startswith("/") else None


def _names_input(option: str) -> bool:
    return option.startswith("-") and option.lstrip("-") in _READING_OPTIONS


def _inner_words(text: str, folder: Path) -> Iterator[tuple[str, str]]:
    """The words of a linker script, or the members of a thin archive, which are relative to its folder."""
    if text.startswith("!<thin>"):
        for names in _MEMBERS.findall(text):
            yield from (("", str(folder / member.removesuffix("/"))) for member in names.splitlines())
        return
    for option, word in _words(_SCRIPT_WORD.findall(_COMMENT.sub(" ", text))):
        if option == "-l":
            yield option, word
        elif PurePath(word).suffix in (".a", ".o", ".so"):
            yield from (("", str(folder / word)), *((("-l", f":{word}"),) if "/" not in word else ()))
