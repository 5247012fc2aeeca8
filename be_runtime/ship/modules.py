"""Compiled modules of a package: as they were built ahead of time, or compiled from the package's sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from be_runtime.bundle.mapped_images import Bundle
from be_runtime.bundle.module_record import ModuleRecord
from be_runtime.cache.folder.layout import MANIFEST
from be_runtime.cache.validity.manifest import parse_manifest
from be_runtime.errors import ArgumentError, LoadError, RegistrationError, warn_caller
from be_runtime.load.module import CompiledModule, ModuleInfo
from be_runtime.load.pipeline import open_bundled, register_module
from be_runtime.load.process import PROCESS
from be_runtime.request.arguments import cpp_request, cuda_request, dir_units, file_units, load_options
from be_runtime.request.noted import note
from be_runtime.request.options import BuildRequest, LoadOptions, Unit
from be_runtime.ship.declaration import DeclaredModule


def request_of(package: str, root: Path, declared: DeclaredModule) -> tuple[BuildRequest, LoadOptions]:
    """Make the request for a declared module from its sources.

    Parameters
    ----------
    package : str
        Name of the package, the first part of the targets' names.
    root : Path
        Folder of the package.
    declared : DeclaredModule

    Raises
    ------
    ArgumentError, SourceNotFoundError
        An option has a bad value, or a source is missing.
    """
    from be_runtime.ship.links_out import refuse_links_out  # what is built needs no sources

    options = dict(declared.options)
    folders = [root / path for path in options.get("extra_include_paths", ())]
    if folders:
        options["extra_include_paths"] = [*map(str, folders)]
    loading = {"allow_cuda_graph": options.pop("allow_cuda_graph", True)}
    sources = [root / source for source in declared.sources]
    refuse_links_out(f"modules.{declared.name}", root, sources, folders)
    units = _units(root, sources, declared)
    make = cuda_request if declared.language == "cuda" else cpp_request
    name = f"{package}.{declared.name}"
    return make(name, units, declared.functions, **options), load_options(name, **loading)


def _units(root: Path, paths: Sequence[Path], declared: DeclaredModule) -> tuple[Unit, ...]:
    found = [dir_units(path, declared.language) if path.is_dir() else file_units(path) for path in paths]
    units = [unit for each in found for unit in each]
    stems = [unit.stem for unit in units]
    twice = sorted(str(unit.path) for unit in units if [each.path for each in units].count(unit.path) > 1)
    if twice:
        raise ArgumentError(f"modules.{declared.name}: sources name {Path(twice[0]).relative_to(root)} twice")
    return tuple(
        unit
        if stems.count(unit.stem) == 1 or unit.path is None
        else unit._replace(stem=str(unit.path.relative_to(root)).replace("/", "."))
        for unit in units
    )


def open_module(package: str, name: str, record: ModuleRecord, bundle: Bundle) -> CompiledModule:
    """Load a module that was built ahead of time, and register its targets.

    Raises
    ------
    LoadError
        It is damaged, or not for this machine.
    """
    full, captures = f"{package}.{name}", record.captures_graphs
    module = open_bundled(full, record, bundle, PROCESS.registry, captures_graphs=captures)
    note(ModuleInfo.of(module).content_hash)
    return _registered(module, full)


def jit_module(package: str, root: Path, declared: DeclaredModule) -> CompiledModule:
    """Compile a module from the package's sources, unless the cache has it; see `request_of`."""
    request, options = request_of(package, root, declared)
    module = PROCESS.load(request, options._replace(auto_register=False))
    _refuse_read_links(f"modules.{declared.name}", root, ModuleInfo.of(module).path.parent)
    return _registered(module, options.target_prefix)


def _refuse_read_links(where: str, root: Path, entry: Path) -> None:
    """Refuse a module whose compiler read files of the package through links out of it, by the cache's record."""
    try:
        files = parse_manifest((entry / MANIFEST).read_bytes()).dependencies.paths
    except (OSError, ValueError):  # of a folder of prebuilt modules
        return
    from be_runtime.ship.links_out import refuse_read_links_out

    refuse_read_links_out(where, root, files)


def _registered(module: CompiledModule, prefix: str) -> CompiledModule:
    """Register a module's targets; after an edit and a reload, the names stay with what the process loaded first."""
    try:
        register_module(module, prefix, PROCESS.registry)
    except RegistrationError as error:
        text = f"{prefix} has changed: its functions call the new code, jax.ffi.ffi_call by name the old"
        warn_caller(f"{text}: {error.message}")
    return module


def refusal(package: str, name: str, reason: str) -> LoadError:
    """Return the error for a module that can't be had without a compiler."""
    return LoadError(
        f"{package}: the kernels of {name} can't be loaded as they were built ahead of time: {reason}",
        hints=(
            "BE_JIT=missing compiles them here, if a compiler and the sources are there",
            f"or build them for this machine: python -m be_runtime build {package}",
        ),
    )
