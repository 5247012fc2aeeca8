"""The text and macros of CUDA's headers in the preamble's cache entry: written once, and checked at each use."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from be_runtime.compile.execute import Runner
from be_runtime.compile.inputs import include_folders, names_asked_for
from be_runtime.compile.plan import OBJECTS, BuildPlan, Edge, GeneratedFile, Tool, UnitBuild, files_named
from be_runtime.errors import BuildError
from be_runtime.own_files import INCLUDE_DIR
from be_runtime.request.options import CompileOptions
from be_runtime.request.tools import Tools
from be_runtime.store.cache import Entry
from be_toolchain.machine.system import System

_MARKER = re.compile(r'# (\d+) "((?:[^"\\]|\\.)*)"([ 1-4]*)')
_DIRECTIVE = re.compile(r"#(?:define|undef) ([^\s(]+)")
_GIVEN = ("<built-in>", "<command-line>")
"""File names in markers before macros that the preprocessor defines anyway."""

_STATEFUL = re.compile(
    r"\bpragma\b.*\bonce\b|_Pragma.*\bonce\b|\b(?:push|pop)_macro\b|\b__(?:COUNTER|DATE|TIME|TIMESTAMP)__\b"
)
"""Directives and macros whose effect on the rest of the source is not a macro, or whose text differs each time."""

_FOLDER = re.compile(r'# \d+ ".*//"')
_HEADER = "cuda_runtime.h"
_SEARCHED = ("-I", "-isystem")
_NOT_UNDERSTOOD = (
    *("--", "@", "-imacros", "-iquote", "-idirafter", "-iprefix", "-iwithprefix", "-isysroot", "-nostdinc"),
    *("-B", "-specs", "-I-", "-finput-charset", "-M"),
)
"""Options that change which files are read, or how; ``-MD`` and ``-MF`` are our own."""


def is_understood(argv: Sequence[str], is_known: Callable[[str], bool]) -> bool:
    """Return whether a preprocessor reads only CUDA's and the system's headers before the source.

    Parameters
    ----------
    argv : sequence of str
        The preprocessor's command.
    is_known : callable
        Returns True for a folder of the tools, or one that is checked otherwise.

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
        None if the source's own text is not found, or if the headers' text names the source or the build folder.

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
    stat: Callable[[PurePath], object],
) -> bool:
    """Return whether a folder may contain another file in place of a header that was read.

    Parameters
    ----------
    folders : sequence of str
        Folders that may be searched first.
    headers : iterable of str
        Paths of the headers that were read. The included name is not known: it may be any end of a path.
    list_dir, stat : callable
        Return the names in a folder; return a value that identifies a file, or None if there is no file.
    """
    paths = [PurePath(path).parts for path in headers]
    for folder in folders:
        names = set(list_dir(folder))
        for parts in paths:
            ends = (parts[index:] for index, part in enumerate(parts) if part in names)
            found = (stat(PurePath(folder, *end)) for end in ends)
            if any(file is not None and file != stat(PurePath(*parts)) for file in found):
                return True
    return False


