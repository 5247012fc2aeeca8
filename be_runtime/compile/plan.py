"""The values of a build: the order, the commands and their graph, and the compilation database for editors.

The database, ``compile_commands.json``, has clang's format: https://clang.llvm.org/docs/JSONCompilationDatabase.html.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

from be_runtime.compile.flags import LinkCommand
from be_runtime.request import build_tools, options
from be_runtime.settings import Settings
from be_runtime.store import cache, index
from be_toolchain import Toolchain
from be_toolchain.machine.system import System
from be_toolchain.named import NamedTuple

SOURCES, OBJECTS = "src", "obj"
LIBRARY = "module.so"
"""The folders of generated sources and of compiler output."""

_SUFFIX = {"cuda": ".cu", "cpp": ".cc"}

FILE = f"{index.IMAGES}/compile_commands.json"
"""Name of the file, in a cache entry and in a project."""


class BuildOrder(NamedTuple):
    """The inputs of a build.

    Parameters
    ----------
    request : BuildRequest
    tools : BuildTools
    toolchain : Toolchain
    system : System
    settings : Settings
    toolchain_store : Cache
        Cache of the toolchain's files: the compiled handler, nvcc's dry runs.
    module_store : Cache
        Cache of modules, and of the objects of a folder's files.
    jobs : int or None
        Number of commands that run at once, if the caller chose one.
    verbose : bool
        True to write the commands and their output to standard error.
    force : bool
        True to make everything again, even if `module_store` has the files.
    shipped : Path or None
        Folder of our compiled files in the package.
    """

    request: options.BuildRequest
    tools: build_tools.BuildTools
    toolchain: Toolchain
    system: System
    settings: Settings
    toolchain_store: cache.Cache
    module_store: cache.Cache
    jobs: int | None
    verbose: bool
    force: bool
    shipped: Path | None = None


class UnitFiles(NamedTuple):
    """The files of one unit.

    Parameters
    ----------
    stem : str
        Beginning of their names, which is unique and needs no quoting for make, ninja and a shell.
    source, object, depfile : str
        Paths relative to the build folder, or absolute.
    """

    stem: str
    source: str
    object: str
    depfile: str


def unit_files(stem: str, language: str) -> UnitFiles:
    """Name the files of an author's unit.

    Parameters
    ----------
    stem : str
        Stem of the unit, which may be any text.
    language : str
        ``"cuda"`` or ``"cpp"``.

    Examples
    --------
    >>> unit_files("k", "cuda").object
    'obj/k.o'
    """
    plain = re.sub(r"[^\w.-]", "_", stem, flags=re.ASCII)
    if plain != stem or stem.startswith("be_"):
        plain = f"{plain}.{sha256(stem.encode(errors='surrogateescape')).hexdigest()[:8]}"
    return files_named(plain, language)


def files_named(stem: str, language: str) -> UnitFiles:
    """Name the files of a stem that needs no quoting; no unit's stem begins with ``be_``."""
    return UnitFiles(
        stem=stem,
        source=f"{SOURCES}/{stem}{_SUFFIX[language]}",
        object=f"{OBJECTS}/{stem}.o",
        depfile=f"{OBJECTS}/{stem}.d",
    )


Tool = Literal[
    "preprocess", "cudafe++", "cicc", "ptxas", "fatbinary", "compile", "assemble", "embed",
    "make preamble", "separate", "device link", "link",
]  # fmt: skip
"""The role of a command in a build. ``compile`` turns a source into an object or its assembly, ``embed`` puts
device code into an object, ``separate`` makes names private to an object."""

LINKING: tuple[Tool, ...] = ("separate", "device link", "link")
"""The commands for the objects of all units."""


class GeneratedFile(NamedTuple):
    """A file that is written before the build starts; `path` is relative to the build folder."""

    path: str
    text: str


