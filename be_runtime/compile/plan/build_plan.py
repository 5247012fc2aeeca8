"""What a build consists of, as values: files to write, commands to run and what they read and write."""

from __future__ import annotations

from typing import Literal, NamedTuple

from be_runtime.compile.plan.unit_files import UnitFiles

Tool = Literal[
    "preprocess", "cudafe++", "cicc", "ptxas", "fatbinary", "compile", "assemble", "embed",
    "make preamble", "separate", "device link", "link",
]  # fmt: skip
"""The part that a command has in a build. ``compile`` reads a source and makes an object or its assembly, ``embed``
puts device code into an object, ``separate`` makes names private to an object."""

LINKING: tuple[Tool, ...] = ("separate", "device link", "link")
"""What is done with the objects of all units."""


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
        What it reads and writes, relative to the build folder.
    description : str
        For the progress line: what is being made.
    tool : Tool
        What the command does.
    depfile : str or None
        Where it lists the files it read, in make's format.
    environ : tuple of (str, str)
        Variables for this command alone.
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
        The unit's own files.
    edges : tuple of Edge
        They make the object; none where it is in its place already.
    files : tuple of GeneratedFile
        What they expect to be there.
    library_path : str
        ``LD_LIBRARY_PATH`` for them; empty leaves it as it is.
    command : tuple of str
        The compiler and its flags as one command, without files, as an editor wants to know them.
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
        All commands but the last.
    link : Edge or None
        The command that makes the library from its objects; None where nothing is linked.
    library_path : str
        ``LD_LIBRARY_PATH`` for the commands; empty leaves it as it is.
    aside : tuple of str
        What is made beside the library, for later builds.
    """

    files: tuple[GeneratedFile, ...]
    edges: tuple[Edge, ...]
    link: Edge | None = None
    library_path: str = ""
    aside: tuple[str, ...] = ()

    @property
    def commands(self) -> tuple[Edge, ...]:
        """Every command."""
        return self.edges if self.link is None else (*self.edges, self.link)

    @property
    def objects(self) -> tuple[str, ...]:
        """What is linked."""
        return () if self.link is None else self.link.inputs