def probes(phases: UnitBuild, folder: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands that print the headers of an empty source: their text, and their text with macros.

    Parameters
    ----------
    phases : UnitBuild
        Nvcc's phases of the empty source.
    folder : str
        Receives the text with macros of each phase, see `defines_file`.
    """
    return tuple(
        argv
        for phase, edge in preprocessing(phases).items()
        for argv in (edge.argv, (*without_output(edge.argv), "-dD", "-o", defines_file(folder, phase)))
    )


def defines_file(folder: str, phase: str) -> str:
    """Return the path of a phase's text with macros, which `probes` writes."""
    return f"{folder}/defines{phase}"


def checks(preprocessors: Mapping[str, Edge], folder: str) -> tuple[Edge, ...]:
    """Return the commands that print the macros of an empty source after the kept ones were read.

    Parameters
    ----------
    preprocessors : mapping of str to Edge
        The preprocessors of the empty source, by phase.
    folder : str
        Contains the macros, see `macros_file`, and receives the output, see `check_file`.
    """
    return tuple(
        Edge(
            argv=(
                *without_output(edge.argv),
                *("-dM", "-imacros", macros_file(folder, phase), "-o", check_file(folder, phase)),
            ),
            inputs=(),
            outputs=(check_file(folder, phase),),
            description=f"checking the preamble ({phase})",
            tool="preprocess",
        )
        for phase, edge in preprocessors.items()
    )


def headers_file(folder: str, phase: str) -> str:
    """Return the path of a phase's text."""
    return f"{folder}/headers{phase}"


def macros_file(folder: str, phase: str) -> str:
    """Return the path of a phase's macros."""
    return f"{folder}/headers{phase}.macros"


def check_file(folder: str, phase: str) -> str:
    """Return the path of a phase's macros, which `checks` writes."""
    return f"{folder}/check{phase}"


def use_kept_headers(build: UnitBuild, script: str, folder: str, kept: Sequence[str]) -> UnitBuild:
    """Return the commands of a build with preprocessors that take the headers' kept text instead of reading them.

    Parameters
    ----------
    build : UnitBuild
        Nvcc's phases of one source.
    script : str
        The path of ``with_kept_headers.sh``.
    folder : str
        Contains the files that the script reads.
    kept : sequence of str
        The phases that the folder has files for.
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


UNIT = files_named("be_preamble", "cuda")
"""The files of the empty source whose commands make the preamble."""

FILES = ("preamble.h", "preamble.h.gch", "pragmas.h", "size", "read.d")
"""Files of a preamble in `FOLDER`; not all of them exist if a command failed."""

FOLDER = f"{OBJECTS}/{UNIT.stem}"
_SCRIPT = f"{FOLDER}.sh"
_DONE = f"{FOLDER}.done"
DEPFILE = f"{FOLDER}/read.d"
MESSAGES = f"{FOLDER}/messages"
"""File with the messages of the preprocessors."""


def use_preamble(build: UnitBuild, script: str, folder: str) -> UnitBuild:
    """The same commands, the host compiler's with the beginning precompiled.

    Parameters
    ----------
    build : UnitBuild
        Nvcc's phases of one source.
    script : str
        The path of ``with_preamble.sh``.
    folder : str
        Holds `FILES`.
    """
    whole, compilation = _translated(build), _the(build, "compile")
    used = compilation._replace(argv=("/bin/sh", script, folder, whole, *_without_input(compilation.argv, whole)))
    return build._replace(edges=tuple(used if edge is compilation else edge for edge in build.edges))


def make_preamble(phases: UnitBuild, dropped: Sequence[str]) -> UnitBuild:
    """The command that makes a preamble; it never fails, since a build does not need one.

    Parameters
    ----------
    phases : UnitBuild
        Nvcc's phases of `UNIT`.
    dropped : sequence of str
        Flags to leave out: the author's include folders, which the preamble does not read.
    """
    edge = Edge(
        argv=("/bin/sh", _SCRIPT),
        inputs=(UNIT.source,),
        outputs=(_DONE,),
        description="compiling the preamble of CUDA sources",
        tool="make preamble",
    )
    source = GeneratedFile(path=UNIT.source, text="\n")
    script = GeneratedFile(path=_SCRIPT, text=preamble_text(phases, dropped))
    return phases._replace(edges=(edge,), files=(*phases.files, source, script))


def preamble_text(phases: UnitBuild, dropped: Sequence[str]) -> str:
    """The script that makes a preamble, which is all that decides it beside the toolchain."""
    whole = _translated(phases)
    compiler = _without_input(_the(phases, "compile").argv, whole)
    header, quoted = f"{FOLDER}/preamble.h", shlex.quote(whole)
    depfiles = shlex.join(edge.depfile or "" for edge in preprocessing(phases).values())
    lines = [
        f"mkdir -p {FOLDER} {shlex.quote(str(PurePath(whole).parent))}",
        "make() {",
        *(f"{_shell(argv, dropped)} 2>> {MESSAGES} &&" for argv in probes(phases, FOLDER)),
        f"cat {depfiles} > {DEPFILE} &&",
        f"{_shell(_the(phases, 'cudafe++').argv, dropped)} &&",
        # Not the first line, which names the source, nor the end, which includes what the device side made.
        f"sed -e 1d -e '/^# 1 \"{UNIT.stem}\\.[a-z0-9_.]*stub\\.c\"$/,$d' {quoted} | sed '$d' > {header} &&",
        f"sed -n -e '/^# [0-9]* \"/q' -e '/^#pragma GCC diagnostic ignored/p' {header} > {FOLDER}/pragmas.h &&",
        f"wc -c < {header} > {FOLDER}/size &&",
        f"{_shell(_without_output(compiler), dropped)} -x c++-header {header} -o {header}.gch",
        "}",
        f"make > /dev/null 2>&1 || rm -f {header}.gch",
        f": > {_DONE}",
    ]
    return "\n".join(lines) + "\n"


def _the(build: UnitBuild, tool: Tool) -> Edge:
    """The only command of a tool."""
    return next(edge for edge in build.edges if edge.tool == tool)


def _translated(build: UnitBuild) -> str:
    """Cudafe++'s output, which the host compiler reads."""
    return _the(build, "cudafe++").outputs[0]


def _without_input(argv: Sequence[str], source: str) -> tuple[str, ...]:
    """A compile command without its source and language, which may then be given anew."""
    pairs = zip(argv, ("", *argv[:-1]), strict=True)
    return tuple(part for part, before in pairs if part not in {source, "-x"} and before != "-x")


def _without_output(argv: Sequence[str]) -> tuple[str, ...]:
    return tuple(part for part in without_output(argv) if part != "-S")


def _shell(argv: Sequence[str], dropped: Sequence[str]) -> str:
    return shlex.join(part for part in argv if part not in dropped)


_ASKED, _ENVIRONMENT = "asked", "environment"
_LOCAL = "/usr/local/include"
"""The folder that is searched before the system's other ones."""

_NOT_COMPILERS = re.compile(r"(?:BE|JAX|XLA|PYTEST)_.*|(?:OLD)?PWD|SHLVL|_")
"""Variables that no compiler's wrapper reads and that differ between a user's processes."""


class HeaderSearch(NamedTuple):
    """The folders in which a request's preprocessors look for headers.

    Parameters
    ----------
    authors : tuple of Path
        The folders that the author names, in the order of the search.
    tools : tuple of Path
        Our folders, XLA's and CUDA's.
    system : tuple of Path
        The system's folders.
    """

    authors: tuple[Path, ...]
    tools: tuple[Path, ...]
    system: tuple[Path, ...]

    @classmethod
    def of(cls, options: CompileOptions, tools: Tools, system: System) -> HeaderSearch:
        """Return the folders for a request's options, tools and environment."""
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
        )