class Edge(NamedTuple):
    """One command of the build graph.

    Parameters
    ----------
    argv : tuple of str
        The command; paths in it are absolute or relative to the build folder.
    inputs, outputs : tuple of str
        Files that it reads and writes, relative to the build folder.
    description : str
        Description for the progress line.
    tool : Tool
        Role of the command.
    depfile : str or None
        File in which the command lists the files that it read, in make's format.
    environ : tuple of (str, str)
        Environment variables for this command alone.
    """

    argv: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    description: str
    tool: Tool
    depfile: str | None = None
    environ: tuple[tuple[str, str], ...] = ()


class UnitBuild(NamedTuple):
    """The commands that compile one unit.

    Parameters
    ----------
    unit : UnitFiles
        Files of the unit.
    edges : tuple of Edge
        Commands that make the object; empty if the object exists already.
    files : tuple of GeneratedFile
        Files that the commands expect.
    library_path : str
        ``LD_LIBRARY_PATH`` for the commands; empty leaves it unchanged.
    command : tuple of str
        Compiler and flags as one command, without files, for editors.
    """

    unit: UnitFiles
    edges: tuple[Edge, ...]
    files: tuple[GeneratedFile, ...] = ()
    library_path: str = ""
    command: tuple[str, ...] = ()


class BuildPlan(NamedTuple):
    """A whole build: generated files and the graph of commands.

    Parameters
    ----------
    files : tuple of GeneratedFile
    edges : tuple of Edge
        All commands except the last.
    link : Edge or None
        Command that makes the library from its objects; None if nothing is linked.
    library_path : str
        ``LD_LIBRARY_PATH`` for the commands; empty leaves it unchanged.
    aside : tuple of str
        Files that are made beside the library, for later builds.
    """

    files: tuple[GeneratedFile, ...]
    edges: tuple[Edge, ...]
    link: Edge | None = None
    library_path: str = ""
    aside: tuple[str, ...] = ()

    @property
    def commands(self) -> tuple[Edge, ...]:
        """Return all commands."""
        return self.edges if self.link is None else (*self.edges, self.link)

    @property
    def objects(self) -> tuple[str, ...]:
        """Return the objects that are linked."""
        return () if self.link is None else self.link.inputs


def compile_edge(command: Sequence[str], unit: UnitFiles, description: str) -> Edge:
    """Make the command that compiles a source in one step."""
    return Edge(
        argv=(*command, "-MD", "-MF", unit.depfile, "-c", unit.source, "-o", unit.object),
        inputs=(unit.source,),
        outputs=(unit.object,),
        description=description,
        tool="compile",
        depfile=unit.depfile,
    )


def link_edge(link: LinkCommand, objects: Sequence[str], description: str = "linking") -> Edge:
    """Make the command that links the library from its objects."""
    return Edge(
        argv=(*link.head, *objects, "-o", LIBRARY, *link.tail),
        inputs=tuple(objects),
        outputs=(LIBRARY,),
        description=description,
        tool="link",
    )


def render_commands(commands: Mapping[Path, Sequence[str]]) -> str:
    """Write a compilation database.

    Parameters
    ----------
    commands : mapping of Path to sequence of str
        Compiler and flags for each source, without files.
    """
    entries = [
        {"directory": str(path.parent), "file": str(path), "arguments": [*command, "-c", str(path)]}
        for path, command in commands.items()
    ]
    return json.dumps(entries, indent=1) + "\n"


def merge_commands(databases: Iterable[str]) -> str:
    """Merge several databases into one; the first entry for a file counts.

    Damaged entries and entries for missing files are left out.
    """
    merged: dict[str, object] = {}
    for text in databases:
        try:
            rows = json.loads(text)
        except (ValueError, RecursionError):
            continue
        for row in rows if isinstance(rows, list) else ():
            file = row.get("file") if isinstance(row, dict) else None
            if isinstance(file, str) and _exists(file):
                merged.setdefault(file, row)
    return json.dumps([merged[file] for file in sorted(merged)], indent=1) + "\n"


def _exists(file: str) -> bool:
    try:
        return Path(file).exists()
    except (OSError, ValueError):  # a name that no file can have
        return False
