"""Build a package's kernels ahead of time, into an artifact whose bytes do not depend on the package's folder."""

from __future__ import annotations

import hashlib
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.call.signature import require_same
from be_runtime.compile.parallel import run_parallel
from be_runtime.errors import ArgumentError, BeRuntimeError
from be_runtime.load import identity, load, process
from be_runtime.request.arguments import SUFFIXES
from be_runtime.request.options import BuildRequest
from be_runtime.ship.declaration import Declaration, DeclaredModule, name_of, read_table
from be_runtime.ship.package import functions_of, refuse_read_links_out, request_of
from be_runtime.ship.package_store import KERNELS, MISSING, Package, Part, record_sources
from be_runtime.store import artifact, cache, images
from be_runtime.store.index import Demand, ImageTarget, Index, ModuleRecord, target_name
from be_toolchain.arch import parse_archs
from be_toolchain.terminal import many

_WITHOUT_ARCHS = {"numba", "cubin"}
"""Kernel languages without a choice of architectures."""


class PartReport(NamedTuple):
    """The build of one module or kernel.

    Parameters
    ----------
    name, language : str
    seconds : float
    size : int
        Bytes of the images.
    """

    name: str
    language: str
    seconds: float
    size: int


class Built(NamedTuple):
    """A package's artifact.

    Parameters
    ----------
    folder : Path
    table : Index
    reports : tuple of PartReport
    """

    folder: Path
    table: Index
    reports: tuple[PartReport, ...]

    @property
    def summary(self) -> str:
        """The numbers of modules, kernels and images."""
        modules = {name_of(key) for key in self.table.modules}
        kernels = {each.name for each in self.reports} - modules
        counts = ((modules, "module"), (kernels, "kernel"), (self.table.images, "image"))
        return ", ".join(many(len(found), noun) for found, noun in counts if found)

    @property
    def size(self) -> int:
        """Bytes of the images."""
        return sum(image.size for image in self.table.images.values())


def build_package(
    package: Package,
    *,
    archs: Sequence[str] | None = None,
    out: Path | None = None,
    tell: Callable[[PartReport], None] = lambda _report: None,
) -> Built:
    """Build all modules and kernels that a package declares.

    Parameters
    ----------
    package : Package
    archs : sequence of str, optional
        Architectures of CUDA code instead of the declared architectures.
    out : Path, optional
        Folder of the artifact instead of ``_kernels`` in the package. An artifact in it is replaced at the end.
    tell : callable
        Function that is called with the report of each module or kernel.

    Raises
    ------
    ArgumentError
        The declaration is invalid, or declares CUDA code without an architecture.
    ToolchainError, BuildError
        There is no compiler, or a source does not compile.
    """
    root = package.root
    if root is None:
        raise ArgumentError(f"{package.name} is not a folder, so nothing can be built in it")
    declared = package.declaration()
    asked = archs or declared.archs
    chosen = tuple(map(str, parse_archs(",".join(asked)))) if asked else ()
    baseline = images.check_baseline(declared.baseline, platform.machine())
    if not chosen:
        _check_archs(package.name, declared)

    for pair in declared.platform_parts():
        _require_alike(package.name, root, *pair)
    languages: dict[str, str] = {key: module.language for key, module in declared.modules.items()}
    languages |= {name: read_table(name, table).language for name, table in declared.kernels.items()}

    def make(name: str) -> tuple[Part, PartReport]:
        start = time.monotonic()
        module = declared.modules.get(name)
        try:
            if module is not None:
                part = _module_part(package.name, root, module, chosen, baseline)
            else:
                from be_runtime.ship.kernels import build_function

                session = process.PROCESS.session()
                part = build_function(name, declared.kernels[name], package.name, root, chosen, baseline, session)
        except BeRuntimeError as error:
            table = "kernels" if module is None else "modules"
            error.hints = (*error.hints, f"it is declared as {table}.{name_of(name)} of {package.name}/kernels.toml")
            raise
        size = sum(len(data) for _, data in part.images.values())
        report = PartReport(name_of(name), languages[name], time.monotonic() - start, size)
        tell(report)
        return part, report

    above = str(root.parents[package.name.count(".")])
    sys.path.insert(0, above)  # the Python functions of kernels are in the package's own modules
    try:
        made = run_parallel(make, [*languages])
    finally:
        sys.path.remove(above)
    parts = [part for part, _ in made]
    _check_names(package.name, parts)
    index = _index_of(parts)
    folder = out or root / KERNELS
    artifact.write_folder(folder, index, {digest: data for part in parts for digest, (_, data) in part.images.items()})
    return Built(folder, index, tuple(report for _, report in made))


