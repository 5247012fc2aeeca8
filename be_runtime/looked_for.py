"""What a build depends on that no compiler lists: files that were not there, and those that the linker copies from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from be_toolchain.system import System

from .build.header_search import Question, include_folders, questions
from .build.link_inputs import LinkInputs, link_inputs
from .cache import shadowing_paths
from .options import CompileOptions, Unit
from .tools import INCLUDE_DIR, Tools

_MARK = b"__has_include"
_ARCHIVE_OR_OBJECT = ("\x7fELF", "!<arch>")
_LARGEST_SCRIPT = 1 << 24


class Headers(NamedTuple):
    """What the headers of some units depend on, apart from those that their compilers read.

    Parameters
    ----------
    present : tuple of Path
        Asked for, there, and not read.
    absent : tuple of Path
        Would be found in place of one that was read, or of none.
    """

    present: tuple[Path, ...]
    absent: tuple[Path, ...]


class HeaderSearch(NamedTuple):
    """Where the compilers of a request look for headers.

    Parameters
    ----------
    authors : tuple of Path
        The folders that the author names, in the order of the search.
    tools : tuple of Path
        Ours, XLA's and CUDA's.
    system : tuple of Path
        Where the system's are.
    compilers : tuple of Path
        Where the compiler keeps its own.
    """

    authors: tuple[Path, ...]
    tools: tuple[Path, ...]
    system: tuple[Path, ...]
    compilers: tuple[Path, ...]

    @classmethod
    def of(cls, options: CompileOptions, tools: Tools, system: System) -> HeaderSearch:
        """The search of a request's compilers."""
        listed = [system.environ.get(name, "") for name in ("CPATH", "CPLUS_INCLUDE_PATH")]
        named = (*include_folders(options.cflags), *(path for text in listed for path in text.split(":")))
        cuda = tools.cuda.include_dirs if tools.cuda is not None else ()
        prefix = tools.cxx.path.parent.parent
        own = (prefix / "include", prefix / tools.cxx.target / "include")
        places = (Path("/usr/local/include"), Path(f"/usr/include/{system.machine}-linux-gnu"), Path("/usr/include"))
        return cls(
            authors=(*options.include_paths, *(Path(path) for path in named if path.startswith("/"))),
            tools=(INCLUDE_DIR, *cuda, tools.ffi_include, *tools.library_includes),
            system=tuple(dict.fromkeys((*places, *own))),
            compilers=(Path("/usr/lib"), prefix / "lib", prefix / "lib64"),
        )

    def of_units(self, units: Sequence[Unit], read: Sequence[Path]) -> Headers:
        """What units depend on, given what their compilers read."""
        own = [unit.path.parent for unit in units if unit.path is not None]
        asked = list(_asked(units, self._authors_files(own, read)))
        folders = [str(folder) for folder in (*self.authors, *self.tools, *self.system)]
        present: dict[str, None] = {}
        absent: dict[str, None] = {}
        for folder, question in asked:
            for path in question.candidates(folder, folders):
                if os.path.isfile(path):  # noqa: PTH113 - a Path for each doubles the cost
                    present[path] = None
                    break
                absent[path] = None
        shadowing = shadowing_paths(read, (*own, *self.authors))
        known = set(map(str, read))
        return Headers(
            present=tuple(Path(path) for path in present if path not in known),
            absent=tuple(dict.fromkeys((*shadowing, *map(Path, absent)))),
        )

    def _authors_files(self, own: Sequence[Path], read: Iterable[Path]) -> list[Path]:
        """Those of the files that are the author's: in their folders, or at least in none of the tools' or system's."""
        authors = _prefixes((*own, *self.authors))
        tools = _prefixes(self.tools)
        system = _prefixes((*self.system, *self.compilers))

        def is_authors(path: str) -> bool:
            # A compiler names its own headers relative to itself.
            plain = os.path.normpath(path) if "/../" in path else path
            return not plain.startswith(tools) and (plain.startswith(authors) or not plain.startswith(system))

        return [path for path in read if is_authors(str(path))]


def _prefixes(folders: Iterable[Path]) -> tuple[str, ...]:
    return tuple(f"{str(folder).rstrip('/')}/" for folder in folders)


def _asked(units: Sequence[Unit], files: Iterable[Path]) -> Iterable[tuple[str, Question]]:
    """What the sources and files of an author ask for, each with the folder of the file that asks."""
    inline = [source.text for unit in units if unit.path is None for source in unit.sources]
    found = {("", question): None for text in inline for question in questions(text)}
    for file in dict.fromkeys((*(unit.path for unit in units if unit.path is not None), *files)):
        try:
            status = file.stat()
            asked = _questions_in(file, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        except OSError:
            continue
        found |= {(str(file.parent), question): None for question in asked}
    return found


@lru_cache(maxsize=4096)
def _questions_in(file: Path, *_stat: int) -> tuple[Question, ...]:
    """What a file asks for; the units of a folder include the same headers."""
    content = file.read_bytes()
    return questions(content.decode("utf-8", "surrogateescape")) if _MARK in content else ()


def linked_files(ldflags: Sequence[str], tools: Tools, system: System) -> LinkInputs:
    """What a link depends on beyond the objects that were compiled for it."""
    cuda = tools.cuda.library_dirs if tools.cuda is not None else ()
    variable = [Path(path) for path in system.environ.get("LIBRARY_PATH", "").split(":") if path.startswith("/")]
    prefix = tools.cxx.path.parent.parent
    places = [
        f"{root}/{name}"
        for root in ("/usr/local", "", "/usr", str(prefix).rstrip("/"))
        for name in (f"lib/{system.machine}-linux-gnu", "lib64", "lib")
    ]

    def read(path: Path) -> str | None:
        head = system.read_text(path, 64)
        is_whole = head is None or head.startswith(_ARCHIVE_OR_OBJECT)
        return head if is_whole else system.read_text(path, _LARGEST_SCRIPT)

    folders = (*cuda, *tools.library_dirs, *variable)
    return link_inputs(ldflags, folders, tuple(map(Path, places)), system.list_dir, read)
