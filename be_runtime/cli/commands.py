"""The command ``tune``: times what a package tunes on this machine, and writes the choices into the package."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import tokenize
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from be_runtime.call.resolve import signature_of_entry
from be_runtime.call.signature import call_text
from be_runtime.cli.main import Answer, refusal, size_text
from be_runtime.compile.codegen import bind
from be_runtime.debugging.check import Outcome, check_program, choose_tools, lacking_tools
from be_runtime.debugging.sanitizers import Invocation, as_json, find_detectors, render
from be_runtime.errors import ArgumentError, BeRuntimeError, EntryPointNotFoundError, SourceNotFoundError
from be_runtime.load.load import report_module
from be_runtime.load.module import OWN, LoadedModule, ModuleInfo
from be_runtime.load.process import PROCESS
from be_runtime.own_files import CMAKE_DIR
from be_runtime.report import ModuleReport, check_blocks, report_library
from be_runtime.request.arguments import (
    SUFFIXES,
    cpp_request,
    cuda_request,
    default_name,
    dir_units,
    file_units,
    load_options,
)
from be_runtime.request.options import BuildRequest, CompileOptions, Language, Unit
from be_runtime.ship.build import Built, PartReport, build_package
from be_runtime.ship.declaration import FILE as DECLARATION
from be_runtime.ship.package import locate_package, package_in, request_of
from be_runtime.ship.show import describe_file, render_description
from be_runtime.stubs import (
    MARK,
    StubFunction,
    class_name,
    imported_names,
    python_stub,
    render_class,
    render_function,
    render_package,
    render_stub,
)
from be_runtime.tune.tuned import Declared, argument_sets
from be_toolchain.cli.main import explain, list_titles, titles
from be_toolchain.errors import ToolchainError
from be_toolchain.find.record import device_archs
from be_toolchain.machine.trust import read_regular
from be_toolchain.terminal import WORKS, say

if TYPE_CHECKING:
    from be_runtime.ship.package import Package


def run_build(arguments: argparse.Namespace) -> Answer:
    """Build a package's kernels.

    Raises
    ------
    ArgumentError
        There is no such package, or its declaration is wrong.
    ToolchainError, BuildError
        There is no compiler, or a source does not compile.
    """
    package = locate_package(arguments.package, Path.cwd())
    archs = None if arguments.archs is None else arguments.archs.split(",")
    tell = (lambda _report: None) if arguments.json else _tell
    built = build_package(package, archs=archs, out=arguments.out, standalone=arguments.standalone, tell=tell)
    return Answer(_summary(built), _data(built))


def _tell(report: PartReport) -> None:
    """Say on standard error that a part is ready."""
    say(f"{report.name:<24} {report.language:<6} {report.seconds:6.1f} s {size_text(report.size):>10}", sys.stderr)


def _summary(built: Built) -> str:
    total = sum(image.size for image in built.table.images.values())
    counts = f"modules and kernels: {len(built.reports)}, images: {len(built.table.images)}"
    return f"{built.folder}: {size_text(total)}, {counts}"


def _data(built: Built) -> dict[str, object]:
    return {
        "folder": str(built.folder),
        "parts": [report._asdict() for report in built.reports],
        "images": {digest: image._asdict() for digest, image in built.table.images.items()},
        "targets": sorted(built.table.targets),
    }


CACHE_COMMANDS = {
    "clear": ("cache_change", "clear"),
    "export": ("cache_change", "export"),
    "import": ("cache_change", "import_file"),
    "keygen": ("cache_change", "keygen"),
    "list": ("cache_show", "list_entries"),
    "path": ("cache_show", "path"),
    "prune": ("cache_change", "prune"),
    "show": ("cache_show", "show"),
    "sign": ("cache_change", "sign"),
    "stats": ("cache_show", "stats"),
    "verify": ("cache_show", "verify"),
    "why": ("cache_show", "why"),
}
"""The module and the function of each command."""


def run_cache(arguments: argparse.Namespace) -> Answer:
    """Run one of the commands.

    Raises
    ------
    ArgumentError
        There is nothing of the name.
    CacheError
        The cache can't be used, or another user could put files there.
    """
    module, function = CACHE_COMMANDS[arguments.subcommand]
    command: Callable[[argparse.Namespace], Answer] = getattr(import_module(f"be_runtime.cli.{module}"), function)
    return command(arguments)


FOUND, FAILED_BY_ITSELF = 1, 2
"""Exit codes: something was found; nothing was, but the program failed, or a tool is not here."""


def run_check(arguments: argparse.Namespace) -> Answer:
    """Run the program and return what was found."""
    words = arguments.module or arguments.program
    if not words:
        return _refused("there is no program to check", "python -m be_runtime check SCRIPT [ARGUMENT ...]")
    if not arguments.module and not Path(words[0]).is_file():
        return _refused(f"there is no script {words[0]}", "to run a module, write -m before its name")
    program = Invocation(words[0], tuple(words[1:]), is_module=bool(arguments.module))
    from be_runtime.load.process import PROCESS

    session = PROCESS.session()
    found = find_detectors(session.system, session.record_dir)
    wanted = arguments.tools.split(",") if arguments.tools else None
    has_gpu = bool(device_archs(session.system, session.record_dir))
    try:
        tools = choose_tools(wanted, found, has_gpu=has_gpu)
    except ArgumentError as error:
        return refusal(error)._replace(code=FAILED_BY_ITSELF)
    outcome = check_program(
        program,
        tools,
        found,
        lacking={} if wanted else lacking_tools(found, has_gpu=has_gpu),
        timeout_s=arguments.timeout,
        say=lambda text: say(f"check: {text}", sys.stderr),
    )
    return _answer(outcome)


def _answer(outcome: Outcome) -> Answer:
    findings = outcome.findings
    text = render(outcome.runs, findings)
    if outcome.error:
        text = f"{text}\n{outcome.error}"
    code = FOUND if any(each.certain for each in findings) else FAILED_BY_ITSELF if outcome.error else WORKS
    return Answer(text, {**as_json(outcome.runs, findings), "error": outcome.error, "exit_code": code}, code)


def _refused(message: str, hint: str) -> Answer:
    return refusal(ArgumentError(message, hints=(hint,)))._replace(code=FAILED_BY_ITSELF)


def run_cmake(_arguments: argparse.Namespace) -> Answer:
    """Say the folder that CMake is told as ``BeRuntime_ROOT``."""
    return Answer(str(CMAKE_DIR), {"folder": str(CMAKE_DIR)})


def run_explain(arguments: argparse.Namespace) -> Answer:
    """Return a code's section of the page of errors; all codes with their titles without one.

    Raises
    ------
    ArgumentError
        No error has that code.
    """
    if arguments.code is None:
        return Answer(list_titles(), {"codes": titles()})
    try:
        text = explain(arguments.code)
    except ValueError as error:
        raise ArgumentError(str(error), hints=("pass the code at the end of an error's text",)) from None
    return Answer(text, {"code": arguments.code.upper(), "text": text})


def run_report(arguments: argparse.Namespace) -> Answer:
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
        yield report_module(wanted, load_options(request.name), session, blocks)


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


def run_show(arguments: argparse.Namespace) -> Answer:
    """Describe what was built ahead of time, without loading it.

    Raises
    ------
    ArgumentError
        There is nothing of the kind.
    LoadError
        It is damaged, or of a format that this release does not read.
    """
    path = arguments.file
    if not path.exists():
        with contextlib.suppress(ArgumentError):
            path = locate_package(str(path), Path.cwd()).root or path
    found = describe_file(path)
    return Answer("\n".join(map(render_description, found)), {"bundles": found})


class Stub(NamedTuple):
    """A stub to be written: its file, its text and the names of its functions and classes."""

    path: Path
    text: str
    names: tuple[str, ...]


def run_stubs(arguments: argparse.Namespace) -> Answer:
    """Write a stub.

    Raises
    ------
    ArgumentError
        There is no such source or module, it has no kernels, or the file can't be written.
    SpecError
        The entry points can't be understood.
    """
    stub = make_stub(arguments.source)
    path = arguments.output or stub.path
    _write(path, stub.text)
    return Answer(f"{path}: {', '.join(stub.names)}", {"stub": str(path), "names": list(stub.names)})


def make_stub(source: str) -> Stub:
    """Make the stub of a folder or file of sources, else of a Python module."""
    path = Path(source)
    if (path / DECLARATION).is_file():
        package = package_in(path)
        sys.path.insert(0, str(path.resolve().parents[package.name.count(".")]))
        return _module_stub(package.name)
    units: dict[Language, tuple[Unit, ...]] = {}
    for language, suffixes in SUFFIXES.items():
        if path.is_dir() and any(file for suffix in suffixes for file in path.glob(f"[!.]*{suffix}")):
            units[language] = dir_units(path, language)
        elif path.suffix in suffixes:
            units[language] = file_units(path)
    if units:
        return _source_stub(path, units)
    if not all(part.isidentifier() for part in source.split(".")) or path.suffix == ".py":
        raise SourceNotFoundError(
            f"{source} is neither a folder or a file of C++ or CUDA sources, nor the name of a Python module",
            hints=("for package/module.py, write package.module",),
        )
    return _module_stub(source)


def _source_stub(path: Path, units: dict[Language, tuple[Unit, ...]]) -> Stub:
    """Make the stub of sources: a class for each load function that takes them, or one if they have one signature."""
    path = path.resolve() if path.name in ("", "..") else path
    name = path.name if path.is_dir() else path.stem
    functions = {language: _functions(name, language, found) for language, found in units.items()}
    if len({frozenset((each.name, call_text(each.signature)) for each in found) for found in functions.values()}) == 1:
        functions = dict(list(functions.items())[-1:])
    suffixes = {language: class_name(language) if len(functions) > 1 else "" for language in functions}
    classes = {f"{class_name(name)}{suffixes[language]}": each for language, each in functions.items()}
    text = render_stub([render_class(each, found, hidden=OWN) for each, found in classes.items()])
    file = path.with_name(f"{re.sub(r'[^0-9A-Za-z_]', '_', name)}_types.pyi")
    if file.with_suffix(".py").exists():
        raise ArgumentError(f"{file} would hide {file.stem}.py", hints=("pass --output FILE",))
    return Stub(file, text, tuple(classes))


def _functions(name: str, language: Language, units: tuple[Unit, ...]) -> list[StubFunction]:
    try:
        bound = bind(BuildRequest(name, language, units, functions=None, compile=CompileOptions()))
    except EntryPointNotFoundError as error:
        error.hints = (*error.hints, "or name the Python module that loads it with functions=")
        raise
    found = [(binding.export, binding.entry) for bindings in bound.values() for binding in bindings]
    return [StubFunction(export, signature_of_entry(f"{name}.{export}", entry)) for export, entry in found]


def _module_stub(name: str) -> Stub:
    """Make the stub of a Python module; its kernels and modules of kernels are known when it has been imported."""
    module = _imported(name)
    file = Path(getattr(module, "__file__", None) or "")
    if file.suffix != ".py":
        raise SourceNotFoundError(f"{name} has no Python source")
    with tokenize.open(file) as opened:
        source = opened.read()
    elsewhere = imported_names(source)
    values = {each: value for each, value in vars(module).items() if each.isidentifier() and each not in elsewhere}
    parts = {each: text for each, value in values.items() if (text := _declaration(each, value))}
    if not parts:
        raise ArgumentError(f"{name} has no kernels among its names", hints=("name the module that loads them",))
    public = [each for each in values if not each.startswith("_")]
    return Stub(
        file.with_suffix(".pyi"), render_stub(parts.values(), python=python_stub(source, parts, public)), tuple(parts)
    )


def _imported(name: str) -> ModuleType:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return import_module(name)
    except (BeRuntimeError, ToolchainError):
        raise
    except (Exception, SystemExit) as error:
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        raised = f"raised at {frame.f_code.co_filename}:{line}"
        raise ArgumentError(
            f"{name} can't be imported: {type(error).__name__}: {error}",
            hints=() if "<frozen" in raised else (raised,),
        ) from error


def _declaration(name: str, value: object) -> str:
    """Declare a kernel or a module of kernels; empty for any other value."""
    from be_runtime.call.function import KernelFunction  # it imports jax, which sources don't need
    from be_runtime.ship.package import PackageKernels, package_of

    if isinstance(value, KernelFunction):
        return render_function(StubFunction(name, value.signature, value.has_outs))
    if isinstance(value, LoadedModule):
        functions = [StubFunction(each, value[each].signature) for each in ModuleInfo.of(value).function_names]
        kind = f"_{class_name(name)}"
        return f"{render_class(kind, functions, hidden=OWN)}\n{name}: {kind}\n"
    if isinstance(value, PackageKernels):
        return _package_declaration(name, package_of(value))
    return ""


def _package_declaration(name: str, package: Package) -> str:
    """Declare the kernels of a package, as its sources have them."""
    from be_runtime.ship.package import declared_signatures

    if package.root is None:
        raise SourceNotFoundError(f"the sources of {package.name} are not files of a folder")
    declared = package.declaration()
    modules = {
        module: [StubFunction(function, signature) for function, signature in functions.items()]
        for module, functions in declared_signatures(package.name, package.root, declared).items()
    }
    kind = f"_{class_name(name)}"
    return f"{render_package(kind, modules, declared.kernels, hidden=OWN)}\n{name}: {kind}\n"


def _write(path: Path, text: str) -> None:
    """Write a stub by one rename, unless the file is somebody else's."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.exists() and not read_regular(path).startswith(MARK.encode()):
            raise ArgumentError(f"{path} was not written by this command", hints=("remove it, or pass --output FILE",))
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ArgumentError(f"{path} can't be written: {error.strerror}") from None


