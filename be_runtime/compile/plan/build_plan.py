"""What a build consists of, as values: files to write, commands to run and what they read and write."""

from __future__ import annotations

from typing import NamedTuple


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
    depfile : str or None
        Where it lists the files it read, in make's format.
    environ : tuple of (str, str)
        Variables for this command alone.
    """

    argv: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    description: str
    depfile: str | None = None
    environ: tuple[tuple[str, str], ...] = ()


class UnitBuild(NamedTuple):
    """The commands that compile one unit.

    Parameters
    ----------
    edges : tuple of Edge
        The last one makes the object.
    files : tuple of GeneratedFile
        What they expect to be there, apart from the unit's source.
    library_path : str
        ``LD_LIBRARY_PATH`` for them; empty leaves it as it is.
    command : tuple of str
        The compiler and its flags as one command, without files, as an editor wants to know them.
    """

    edges: tuple[Edge, ...]
    files: tuple[GeneratedFile, ...] = ()
    library_path: str = ""
    command: tuple[str, ...] = ()

    @property
    def depfiles(self) -> tuple[str, ...]:
        """Every depfile that the commands write."""
        return tuple(edge.depfile for edge in self.edges if edge.depfile is not None)


class BuildPlan(NamedTuple):
    """A whole build: generated files and the graph of commands.

    Parameters
    ----------
    files : tuple of GeneratedFile
    edges : tuple of Edge
        The last one makes the library.
    library_path : str
        ``LD_LIBRARY_PATH`` for the commands; empty leaves it as it is.
    aside : tuple of str
        What is made beside the library, for later builds.
    """

    files: tuple[GeneratedFile, ...]
    edges: tuple[Edge, ...]
    library_path: str = ""
    aside: tuple[str, ...] = ()
