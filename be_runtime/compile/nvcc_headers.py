"""The text and macros of the headers in the preamble: written once for its cache entry, and checked at each use."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from be_runtime.compile.execute import Runner
from be_runtime.compile.inputs import include_folders, names_asked_for
from be_runtime.compile.plan import OBJECTS, BuildOrder, BuildPlan, Edge, UnitBuild, files_named
from be_runtime.errors import BuildError
from be_runtime.own_files import INCLUDE_DIR
from be_runtime.store.cache import Entry
from be_toolchain.machine.system import System

UNIT = files_named("be_preamble", "cuda")
"""The files of the empty source whose commands make the preamble."""

FOLDER = f"{OBJECTS}/{UNIT.stem}"
MESSAGES = f"{FOLDER}/messages"
"""File with the messages of the preprocessors."""

_ASKED, _ENVIRONMENT = "asked", "environment"
_LOCAL = "/usr/local/include"
"""The system's folder that is searched first."""

_NOT_COMPILERS = re.compile(r"(?:BE|JAX|XLA|PYTEST)_.*|(?:OLD)?PWD|SHLVL|_")
"""Variables that differ between a user's processes, and that no compiler's wrapper reads."""

_MARKER = re.compile(r'# (\d+) "((?:[^"\\]|\\.)*)"([ 1-4]*)')
_DIRECTIVE = re.compile(r"#(?:define|undef) ([^\s(]+)")
_GIVEN = ("<built-in>", "<command-line>")
"""File names in the markers before macros that the preprocessor always defines."""

_STATEFUL = re.compile(
    r"\bpragma\b.*\bonce\b|_Pragma.*\bonce\b|\b(?:push|pop)_macro\b|\b__(?:COUNTER|DATE|TIME|TIMESTAMP)__\b"
)
"""Directives that affect the rest of the source otherwise than by macros, and macros whose text differs each time."""

_FOLDER = re.compile(r'# \d+ ".*//"')
_HEADER = "cuda_runtime.h"
_SEARCHED = ("-I", "-isystem")
_NOT_UNDERSTOOD = (
    *("--", "@", "-imacros", "-iquote", "-idirafter", "-iprefix", "-iwithprefix", "-isysroot", "-nostdinc"),
    *("-B", "-specs", "-I-", "-finput-charset", "-M"),
)
"""Options that change the files that are read, or their reading; ``-MD`` and ``-MF`` are our own."""


def is_understood(argv: Sequence[str], is_known: Callable[[str], bool]) -> bool:
    """Return whether a preprocessor reads only CUDA's and the system's headers before the source.

    Parameters
    ----------
    argv : sequence of str
        The preprocessor's command.
    is_known : callable
        Function that returns whether a folder belongs to the tools, or is checked otherwise.

    Examples
    --------
    >>> argv = ["g++", "-E", "-I/cuda/include", "-include", "cuda_runtime.h", "k.cu"]
    >>> is_understood(argv, {"/cuda/include"}.__contains__), is_understood([*argv, "-I/mine"], set().__contains__)
    (True, False)
    """
    own = {"-MD", "-MF"}
    if any(part.startswith(_NOT_UNDERSTOOD) and part not in own for part in argv[1:]):
        return False
    for part, following in zip(argv, (*argv[1:], ""), strict=True):
        option = next((option for option in _SEARCHED if part.startswith(option)), None)
        if option is not None and not is_known(part.removeprefix(option) or following):
            return False
        if part.startswith("-include") and (part, following) != ("-include", _HEADER):
            return False
    return True


def headers_text(preprocessed: str, source: str) -> str | None:
    r"""Return the preprocessed text of the headers before a source.

    Parameters
    ----------
    preprocessed : str
        The preprocessor's output for an empty source.
    source : str
        The source's name.

    Returns
    -------
    str or None
        None if the text of the source is missing, or if the text of the headers names the source or the build folder.

    Examples
    --------
    >>> headers_text('# 0 "k.cu"\n# 1 "a.h" 1\nint a;\n# 1 "k.cu"\n\n', "k.cu")
    '# 1 "a.h" 1\nint a;\n'
    """
    _, _, rest = preprocessed.partition("\n")
    text, found, own = rest.partition(f'\n# 1 "{source}"')
    names_this_build = source in text or _FOLDER.search(text) is not None
    if not found or own.strip() or names_this_build or "\n#define " in text:
        return None
    return f"{text}\n"


