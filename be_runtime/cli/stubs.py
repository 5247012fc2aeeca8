"""The command ``stubs``."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import tokenize
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from be_runtime import errors, stubs
from be_runtime.call.resolve import signature_of_entry
from be_runtime.call.signature import call_text, require_same
from be_runtime.cli.main import Answer
from be_runtime.compile.codegen import bind
from be_runtime.load.module import OWN, PLATFORM_OWN, LoadedModule, ModuleInfo
from be_runtime.request.arguments import SUFFIXES, dir_units, file_units
from be_runtime.request.options import BuildRequest, CompileOptions, Language, Unit
from be_runtime.ship.declaration import FILE as DECLARATION
from be_runtime.ship.declaration import name_of
from be_runtime.ship.package import PackageKernels, declared_signatures, package_in
from be_runtime.ship.package_store import Package
from be_runtime.store.cache import replace_file
from be_toolchain.errors import ToolchainError
from be_toolchain.machine.trust import read_regular


class Stub(NamedTuple):
    """A stub: its file, its text and the names of its functions and classes."""

    path: Path
    text: str
    names: tuple[str, ...]


def run_stubs(arguments: argparse.Namespace) -> Answer:
    """Write a stub.

    Raises
    ------
    ArgumentError
        The source or module does not exist or has no kernels, or the file can't be written.
    SpecError
        An arg_spec is invalid.
    """
    stub = _make_stub(arguments.source)
    path = arguments.output or stub.path
    _write(path, stub.text)
    return Answer(f"{path}: {', '.join(stub.names)}", {"stub": str(path), "names": list(stub.names)})


def _make_stub(source: str) -> Stub:
    """Return the stub of a package, of a folder or file of sources, or of a Python module."""
    path = Path(source)
    if (path / DECLARATION).is_file():
        package = package_in(path)
        sys.path.insert(0, str(path.resolve().parents[package.name.count(".")]))
        return _module_stub(package.name)
    units = units_of(path)
    if units:
        return _source_stub(path, units)
    if not all(part.isidentifier() for part in source.split(".")) or path.suffix == ".py":
        raise errors.SourceNotFoundError(
            f"{source} is neither a folder or a file of C++ or CUDA sources, nor the name of a Python module",
            hints=("for package/module.py, write package.module",),
        )
    return _module_stub(source)


def units_of(path: Path) -> dict[Language, tuple[Unit, ...]]:
    """Return the sources of a file or a folder by language; empty for any other path."""
    units: dict[Language, tuple[Unit, ...]] = {}
    for language, suffixes in SUFFIXES.items():
        if path.is_dir() and any(file for suffix in suffixes for file in path.glob(f"[!.]*{suffix}")):
            units[language] = dir_units(path, language)
        elif path.suffix in suffixes:
            units[language] = file_units(path)
    return units


def _source_stub(path: Path, units: dict[Language, tuple[Unit, ...]]) -> Stub:
    """Return the stub of sources: a class for each language if their signatures differ, and one for both."""
    path = path.resolve() if path.name in ("", "..") else path
    name = path.name if path.is_dir() else path.stem
    functions = {language: _functions(name, language, found) for language, found in units.items()}
    calls = {frozenset((each.name, call_text(each.signature)) for each in found) for found in functions.values()}
    is_one, kind = len(calls) == 1, stubs.class_name(name)
    classes = {f"{kind}{'' if is_one else stubs.class_name(each)}": _module(found) for each, found in functions.items()}
    if len(functions) > 1:
        with contextlib.suppress(errors.SpecError):  # `load_dir` refuses both then
            classes[f"{kind}Both"] = _platform_module(_merged(functions["cpp"], functions["cuda"]))
    text = stubs.render_stub([stubs.render_class(each, module) for each, module in classes.items()])
    file = path.with_name(f"{re.sub(r'[^0-9A-Za-z_]', '_', name)}_types.pyi")
    if file.with_suffix(".py").exists():
        raise errors.ArgumentError(f"{file} would hide {file.stem}.py", hints=("pass --output FILE",))
    return Stub(file, text, tuple(classes))


def _module(functions: Sequence[stubs.StubFunction]) -> stubs.StubModule:
    return stubs.StubModule(functions, hidden=OWN)


def _platform_module(functions: Sequence[stubs.StubFunction]) -> stubs.StubModule:
    return stubs.StubModule(functions, "LoadedPlatformModule", kept=PLATFORM_OWN)


def _merged(cpp: Sequence[stubs.StubFunction], cuda: Sequence[stubs.StubFunction]) -> list[stubs.StubFunction]:
    """Return the functions of one module for two platforms.

    Raises
    ------
    SpecError
        Two functions of one name are declared differently.
    """
    found = {each.name: each for each in cpp}
    for each in cuda:
        require_same(found.setdefault(each.name, each).signature, each.signature)
    return [*found.values()]


def _functions(name: str, language: Language, units: tuple[Unit, ...]) -> list[stubs.StubFunction]:
    try:
        bound = bind(BuildRequest(name, language, units, functions=None, compile=CompileOptions()))
    except errors.EntryPointNotFoundError as error:
        error.hints = (*error.hints, "or name the Python module that loads it with functions=")
        raise
    found = [(binding.export, binding.entry) for bindings in bound.values() for binding in bindings]
    return [stubs.StubFunction(export, signature_of_entry(f"{name}.{export}", entry)) for export, entry in found]


def _module_stub(name: str) -> Stub:
    """Import a Python module, and return the stub of its kernels and modules of kernels."""
    module = _imported(name)
    file = Path(getattr(module, "__file__", None) or "")
    if file.suffix != ".py":
        raise errors.SourceNotFoundError(f"{name} has no Python source")
    with tokenize.open(file) as opened:
        source = opened.read()
    elsewhere = stubs.imported_names(source)
    values = {each: value for each, value in vars(module).items() if each.isidentifier() and each not in elsewhere}
    parts = {each: text for each, value in values.items() if (text := _declaration(each, value))}
    if not parts:
        raise errors.ArgumentError(f"{name} has no kernels among its names", hints=("name the module that loads them",))
    public = [each for each in values if not each.startswith("_")]
    return Stub(
        file.with_suffix(".pyi"),
        stubs.render_stub(parts.values(), python=stubs.python_stub(source, parts, public)),
        tuple(parts),
    )


def _imported(name: str) -> ModuleType:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return import_module(name)
    except (errors.BeRuntimeError, ToolchainError):
        raise
    except (Exception, SystemExit) as error:
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        raised = f"raised at {frame.f_code.co_filename}:{line}"
        raise errors.ArgumentError(
            f"{name} can't be imported: {type(error).__name__}: {error}",
            hints=() if "<frozen" in raised else (raised,),
        ) from error


def _declaration(name: str, value: object) -> str:
    """Return the declaration of a kernel or a module of kernels; empty for any other value."""
    from be_runtime.call.function import KernelFunction  # it imports jax, which sources don't need
    from be_runtime.load.platforms import LoadedPlatformModule

    if isinstance(value, KernelFunction):
        return stubs.render_function(stubs.StubFunction(name, value.signature, value.has_outs))
    if isinstance(value, LoadedModule | LoadedPlatformModule):
        if isinstance(value, LoadedModule):
            info = ModuleInfo.of(value)
            module = _module([stubs.StubFunction(each, value[each].signature) for each in info.function_names])
        else:
            module = _platform_module([stubs.StubFunction(*each) for each in value.declarations().items()])
        kind = f"_{stubs.class_name(name)}"
        return f"{stubs.render_class(kind, module)}\n{name}: {kind}\n"
    if isinstance(value, PackageKernels):
        return _package_declaration(name, value.__own__.package)
    return ""


def _package_declaration(name: str, package: Package) -> str:
    """Return the declaration of a package's kernels, read from its sources."""
    if package.root is None:
        raise errors.SourceNotFoundError(f"the sources of {package.name} are not files of a folder")
    declared = package.declaration()
    signatures = declared_signatures(package.name, package.root, declared)
    found = {key: [stubs.StubFunction(*each) for each in functions.items()] for key, functions in signatures.items()}
    modules = {name_of(key): _module(functions) for key, functions in found.items()}
    for cpp, cuda in declared.platform_parts():
        modules[cpp.name] = _platform_module(_merged(found[cpp.key], found[cuda.key]))
    kind = f"_{stubs.class_name(name)}"
    return f"{stubs.render_package(kind, modules, declared.kernels)}\n{name}: {kind}\n"


def _write(path: Path, text: str) -> None:
    """Write a stub by one rename, unless the file is not a stub of this command."""
    try:
        if path.exists() and not read_regular(path).startswith(stubs.MARK.encode()):
            raise errors.ArgumentError(
                f"{path} was not written by this command", hints=("remove it, or pass --output FILE",)
            )
        replace_file(str(path), text.encode(errors="backslashreplace"), mode=0o666)
    except OSError as error:
        raise errors.ArgumentError(f"{path} can't be written: {error.strerror}") from None
