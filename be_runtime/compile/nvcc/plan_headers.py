"""The headers that every CUDA source begins with, as text and macros, so that a preprocessor need not read them. Pure.

nvcc has each source begin with ``-include cuda_runtime.h``: 160 files, which the host side reads and each architecture
reads again. Their text is the same for every source, and the rest of the source needs their macros alone, which the
preprocessor writes down: https://gcc.gnu.org/onlinedocs/gcc/Preprocessor-Options.html, ``-dD`` and ``-imacros``.
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
"""Where macros come from that the preprocessor has anyway."""

_STATEFUL = re.compile(
    r"\bpragma\b.*\bonce\b|_Pragma.*\bonce\b|\b(?:push|pop)_macro\b|\b__(?:COUNTER|DATE|TIME|TIMESTAMP)__\b"
)
"""What has an effect on the rest of the source that no macro shows, or another text each time."""

_FOLDER = re.compile(r'# \d+ ".*//"')
_HEADER = "cuda_runtime.h"
_SEARCHED = ("-I", "-isystem")
_NOT_UNDERSTOOD = (
    *("--", "@", "-imacros", "-iquote", "-idirafter", "-iprefix", "-iwithprefix", "-isysroot", "-nostdinc"),
    *("-B", "-specs", "-I-", "-finput-charset", "-M"),
)
"""Options that change what is read, or how; ``-MD`` and its file are our own."""


def is_understood(argv: Sequence[str], is_known: Callable[[str], bool]) -> bool:
    """Whether a preprocessor reads no header before the source but CUDA's and the system's.

    Parameters
    ----------
    argv : sequence of str
        Its command.
    is_known : callable
        Whether a folder is the tools', or otherwise watched.

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
    r"""What a preprocessor has made of the headers before a source.

    Parameters
    ----------
    preprocessed : str
        Its output for an empty source.
    source : str
        The source's name.

    Returns
    -------
    str or None
        None where the source's own text is not found, or the headers' text names it, or the build's folder.

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
    """The macros that headers leave, each at its place, as a file for ``-imacros``.

    Parameters
    ----------
    defines : str
        What ``-E -dD`` prints.
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
    r"""Whether the macros that headers leave are there after they were read from what `header_macros` says.

    Parameters
    ----------
    defines : str
        What ``-E -dD`` prints with the headers.
    macros : str
        What ``-E -dM`` prints with ``-imacros``.

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
    """The files whose presence headers ask for; None where more than text and macros is left of reading them.

    Parameters
    ----------
    headers : iterable of str
        The text of each.

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
    """Whether a folder may hold another file in place of a header that was read.

    Parameters
    ----------
    folders : sequence of str
        Those that may be searched first.
    headers : iterable of str
        The paths of those that were read. What they were included as is not known: any end of a path may be it.
    list_dir, stat : callable
        The names in a folder; what tells a file from others, None where there is none.
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
    """The commands that show what headers an empty source begins with: as they are, and with the macros.

    Parameters
    ----------
    phases : UnitBuild
        Nvcc's phases of the empty source.
    folder : str
        Gets the text with macros of each phase, see `defines_file`.
    """
    return tuple(
        argv
        for phase, edge in preprocessing(phases).items()
        for argv in (edge.argv, (*without_output(edge.argv), "-dD", "-o", defines_file(folder, phase)))
    )


def defines_file(folder: str, phase: str) -> str:
    """Where `probes` puts a phase's text with macros."""
    return f"{folder}/defines{phase}"


def checks(preprocessors: Mapping[str, Edge], folder: str) -> tuple[Edge, ...]:
    """The commands that show which macros an empty source has after those that are kept.

    Parameters
    ----------
    preprocessors : mapping of str to Edge
        By phase, those of the empty source.
    folder : str
        Holds the macros, see `macros_file`, and gets the answers, see `check_file`.
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
    """Where a phase's text is."""
    return f"{folder}/headers{phase}"


def macros_file(folder: str, phase: str) -> str:
    """Where a phase's macros are."""
    return f"{folder}/headers{phase}.macros"


def check_file(folder: str, phase: str) -> str:
    """Where `checks` puts a phase's macros."""
    return f"{folder}/check{phase}"


def use_kept_headers(build: UnitBuild, script: str, folder: str, kept: Sequence[str]) -> UnitBuild:
    """The same commands, the preprocessors' with the headers' text in place of reading them.

    Parameters
    ----------
    build : UnitBuild
        Nvcc's phases of one source.
    script : str
        The path of ``with_kept_headers.sh``.
    folder : str
        Holds what the script reads.
    kept : sequence of str
        The phases for which it does.
    """
    source = build.unit.source
    changed = {
        edge: edge._replace(argv=("/bin/sh", script, folder, phase, source, *edge.outputs, *without_output(edge.argv)))
        for phase, edge in preprocessing(build).items()
        if phase in kept and source in edge.argv
    }
    return build._replace(edges=tuple(changed.get(edge, edge) for edge in build.edges))


def preprocessing(build: UnitBuild) -> dict[str, Edge]:
    """The commands that preprocess, by how the names of their outputs go on after the source's: ``".cpp1.ii"``."""
    edges = (edge for edge in build.edges if edge.tool == "preprocess")
    return {PurePath(edge.outputs[0]).name.removeprefix(build.unit.stem): edge for edge in edges}


def without_output(argv: Sequence[str]) -> tuple[str, ...]:
    """A command without ``-o`` and what follows it."""
    return tuple(part for part, before in zip(argv, ("", *argv), strict=False) if "-o" not in (part, before))