def header_macros(defines: str) -> str:
    """Return the macros that headers define, with their locations, as a file for ``-imacros``.

    Parameters
    ----------
    defines : str
        The output of ``-E -dD``.
    """
    kept: list[str] = []
    line, file, system = 1, _GIVEN[0], ""
    after = (0, "", "")
    for text in defines.split("\n"):
        marker = _MARKER.fullmatch(text)
        if marker is not None:
            line, file, system = int(marker[1]), marker[2], " 3" if "3" in marker[3] else ""
            continue
        if _DIRECTIVE.match(text) and file not in _GIVEN:
            if (line, file, system) != after:
                kept.append(f'# {line} "{file}"{system}')
            kept.append(text)
            after = (line + 1, file, system)
        line += 1
    return "".join(f"{text}\n" for text in kept)


def are_left(defines: str, macros: str) -> bool:
    r"""Return whether reading the text of `header_macros` defines the same macros as reading the headers.

    Parameters
    ----------
    defines : str
        The output of ``-E -dD`` with the headers.
    macros : str
        The output of ``-E -dM`` with ``-imacros``.

    Examples
    --------
    >>> are_left("#define A 1\n#define B 2\n#undef A", "#define B 2"), are_left("#define A 1", "#define A 2")
    (True, False)
    """
    left: dict[str, str] = {}
    for text in defines.split("\n"):
        if directive := _DIRECTIVE.match(text):
            left[directive[1]] = text if text.startswith("#define ") else ""
    found = {directive[1]: text for text in macros.split("\n") if (directive := _DIRECTIVE.match(text))}
    return all(found.get(name, "") == text for name, text in left.items())


def names_in_headers(headers: Iterable[str]) -> tuple[str, ...] | None:
    """Return the files named by ``__has_include`` in headers; None if headers have effects beyond text and macros.

    Parameters
    ----------
    headers : iterable of str
        The text of each header.

    Examples
    --------
    >>> names_in_headers(["#if __has_include(<tbb/tbb.h>)"]), names_in_headers(["#pragma once"])
    (('tbb/tbb.h',), None)
    """
    asked: dict[str, None] = {}
    for text in headers:
        names = names_asked_for(text)
        if _STATEFUL.search(text) or "" in names:
            return None
        asked |= dict.fromkeys(names)
    return tuple(asked)


def is_shadowed(
    folders: Sequence[str],
    headers: Iterable[str],
    list_dir: Callable[[str], Iterable[str]],
    stat: Callable[[str], object],
) -> bool:
    """Return whether a folder may contain another file in place of a header that was read.

    Parameters
    ----------
    folders : sequence of str
        Folders that may be searched first.
    headers : iterable of str
        Paths of the headers that were read. The included name may be any end of a path.
    list_dir : callable
        Function that returns the names in a folder.
    stat : callable
        Function that returns a value that identifies a file, or None if there is no file.
    """
    paths = [PurePath(path).parts for path in headers]
    for folder in folders:
        names = set(list_dir(folder))
        for parts in paths:
            ends = (parts[index:] for index, part in enumerate(parts) if part in names)
            found = (stat(str(PurePath(folder, *end))) for end in ends)
            if any(file is not None and file != stat(str(PurePath(*parts))) for file in found):
                return True
    return False


def probes(phases: UnitBuild) -> tuple[tuple[str, ...], ...]:
    """Return the commands that print the headers of an empty source: their text, and their text with macros.

    Parameters
    ----------
    phases : UnitBuild
        Nvcc's phases of the empty source.
    """
    return tuple(
        argv
        for phase, edge in preprocessing(phases).items()
        for argv in (edge.argv, (*without_output(edge.argv), "-dD", "-o", f"{FOLDER}/defines{phase}"))
    )