def run_tune(arguments: argparse.Namespace) -> Answer:
    """Tune a package.

    Raises
    ------
    ArgumentError
        There is no such package, it tunes nothing, or its file can't be written.
    Exception
        Whatever the first configuration raises, if none works.
    """
    package = locate_package(arguments.package, Path.cwd())
    if package.root is None:
        raise ArgumentError(f"{package.name} is not a folder, so no choices can be kept in it")
    above = str(package.root.resolve().parents[package.name.count(".")])
    sys.path[:0] = [] if above in sys.path else [above]
    import_module(package.name)
    found = [each for each in PROCESS.only(Declared, Declared).found if each.package == package.name]
    sets = [(tuned, arrays) for tuned in found for arrays in argument_sets(tuned.args)]
    if not sets:
        raise ArgumentError(
            f"{package.name} declares nothing to tune",
            hints=(f"call be_runtime.autotune(op, configs, args, package={package.name!r}) in it",),
        )
    tunings = [(tuned.name, tuned.tune(*arrays)) for tuned, arrays in sets]
    for tuned in found:
        path = tuned.save(package.root)
    data = [{"name": name, "bucket": each.bucket, "chosen": each.chosen} for name, each in tunings]
    text = "\n\n".join(f"{name}: {each}" for name, each in tunings)
    return Answer(f"{text}\n\n{path}", {"file": str(path), "tunings": data})