def _index_of(parts: Sequence[Part]) -> Index:
    """Merge parts into the index of an artifact."""
    return Index(
        machine=platform.machine(),
        images={digest: image for part in parts for digest, (image, _) in part.images.items()},
        targets={name: target for part in parts for name, target in part.targets.items()},
        kernels={name: row for part in parts for name, row in part.kernels.items()},
        modules={name: row for part in parts for name, row in part.modules.items()},
        functions={name: row for part in parts for name, row in part.functions.items()},
    )


def _check_archs(package: str, declared: Declaration) -> None:
    """Raise an error if CUDA code has no declared architecture."""
    tables = [(name, module.options) for name, module in declared.modules.items() if module.language == "cuda"]
    tables += [(name, table) for name, table in declared.kernels.items() if not table.keys() & _WITHOUT_ARCHS]
    on_gpu = [name for name, options in tables if "compute_capability" not in options]
    if on_gpu:
        raise ArgumentError(
            f"{package} declares CUDA code ({on_gpu[0]}) and no architecture to build it for",
            hints=("pass --archs 8.0,9.0,12.0", 'or write archs = ["8.0", "9.0"] in kernels.toml'),
        )


def _require_alike(package: str, root: Path, *parts: DeclaredModule) -> None:
    """Check that a module's functions have equal signatures in C++ and CUDA."""
    cpp, cuda = (functions_of(package, root, part) for part in parts)
    for function in cpp.keys() & cuda.keys():
        require_same(cpp[function], cuda[function])


def _check_names(package: str, parts: Sequence[Part]) -> None:
    """Check that no two functions are registered under one name."""
    owners: dict[str, str] = {}
    for module, row in ((name_of(key), row) for part in parts for key, row in part.modules.items()):
        for function in ModuleRecord(**row).contents():
            name = f"{package}.{module}.{function}"
            if owners.get(name, module) != module:
                raise ArgumentError(
                    f"modules.{owners[name]} and modules.{module} both have a target {name}",
                    hints=("rename one of them",),
                )
            owners[name] = module


def _module_part(package: str, root: Path, declared: DeclaredModule, archs: Sequence[str], baseline: str) -> Part:
    """Compile a module without paths of this machine."""
    request, options = request_of(package, root, declared)
    wanted = Demand(baseline, () if "compute_capability" in declared.options else tuple(archs))
    request = identity.portable_request(request, wanted, {root: package})
    built, contents, entry = load.build_library(request, options, process.PROCESS.session(), baseline)
    digest, platform_name = hashlib.sha256(built.data).hexdigest(), built.image.platform
    record = ModuleRecord(
        language=declared.language,
        image=digest,
        functions=contents,
        sources=dict(sorted(_sources(request, declared, entry, root))),
        captures_graphs=options.allow_cuda_graph,
    )
    targets = {}
    for handlers in built.functions.values():
        stages = handlers.stages(captures_graphs=record.captures_graphs and platform_name == "CUDA")
        targets[target_name(digest, stages["execute"])] = ImageTarget(digest, platform_name, stages)
    return Part({digest: (built.image, built.data)}, targets, modules={declared.key: record._asdict()})


def _sources(
    request: BuildRequest, declared: DeclaredModule, entry: cache.Entry, root: Path
) -> Iterator[tuple[str, str]]:
    """Yield the record of a module's inputs: hashes of files, missing headers, and suffixes in source folders."""
    units = [(unit.path, unit.sources[0].text) for unit in request.units if unit.path is not None]
    read = entry.manifest.dependencies.paths
    refuse_read_links_out(f"modules.{declared.name}", root, read)
    found = record_sources(root, map(Path, read))
    for path, text in units:
        found[str(path.relative_to(root))] = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    yield from found.items()
    names = {Path(name).name for name in found}
    for path in (Path(row.folder, name) for row in entry.manifest.absent for name in row.names):
        if path.is_relative_to(root) and path.name in names:
            yield str(path.relative_to(root)), MISSING
    known = {*SUFFIXES[declared.language], *(() if declared.is_part else SUFFIXES["cuda"])}
    suffixes = " ".join(sorted(known))
    yield from ((f"{source}/", suffixes) for source in declared.sources if (root / source).is_dir())