def checks(preprocessors: Mapping[str, Edge]) -> tuple[Edge, ...]:
    """Return the commands that read the kept macros, and print the macros of an empty source.

    Parameters
    ----------
    preprocessors : mapping of str to Edge
        The preprocessors of the empty source, by phase.
    """
    edges = []
    for phase, edge in preprocessors.items():
        output = f"{FOLDER}/check{phase}"
        printing = ("-dM", "-imacros", f"{FOLDER}/headers{phase}.macros", "-o", output)
        argv = (*without_output(edge.argv), *printing)
        edges.append(Edge(argv, (), (output,), f"checking the preamble ({phase})", "preprocess"))
    return tuple(edges)


def use_kept_headers(build: UnitBuild, script: str, folder: str, kept: Sequence[str]) -> UnitBuild:
    """Return the commands of a build, with preprocessors that take the kept text instead of reading the headers.

    Parameters
    ----------
    build : UnitBuild
        Nvcc's phases of one source.
    script : str
        The path of ``with_kept_headers.sh``.
    folder : str
        Folder of the files that the script reads.
    kept : sequence of str
        The phases whose files the folder has.
    """
    source = build.unit.source
    changed = {
        edge: edge._replace(argv=("/bin/sh", script, folder, phase, source, *edge.outputs, *without_output(edge.argv)))
        for phase, edge in preprocessing(build).items()
        if phase in kept and source in edge.argv
    }
    return build._replace(edges=tuple(changed.get(edge, edge) for edge in build.edges))


def preprocessing(build: UnitBuild) -> dict[str, Edge]:
    """Return the preprocessing commands by phase: the output's name after the source's stem, such as ``".cpp1.ii"``."""
    edges = (edge for edge in build.edges if edge.tool == "preprocess")
    return {PurePath(edge.outputs[0]).name.removeprefix(build.unit.stem): edge for edge in edges}


