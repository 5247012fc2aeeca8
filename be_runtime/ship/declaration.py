"""The declaration of a package's kernels, ``kernels.toml``. Pure.

::

    archs = ["8.0", "9.0"]  # of CUDA code that is built ahead of time
    baseline = "x86-64-v2"  # instructions that host code may need
    [modules.neurons]  # a compiled module: a folder, a file or several files
    sources = "neurons"
    extra_include_paths = ["include"]
    [kernels.scale]  # a kernel without host code: raw, or Numba's
    source = "scale.cu"
    signature = "arg[n] ret[n]:like(0)"
    grid = "ceil(n/256)"
    block = 256
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError
from be_runtime.request.options import Language
from be_toolchain.machine.toml_text import parse_toml

FILE = "kernels.toml"

_BOTH = frozenset({"extra_include_paths", "extra_ldflags", "optimization_level", "use_fast_math"})
_OPTIONS: dict[Language, frozenset[str]] = {
    "cpp": _BOTH | {"extra_cflags"},
    "cuda": _BOTH | {"extra_cuda_cflags", "allow_cuda_graph", "compute_capability"},
}
_LONGEST_NAME, _LONGEST_PATH = 255, 2048
"""Bytes of a name, and of a path below the package's folder: Linux takes 4,096 for all of it."""

_KINDS = ("source", "numba", "numba_cuda")


class DeclaredModule(NamedTuple):
    """A compiled module.

    Parameters
    ----------
    name : str
    language : {"cpp", "cuda"}
    sources : tuple of str
        Paths below the package's folder.
    functions : dict, list or None
        As the load functions take it.
    options : dict
        Keyword arguments of the load functions.
    """

    name: str
    language: Language
    sources: tuple[str, ...]
    functions: Any
    options: Mapping[str, Any]


class Declaration(NamedTuple):
    """Everything that a package declares.

    Parameters
    ----------
    archs : tuple of str
        Architectures of CUDA code that is built ahead of time; empty if the builder names them.
    baseline : str
        Level of instructions of host code; empty for that of every such machine.
    modules : dict of str to DeclaredModule
    kernels : dict of str to dict
        Tables of kernels without host code.
    """

    archs: tuple[str, ...]
    baseline: str
    modules: Mapping[str, DeclaredModule]
    kernels: Mapping[str, Mapping[str, Any]]


def parse_declaration(text: str, where: str, has_cuda: Callable[[str], bool]) -> Declaration:
    """Read a declaration.

    Parameters
    ----------
    text : str
        TOML.
    where : str
        Its place, for messages.
    has_cuda : callable
        Function that says whether a path is a folder with CUDA files.

    Raises
    ------
    ArgumentError
        It is no TOML, declares nothing, or has an unknown key or a bad value.
    """
    document = read_toml(text, where)
    refuse_unknown(document, {"archs", "baseline", "modules", "kernels"}, where)
    modules = {name: _module(name, row, where, has_cuda) for name, row in _tables(document, "modules", where).items()}
    kernels = _tables(document, "kernels", where)
    for name, row in kernels.items():
        given = [kind for kind in _KINDS if kind in row]
        if len(given) != 1:
            raise ArgumentError(f"{where}: kernels.{name} needs one of {', '.join(_KINDS)}, and has {len(given)}")
        if given == ["source"]:
            inside(row["source"], f"{where}: kernels.{name}")
        _check_lists(row, f"{where}: kernels.{name}")
    if not modules and not kernels:
        hint = 'add a table, such as [modules.ops] with sources = "ops.cc"'
        raise ArgumentError(f"{where} declares no kernels", hints=(hint,))
    twice = sorted(modules.keys() & kernels.keys())
    if twice:
        raise ArgumentError(f"{where}: {twice[0]} is declared as a module and as a kernel", hints=("rename one",))
    return Declaration(
        texts(document.get("archs", []), f"{where}: archs"), document.get("baseline", ""), modules, kernels
    )


def read_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML.

    Raises
    ------
    ArgumentError
        It is none.
    """
    try:
        return parse_toml(text)
    except ValueError as error:
        raise ArgumentError(f"{where} is not TOML: {error}") from None


def inside(path: object, where: str) -> str:
    """Check that a path is one below the package's folder.

    Raises
    ------
    ArgumentError
        It is not.

    Examples
    --------
    >>> inside("ops/./fire.cc", "kernels.toml")
    'ops/fire.cc'
    """
    if not isinstance(path, str) or not path:
        raise ArgumentError(f"{where}: {path!r} is not a path")
    pure = PurePosixPath(path)
    longest = max((len(each.encode()) for each in pure.parts), default=0)
    if "\0" in path or longest > _LONGEST_NAME or len(path.encode()) > _LONGEST_PATH:
        raise ArgumentError(f"{where}: {path[:80]!r} can't be a path: it is too long, or has a NUL")
    if pure.is_absolute() or ".." in pure.parts:
        raise ArgumentError(
            f"{where}: {path!r} is outside the package",
            hints=("a wheel has only the package's own files: move it there",),
        )
    return str(pure)


def _module(name: str, row: Mapping[str, Any], where: str, has_cuda: Callable[[str], bool]) -> DeclaredModule:
    at = f"{where}: modules.{name}"
    if "sources" not in row:
        refuse_unknown(row, _OPTIONS["cuda"] | {"sources", "functions"}, at)
    sources = _sources(row.get("sources"), at)
    language: Language = "cuda" if any(each.endswith(".cu") or has_cuda(each) for each in sources) else "cpp"
    refuse_unknown(row, _OPTIONS[language] | {"sources", "functions"}, at)
    options = {key: value for key, value in row.items() if key not in ("sources", "functions")}
    _check_lists(options, at)
    return DeclaredModule(name, language, sources, row.get("functions"), options)


def _sources(value: object, where: str) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not given:
        raise ArgumentError(f"{where} needs sources: a folder, a file or a list of files")
    return tuple(inside(each, where) for each in given)


def _check_lists(row: Mapping[str, Any], where: str) -> None:
    texts(row.get("dtypes", []), f"{where}.dtypes")
    for path in texts(row.get("extra_include_paths", []), f"{where}.extra_include_paths"):
        inside(path, f"{where}.extra_include_paths")


def texts(value: object, where: str) -> tuple[str, ...]:
    """Check that a value is a list of texts, and return them."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(each, str) for each in value):
        raise ArgumentError(f"{where} must be a list of texts, not {value!r}")
    return tuple(value)


def _tables(document: Mapping[str, Any], name: str, where: str) -> dict[str, dict[str, Any]]:
    tables = document.get(name, {})
    if not isinstance(tables, dict) or not all(isinstance(row, dict) for row in tables.values()):
        raise ArgumentError(f"{where}: {name} must hold tables, as in [{name}.my_ops]")
    return tables


def refuse_unknown(row: Mapping[str, Any], known: frozenset[str] | set[str], where: str) -> None:
    """Check that a table has known keys alone."""
    unknown = sorted(set(row) - set(known))
    if unknown:
        from difflib import get_close_matches

        close = tuple(f"did you mean {name!r}?" for name in get_close_matches(unknown[0], sorted(known), n=1))
        hints = (*close, f"known are: {', '.join(sorted(known))}")
        raise ArgumentError(f"{where}: {unknown[0]!r} is unknown", hints=hints)
