"""The parts of a build, as values: files to write, and commands to run with their inputs and outputs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from be_runtime.compile.plan.unit_files import UnitFiles

Tool = Literal[
    "preprocess", "cudafe++", "cicc", "ptxas", "fatbinary", "compile", "assemble", "embed",
    "make preamble", "separate", "device link", "link",
]  # fmt: skip
"""The role of a command in a build. ``compile`` reads a source and makes an object or its assembly, ``embed`` puts
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
        Files it reads and writes, relative to the build folder.
    description : str
        Description for the progress line.
    tool : Tool
        Role of the command.
    depfile : str or None
        File in which it lists the files it read, in make's format.
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
        Commands that make the object; none if it exists already.
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
        Files made beside the library, for later builds.
    """

    files: tuple[GeneratedFile, ...]
    edges: tuple[Edge, ...]
    link: Edge | None = None
    library_path: str = ""
    aside: tuple[str, ...] = ()

    @property
    def commands(self) -> tuple[Edge, ...]:
        """All commands."""
        return self.edges if self.link is None else (*self.edges, self.link)

    @property
    def objects(self) -> tuple[str, ...]:
        """The objects that are linked."""
        return () if self.link is None else self.link.inputs
