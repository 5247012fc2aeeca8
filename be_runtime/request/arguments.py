"""Types of the load functions' arguments, and the checked requests and units made from them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from be_runtime.checks import Checks, parse_checks
from be_runtime.errors import ArgumentError, SourceNotFoundError
from be_runtime.request.options import (
    BuildRequest,
    CompileOptions,
    Language,
    LoadOptions,
    Unit,
    arch_flags,
    check_active,
    check_arch_list,
    check_bool,
    check_default_stream,
    check_flags,
    check_include_paths,
    check_jobs,
    check_name,
    check_optimization_level,
    check_optional_path,
    check_path,
    identify_cpu,
)
from be_runtime.signature import SourceText
from be_toolchain.machine.trust import LARGE, read_regular

Functions = Mapping[str, Sequence[str]] | Sequence[str] | None
StrPath = str | Path
Reread = Callable[[BuildRequest], tuple[Unit, ...]]
"""Function that reads the sources of a request again."""

SUFFIXES: dict[Language, tuple[str, ...]] = {"cuda": (".cu",), "cpp": (".cc", ".cpp", ".cxx")}
"""Suffixes of a language's source files in a folder."""

_ENDINGS = (*SUFFIXES["cuda"], *SUFFIXES["cpp"], ".cuh", ".h", ".hpp")
_FROM_FILES = "load a file with load_cuda_file or load_cpp_file, a folder with load_cuda_dir or load_cpp_dir"


class _CommonOptions(TypedDict, total=False):
    extra_ldflags: Sequence[str] | None
    extra_include_paths: Sequence[StrPath] | None
    build_directory: StrPath | None
    verbose: bool
    force_rebuild: bool
    auto_register: bool
    target_prefix: str | None
    ninja_workers: int | None
    optimization_level: int
    use_fast_math: bool
    replace: bool
    native: bool
    line_info: bool
    debug: bool | str | Sequence[str]


class CppOptions(_CommonOptions, total=False):
    """The keyword arguments of `be_runtime.load_cpp_inline`."""

    extra_cflags: Sequence[str] | None


class CudaOptions(_CommonOptions, total=False):
    """The keyword arguments of `be_runtime.load_cuda_inline`."""

    extra_cuda_cflags: Sequence[str] | None
    compute_capability: str | Sequence[str] | None
    allow_cuda_graph: bool
    active: str | None
    default_stream: str


class PlatformOptions(CppOptions, CudaOptions, total=False):
    """The keyword arguments of `be_runtime.load_inline`."""


def _check_native(value: object, argument: str) -> str:
    return identify_cpu() if check_bool(value, argument) else ""


def _check_debug(value: Any, _argument: str) -> Checks | None:
    return None if value is False else parse_checks(value)


CHECKS: dict[str, tuple[str, Callable[[Any, str], object]]] = {
    "extra_cflags": ("cflags", check_flags),
    "extra_cuda_cflags": ("cflags", check_flags),
    "extra_ldflags": ("ldflags", check_flags),
    "extra_include_paths": ("include_paths", check_include_paths),
    "optimization_level": ("optimization_level", check_optimization_level),
    "use_fast_math": ("use_fast_math", check_bool),
    "native": ("native", _check_native),
    "line_info": ("line_info", check_bool),
    "compute_capability": ("compute_capability", check_arch_list),
    "build_directory": ("build_directory", check_optional_path),
    "verbose": ("verbose", check_bool),
    "force_rebuild": ("force_rebuild", check_bool),
    "replace": ("replace", check_bool),
    "auto_register": ("auto_register", check_bool),
    "target_prefix": ("target_prefix", check_name),
    "ninja_workers": ("jobs", check_jobs),
    "allow_cuda_graph": ("allow_cuda_graph", check_bool),
    "active": ("active", check_active),
    "default_stream": ("default_stream", check_default_stream),
    "debug": ("debug", _check_debug),
}
"""For each keyword argument, its field of `CompileOptions`, `BuildRequest` or `LoadOptions`, and the check that makes
the value."""


