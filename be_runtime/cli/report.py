"""The command ``report``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from be_runtime.cli import main, stubs
from be_runtime.compile.codegen import bind
from be_runtime.errors import ArgumentError, EntryPointNotFoundError, SourceNotFoundError
from be_runtime.load import load, process
from be_runtime.report import ModuleReport, check_blocks, report_library
from be_runtime.request.arguments import cpp_request, cuda_request, default_name, load_options
from be_runtime.request.options import BuildRequest, Language, Unit
from be_runtime.ship.declaration import FILE as DECLARATION
from be_runtime.ship.package import locate_package, request_of


def run_report(arguments: argparse.Namespace) -> main.Answer:
    """Report the compiled code of modules.

    Raises
    ------
    ArgumentError
        The source or package does not exist, or a block size is not an integer from 1 to 1024.
    ToolchainError, BuildError
        There is no compiler, or a source does not compile.
    """
    text = arguments.blocks
    try:
        numbers = None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(f"--blocks is {text!r}", hints=("pass numbers, such as --blocks 128,256",)) from None
    reports = list(_reports(arguments, check_blocks(numbers)))
    return main.Answer("\n\n".join(map(str, reports)), {"modules": [report.to_json() for report in reports]})


def _reports(arguments: argparse.Namespace, blocks: tuple[int, ...]) -> Iterator[ModuleReport]:
    path = Path(arguments.source)
    session = process.PROCESS.session()
    if path.suffix == ".so" and path.is_file():
        yield report_library(path.stem, path, session.system, blocks)
        return
    for request in _requests(path, arguments.source, arguments.arch):
        yield load.report_module(request, load_options(request.name), session, blocks, loops=arguments.loops)


def _requests(path: Path, source: str, archs: str | None) -> list[BuildRequest]:
    """Return the requests for a file, for a folder's sources in each language, or for a package's modules."""
    units = {} if (path / DECLARATION).is_file() else stubs.units_of(path)
    if units:
        return [_request(path, language, found, archs) for language, found in units.items()]
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


def _request(path: Path, language: Language, units: tuple[Unit, ...], archs: str | None) -> BuildRequest:
    name = default_name(path.resolve(), None)
    if language == "cuda":
        active = process.PROCESS.settings().active
        request = cuda_request(name, units, None, compute_capability=archs, active=active)
    else:
        request = cpp_request(name, units, None)
    try:
        bind(request)
    except EntryPointNotFoundError:  # kernels alone, without functions that JAX calls
        return request._replace(functions=[])
    return request