def without_output(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command without ``-o`` and its value."""
    return tuple(part for part, before in zip(argv, ("", *argv), strict=False) if "-o" not in (part, before))


class KeptHeaders(NamedTuple):
    """Text and macros of headers, kept for a request's preprocessors.

    Parameters
    ----------
    preprocessors : mapping of str to Edge
        The preprocessors' commands, by phase.
    system : System
    toolkit : Path
        The toolkit's root.
    authors, tools, places : tuple of Path
        Folders in which the preprocessors search headers, in this order: the author's; ours, XLA's and CUDA's; the
        system's.
    """

    preprocessors: Mapping[str, Edge]
    system: System
    toolkit: Path
    authors: tuple[Path, ...]
    tools: tuple[Path, ...]
    places: tuple[Path, ...]

    @classmethod
    def of(cls, preprocessors: Mapping[str, Edge], order: BuildOrder) -> KeptHeaders:
        """Return the kept headers for an order's options, tools and environment."""
        options, tools, system = order.request.compile, order.tools, order.system
        assert tools.cuda is not None, "only nvcc's phases have such preprocessors"
        listed = [system.environ.get(name, "") for name in ("CPATH", "CPLUS_INCLUDE_PATH")]
        named = (*include_folders(options.cflags), *(path for text in listed for path in text.split(":")))
        prefix = tools.cxx.path.parent.parent
        places = (
            *(Path("/usr/local/include"), Path(f"/usr/include/{system.machine}-linux-gnu"), Path("/usr/include")),
            *(prefix / "include", prefix / tools.cxx.target / "include"),
        )
        return cls(
            preprocessors,
            system,
            tools.cuda.root,
            authors=(*options.include_paths, *(Path(path) for path in named if path.startswith("/"))),
            tools=(INCLUDE_DIR, *tools.cuda.include_dirs, tools.ffi_include, *tools.library_includes),
            places=tuple(dict.fromkeys(places)),
        )

    def write(self, runner: Runner, read: Sequence[Path]) -> tuple[tuple[str, ...], tuple[Path, ...]]:
        """Write the files of each phase into the preamble's folder.

        Parameters
        ----------
        runner : Runner
            Runner in the folder with the outputs of the preprocessors and the probes.
        read : sequence of Path
            The headers.

        Returns
        -------
        tuple of (tuple of str, tuple of Path)
            The names of the files, and the paths of missing files that the headers ask for. There are no names if the
            headers have effects that text and macros can't reproduce.
        """
        staging, asked = runner.folder, names_in_headers(map(_read, read))
        texts = {
            phase: headers_text(_read(staging / edge.outputs[0]), UNIT.source)
            for phase, edge in self.preprocessors.items()
        }
        if asked is None or None in texts.values() or _read(staging / MESSAGES) or not self._is_understood():
            return (), ()
        defines = {phase: _read(staging / f"{FOLDER}/defines{phase}") for phase in texts}
        for phase, text in texts.items():
            _write(staging / f"{FOLDER}/headers{phase}", text or "")
            _write(staging / f"{FOLDER}/headers{phase}.macros", header_macros(defines[phase]))
        _write(staging / FOLDER / _ASKED, "\n".join(asked))
        _write(staging / FOLDER / _ENVIRONMENT, self._environment())
        try:
            steps = runner.run(BuildPlan(files=(), edges=checks(self.preprocessors)))
        except BuildError:
            return (), ()
        found = {phase: _read(staging / f"{FOLDER}/check{phase}") for phase in texts}
        if any(step.output for step in steps) or not all(are_left(defines[phase], found[phase]) for phase in texts):
            return (), ()
        nowhere = tuple(folder / name for folder in (*self.tools, *self.places) for name in asked)
        files = (f"headers{phase}{ending}" for phase in texts for ending in ("", ".macros"))
        return (_ASKED, _ENVIRONMENT, *files), nowhere

    def usable(self, entry: Entry) -> tuple[str, ...]:
        """Return the phases whose kept headers are valid: no folder has other headers that would come first."""
        if _ASKED not in entry.manifest.outputs.paths or not self._is_understood():
            return ()
        try:
            environment, asked = _read(entry.output(_ENVIRONMENT)), _read(entry.output(_ASKED)).split("\n")
        except FileNotFoundError:  # another process removed the entry since it was found
            return ()
        if environment != self._environment():
            return ()
        if any(self.system.stat(folder / name) is not None for folder in self.authors for name in asked if name):
            return ()
        folders = (*map(str, self.authors), _LOCAL)
        headers = entry.manifest.dependencies.paths
        if is_shadowed(folders, headers, lambda path: self.system.list_dir(Path(path)), self.system.stat):
            return ()
        return tuple(phase for phase in self.preprocessors if f"headers{phase}" in entry.manifest.outputs.paths)

    def _environment(self) -> str:
        """Hash the variables that a script in a compiler's place may read; empty if the compilers are binaries."""
        compilers = {Path(edge.argv[0]) for edge in self.preprocessors.values()}
        if all((self.system.read_text(path, 4) or "").startswith("\x7fELF") for path in compilers):
            return ""
        variables = sorted(item for item in self.system.environ.items() if not _NOT_COMPILERS.fullmatch(item[0]))
        return hashlib.sha256(repr(variables).encode("utf-8", "surrogateescape")).hexdigest()

    def _is_understood(self) -> bool:
        """Return whether every preprocessor reads only CUDA's and the system's headers before the source."""
        folders = (*self.tools, *self.authors)
        known = {self.system.realpath(folder) for folder in folders}
        root = self.system.realpath(self.toolkit)

        def is_known(folder: str) -> bool:
            real = self.system.realpath(Path(folder))
            return real in known or real.is_relative_to(root)

        return all(is_understood(edge.argv, is_known) for edge in self.preprocessors.values())


def _read(path: Path) -> str:
    """Read a file without any change to its bytes, including line ends."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