def _checked(options: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Check the keyword arguments for the given fields, and return the values by field."""
    belonging = ((name, value, *CHECKS[name]) for name, value in options.items())
    return {field: check(value, name) for name, value, field, check in belonging if field in fields}


def cpp_request(name: str, units: tuple[Unit, ...], functions: Functions, **options: Any) -> BuildRequest:
    """Make the checked request for a C++ module from `CppOptions`; ignore the options of loading."""
    return BuildRequest(name, "cpp", units, functions, CompileOptions(**_checked(options, CompileOptions._fields)))


def cuda_request(
    name: str, units: tuple[Unit, ...], functions: Functions, *, extra_include_paths: object = None, **options: Any
) -> BuildRequest:
    """Make the checked request for a CUDA module from `CudaOptions`; ignore the options of loading."""
    includes = check_include_paths(extra_include_paths, refused="\n,'\"")  # nvcc can't pass on the last three
    compiling = CompileOptions(**_checked(options, CompileOptions._fields), include_paths=includes)
    named, asked = arch_flags(compiling.cflags), options.get("compute_capability")
    if named and asked is not None:
        raise ArgumentError(
            f"compute_capability={asked!r} and {named[0]!r} in extra_cuda_cflags both name architectures",
            hints=("leave one of them out",),
        )
    return BuildRequest(name, "cuda", units, functions, compiling, **_checked(options, BuildRequest._fields))


def load_options(name: str, *, target_prefix: str | None = None, **options: Any) -> LoadOptions:
    """Check the options that do not change the library, and ignore the others."""
    options["target_prefix"] = name if target_prefix is None else target_prefix
    return LoadOptions(**_checked(options, LoadOptions._fields))


def refuse_path(source: object, argument: str, hint: str, *, is_whole: bool = True) -> None:
    """Raise an error if a path was passed as the text of a source, or as a part of it if `is_whole` is false."""
    is_path = isinstance(source, os.PathLike)
    if isinstance(source, str) and "\n" not in source and not source.startswith(("//", "/*", "#")):
        is_path = source.endswith(_ENDINGS) or (is_whole and len(source.split()) == 1 and "/" in source)
    if is_path:
        raise ArgumentError(f"{argument}={str(source)!r} is a path, not the text of a source", hints=(hint,))


def inline_units(name: object, sources: object, argument: str) -> tuple[Unit, ...]:
    """Make one unit of one or several source texts; messages name the texts after the module."""
    checked = check_name(name)
    refuse_path(sources, argument, _FROM_FILES)
    texts = [sources] if isinstance(sources, str) else sources
    if not isinstance(texts, (list, tuple)):
        raise ArgumentError(f"{argument} must be a string or a list of strings, not {type(sources).__name__}")
    for position, text in enumerate(texts):
        refuse_path(text, f"{argument}[{position}]", _FROM_FILES, is_whole=len(texts) == 1)
        if not isinstance(text, str):
            raise ArgumentError(f"{argument}[{position}] must be a string, not {type(text).__name__}")
    if not any(text.strip() for text in texts):
        raise ArgumentError(f"{argument} is empty")
    names = [checked] if len(texts) == 1 else [f"{checked}[{position}]" for position in range(len(texts))]
    parts = tuple(SourceText(name=part, text=text) for part, text in zip(names, texts, strict=True))
    return (Unit(stem=checked, sources=parts),)


def file_units(path: object) -> tuple[Unit, ...]:
    """Make one unit of each file; for files with equal stems, the stem begins with the folder's name."""
    given = list(path) if isinstance(path, (list, tuple)) else [path]
    files = [_existing_path(each, "path") for each in given]
    if not files:
        raise ArgumentError("path=[] names no file")
    for file in files:
        if file.is_dir():
            hint = "load a folder with load_cuda_dir or load_cpp_dir"
            raise SourceNotFoundError(f"{file} is a folder, not a file", hints=(hint,))
    counts = Counter(file.stem for file in files)
    stems = [file.stem if counts[file.stem] == 1 else f"{file.parent.name}.{file.stem}" for file in files]
    for stem, count in Counter(stems).items():
        if count > 1:
            alike = ", ".join(str(file) for file, each in zip(files, stems, strict=True) if each == stem)
            raise ArgumentError(f"path names several files whose unit would be {stem}: {alike}")
    return tuple(_file_unit(file, stem) for file, stem in zip(files, stems, strict=True))


def dir_units(path: object, language: Language) -> tuple[Unit, ...]:
    """Make one unit for each source file of a folder, sorted by name, without subfolders.

    Files whose names begin with a dot are left out, since editors and file systems make such copies.
    """
    folder = check_path(path, "directory")
    if not folder.is_dir():
        raise SourceNotFoundError(f"{folder} is not a folder" if folder.exists() else f"no such folder: {folder}")
    suffixes = SUFFIXES[language]
    shown = [file for file in folder.iterdir() if not file.name.startswith(".")]
    files = sorted(file for file in shown if file.suffix in suffixes and file.is_file())
    if not files:
        raise SourceNotFoundError(
            f"{folder} holds no source files", hints=(f"the names of sources end in {', '.join(suffixes)}",)
        )
    counts = Counter(file.stem for file in files)
    return tuple(_file_unit(file, file.stem if counts[file.stem] == 1 else file.name) for file in files)


def file_again(request: BuildRequest) -> tuple[Unit, ...]:
    """Read the files of a request again."""
    return file_units([unit.path for unit in request.units])


def dir_again(request: BuildRequest) -> tuple[Unit, ...]:
    """Read the folder of a request again; it may have other files now."""
    path = request.units[0].path
    assert path is not None, "a folder's units are files"
    return dir_units(path.parent, request.language)


def same_again(request: BuildRequest) -> tuple[Unit, ...]:
    """Return the units of a request unchanged, since their sources are texts."""
    return request.units


def default_name(path: object, name: object, argument: str = "path") -> str:
    """Return the given name, or else the name of the module's folder or of its first file."""
    if name is not None:
        return check_name(name)
    found = _existing_path(path[0] if isinstance(path, (list, tuple)) and path else path, argument)
    try:
        return check_name(found.name if found.is_dir() else found.stem)
    except ArgumentError as error:
        error.hints = (f"the module is named after {found}: pass another name=...", *error.hints)
        raise


def _existing_path(value: object, argument: str) -> Path:
    """Check a path; raise an error if it is the text of a source."""
    path = check_path(value, argument)
    if "\n" in str(path) and not os.path.lexists(path):
        raise ArgumentError(
            f"{argument}={str(value)!r} does not exist",
            hints=("load a source's text with load_cuda_inline or load_cpp_inline",),
        )
    return path


def _file_unit(file: Path, stem: str) -> Unit:
    if not {'"', "\n", "\r"}.isdisjoint(str(file)):
        raise ArgumentError(f"{str(file)!r} contains a quote or a line break, so no #include can name it")
    try:
        text = read_regular(file, LARGE).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        raise SourceNotFoundError(f"no such file: {file}") from None
    except OSError as error:
        raise SourceNotFoundError(f"{file} can't be read: {error.strerror}") from error
    return Unit(stem=stem, sources=(SourceText(name=str(file), text=text),), path=file)
