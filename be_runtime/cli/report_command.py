"""The command ``report``: describes what the compilers made of a file, a folder, a package or a library."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from be_runtime.cli.answer import Answer
from be_runtime.errors import ArgumentError, EntryPointNotFoundError, SourceNotFoundError
from be_runtime.generate.bind import bind
from be_runtime.load.pipeline import report_module
from be_runtime.load.process import PROCESS
from be_runtime.reports.make_report import report_library
from be_runtime.reports.module_report import ModuleReport, check_blocks
from be_runtime.request.arguments import (
    SUFFIXES,
    cpp_request,
    cuda_request,
    default_name,
    dir_units,
    file_units,
    load_options,
)
from be_runtime.request.options import BuildRequest, Language
from be_runtime.ship.declaration import FILE as DECLARATION
from be_runtime.ship.locate import locate_package
from be_runtime.ship.modules import request_of


def run(arguments: argparse.Namespace) -> Answer:
    """Report modules.

    Raises
    ------
    ArgumentError
        There is nothing of the kind, or a block size is no number of threads.
    ToolchainError, BuildError
        There is no compiler, or a source does not compile.
    """
    blocks = check_blocks(_numbers(arguments.blocks))
    reports = list(_reports(arguments, blocks))
    return Answer("\n\n".join(map(str, reports)), {"modules": [report.to_json() for report in reports]})


def _numbers(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(f"--blocks is {text!r}", hints=("pass numbers, such as --blocks 128,256",)) from None


def _reports(arguments: argparse.Namespace, blocks: tuple[int, ...]) -> Iterator[ModuleReport]:
    path = Path(arguments.source)
    session = PROCESS.session()
    if path.suffix == ".so" and path.is_file():
        yield report_library(path.stem, path, session.system, blocks)
        return
    for request in _requests(path, arguments.source, arguments.arch):
        wanted = request._replace(compile=request.compile._replace(line_info=arguments.line_info))
        yield report_module(wanted, load_options(request.name), session, blocks, loops=arguments.loops)


def _requests(path: Path, source: str, archs: str | None) -> list[BuildRequest]:
    """Return the requests of a file, of a folder's sources in each language, or of a package's modules."""
    if path.is_dir() and not (path / DECLARATION).is_file():
        languages: list[Language] = [
            each for each, endings in SUFFIXES.items() if any(file.suffix in endings for file in path.iterdir())
        ]
        if languages:
            return [_request(path, language, archs) for language in languages]
    language = next((each for each, endings in SUFFIXES.items() if path.suffix in endings), None)
    if language is not None:
        return [_request(path, language, archs)]
    if path.suffix and not path.is_dir():
        raise SourceNotFoundError(
            f"{source} is neither a source, a folder, a package nor a library",
            hints=("name a .cu, .cc, .cpp, .cxx or .so file, a folder of sources, or a package",),
        )
    package = locate_package(source, Path.cwd())
    assert package.root is not None, "a package that was found has a folder"
    modules = package.declaration().modules.values()
    requests = [request_of(package.name, package.root, declared)[0] for declared in modules]
    return [each if archs is None else each._replace(compute_capability=archs) for each in requests]


def _request(path: Path, language: Language, archs: str | None) -> BuildRequest:
    units = dir_units(path, language) if path.is_dir() else file_units(path)
    name = default_name(path.resolve(), None)
    request = (
        cuda_request(name, units, None, compute_capability=archs)
        if language == "cuda"
        else cpp_request(name, units, None)
    )
    try:
        bind(request)
    except EntryPointNotFoundError:  # kernels alone, without functions that JAX calls
        return request._replace(functions=[])
    return request
