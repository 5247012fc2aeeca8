"""The headers of every CUDA source, as text and macros, so that a preprocessor need not read them. Pure.

nvcc adds ``-include cuda_runtime.h`` to each source: 160 files, which the host side and each architecture read again.
Their text is the same for every source, and the rest of the source needs only their macros, which the preprocessor can
print: https://gcc.gnu.org/onlinedocs/gcc/Preprocessor-Options.html, ``-dD`` and ``-imacros``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath

from be_runtime.compile.inputs.header_search import names_asked_for
from be_runtime.compile.plan.build_plan import Edge, UnitBuild

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