class KeptHeaders(NamedTuple):
    """Text and macros of headers, kept for a request's preprocessors.

    Parameters
    ----------
    preprocessors : mapping of str to Edge
        By phase.
    search : HeaderSearch
        The folders in which they look for headers.
    toolkit : Path
        The toolkit's root.
    system : System
    """

    preprocessors: Mapping[str, Edge]
    search: HeaderSearch
    toolkit: Path
    system: System

    def write(self, runner: Runner, read: Sequence[Path]) -> tuple[tuple[str, ...], tuple[Path, ...]]:
        """Write the files of each phase into the preamble's folder.

        Parameters
        ----------
        runner : Runner
            Runs commands in the folder with the outputs of the preprocessors and the probes.
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
        defines = {phase: _read(staging / defines_file(FOLDER, phase)) for phase in texts}
        for phase, text in texts.items():
            _write(staging / headers_file(FOLDER, phase), text or "")
            _write(staging / macros_file(FOLDER, phase), header_macros(defines[phase]))
        _write(staging / FOLDER / _ASKED, "\n".join(asked))
        _write(staging / FOLDER / _ENVIRONMENT, self._environment())
        try:
            steps = runner.run(BuildPlan(files=(), edges=checks(self.preprocessors, FOLDER)))
        except BuildError:
            return (), ()
        found = {phase: _read(staging / check_file(FOLDER, phase)) for phase in texts}
        if any(step.output for step in steps) or not all(are_left(defines[phase], found[phase]) for phase in texts):
            return (), ()
        nowhere = tuple(folder / name for folder in (*self.search.tools, *self.search.system) for name in asked)
        files = (Path(file(FOLDER, phase)).name for phase in texts for file in (headers_file, macros_file))
        return (_ASKED, _ENVIRONMENT, *files), nowhere

    def usable(self, entry: Entry) -> tuple[str, ...]:
        """Return the phases whose kept headers are valid: no folder has other headers that would come first."""
        if _ASKED not in entry.manifest.outputs.paths or not self._is_understood():
            return ()
        try:
            environment, asked = _read(entry.output(_ENVIRONMENT)), _read(entry.output(_ASKED)).split("\n")
        except FileNotFoundError:  # cleared away since it was found
            return ()
        if environment != self._environment():
            return ()
        if any(self.system.stat(folder / name) is not None for folder in self.search.authors for name in asked if name):
            return ()
        folders = (*map(str, self.search.authors), _LOCAL)
        if is_shadowed(folders, entry.manifest.dependencies.paths, self._list_dir, self._stat):
            return ()
        return tuple(
            phase for phase in self.preprocessors if Path(headers_file("", phase)).name in entry.manifest.outputs.paths
        )

    def _environment(self) -> str:
        """Hash the variables that a script in a compiler's place may read; empty if the compilers are binaries."""
        compilers = {Path(edge.argv[0]) for edge in self.preprocessors.values()}
        if all((self.system.read_text(path, 4) or "").startswith("\x7fELF") for path in compilers):
            return ""
        variables = sorted(item for item in self.system.environ.items() if not _NOT_COMPILERS.fullmatch(item[0]))
        return hashlib.sha256(repr(variables).encode("utf-8", "surrogateescape")).hexdigest()

    def _is_understood(self) -> bool:
        """Return whether every preprocessor reads only CUDA's and the system's headers before the source."""
        folders = (*self.search.tools, *self.search.authors)
        known = {self.system.realpath(folder) for folder in folders}
        root = self.system.realpath(self.toolkit)

        def is_known(folder: str) -> bool:
            real = self.system.realpath(Path(folder))
            return real in known or real.is_relative_to(root)

        return all(is_understood(edge.argv, is_known) for edge in self.preprocessors.values())

    def _list_dir(self, folder: str) -> Sequence[str]:
        return self.system.list_dir(Path(folder))

    def _stat(self, path: object) -> object:
        return self.system.stat(str(path))


def _read(path: Path) -> str:
    """Read a file without any change to its bytes, including line ends."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
