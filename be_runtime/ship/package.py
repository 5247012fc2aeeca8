"""Load the prebuilt kernels of a package, or compile them from the package's sources."""

from __future__ import annotations

import contextlib
import importlib.resources
import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from be_runtime.call.resolve import CallSignature, signature_of_entry
from be_runtime.compile.codegen import bind
from be_runtime.errors import ArgumentError, BeRuntimeError, LoadError, RegistrationError, warn_caller
from be_runtime.frames import public
from be_runtime.load.load import register_module
from be_runtime.load.module import CompiledModule, ModuleInfo
from be_runtime.load.prebuilt import open_prebuilt
from be_runtime.load.process import PROCESS
from be_runtime.request.arguments import (
    cpp_request,
    cuda_request,
    dir_units,
    file_units,
    inline_units,
    load_options,
)
from be_runtime.request.options import BuildRequest, LoadOptions, Unit, note
from be_runtime.ship.declaration import FILE, Declaration, DeclaredModule, declared_function, name_of
from be_runtime.ship.package_store import KERNELS, Package, PackageStore, changed_source
from be_runtime.store.artifact import Artifact
from be_runtime.store.folder import MANIFEST
from be_runtime.store.index import (
    INDEX,
    ModuleRecord,
    reading,
)
from be_runtime.store.manifest import parse_manifest
from be_toolchain.errors import ToolchainError
from be_toolchain.machine.forks import ThreadLock

if TYPE_CHECKING:
    from be_runtime.load.platforms import PlatformModule

_CODE = frozenset([".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl"])


@public
def package_kernels(package: str) -> PackageKernels:
    """Return the kernels that a package declares in its ``kernels.toml``.

    Kernels that were built ahead of time, for example in a wheel, need no compiler. Other kernels are compiled at the
    first use. If ``BE_JIT=never`` is set, the first use of such a kernel raises an error instead. If ``BE_JIT=always``
    is set, all kernels are compiled at the first use, even kernels that were built ahead of time.

    Parameters
    ----------
    package : str
        Name of the package, such as ``__name__`` in its ``__init__.py``.

    Returns
    -------
    PackageKernels
        Object whose attributes are the modules, as in ``ops.module.function(...)``. If only one module defines a
        function, ``ops.function(...)`` also calls the function.

    Raises
    ------
    ArgumentError
        The package does not exist or declares no kernels.

    See Also
    --------
    - :doc:`/packages`: declare kernels and build wheels.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> ops = be_runtime.package_kernels("mykernels")  # doctest: +SKIP
    >>> ops.neurons.fire(jnp.arange(3.0))  # doctest: +SKIP
    """
    return PackageKernels(find_package(package))


class PackageKernels:
    """The kernels of a package: its modules, functions with unique names, and kernels without host code.

    A file is read, and a module loaded, at the first use.

    Parameters
    ----------
    package : Package
    """

    def __init__(self, package: Package) -> None:
        self.__own__ = _Kernels(package)  # underscores avoid a clash with kernels' names

    @public
    def __getattr__(self, name: str) -> Any:
        """Return a module, a kernel, or the only function of that name."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    @public
    def __getitem__(self, name: str) -> Any:
        """Return a module, a kernel, or the only function of that name.

        Raises
        ------
        AttributeError
            Nothing has the name, or functions of several modules have it.
        """
        return self.__own__.get(name)

    def __dir__(self) -> list[str]:
        """Return the names of modules, kernels and functions that are attributes."""
        return self.__own__.unique()

    def __repr__(self) -> str:
        return f"package_kernels({self.__own__.package.name!r})"


class _Kernels:
    """The kernels of a package, read and loaded on first use."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self._lock = ThreadLock()
        self._owners: dict[str, list[str]] | None = None
        self._with_parts: frozenset[str] = frozenset()
        self._store = PackageStore(package)
        self._made: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """Return a module, a kernel, or a function, loaded on first use; see `PackageKernels.__getitem__`."""
        with self._lock, _naming(self.package.name):
            if name not in self._made:
                self._made[name] = self._make(name)
            return self._made[name]

    def unique(self) -> list[str]:
        """Return the names of exactly one module, kernel or function."""
        with self._lock, _naming(self.package.name):
            names = self._names().items()
            return sorted(name for name, owners in names if not name.startswith("__") and len(owners) == 1)

    def _make(self, name: str) -> Any:
        owners = self._names().get(name)
        if owners is None:
            has = ", ".join(sorted(self._names()))
            raise AttributeError(f"{self.package.name} has no kernel {name!r}; it has {has}")
        if name in owners:
            return self._load_parts(name) if name in self._with_parts else self._load(name)
        if len(owners) > 1:
            ways = " or ".join(f"{each}.{name}" for each in owners)
            raise AttributeError(f"{self.package.name} has {name!r} in several modules: write {ways}")
        if owners[0] not in self._made:
            self._made[owners[0]] = self._make(owners[0])
        try:
            return self._made[owners[0]][name]
        except KeyError as error:  # the function is only for GPUs
            raise AttributeError(error.args[0]) from None

    def _names(self) -> dict[str, list[str]]:
        """Map each function to the modules that have it, and each module or kernel to itself."""
        if self._owners is None:
            modules, kernels = self._listed()
            owners: dict[str, list[str]] = {}
            for module, function in dict.fromkeys((name_of(key), each) for key in modules for each in modules[key]):
                owners.setdefault(function, []).append(module)
            self._owners = owners | {name: [name] for name in (*map(name_of, modules), *kernels)}
            self._with_parts = frozenset(name_of(key) for key in modules if name_of(key) != key)
        return self._owners

    def _listed(self) -> tuple[Mapping[str, Iterable[str]], Iterable[str]]:
        """List the functions of each module by the module's key, and the kernels, without loading code."""
        is_declared = PROCESS.settings().jit != "never" and (self.package.files / FILE).is_file()
        for artifact in self._store.artifacts():
            with reading(artifact.where):
                rows = (*artifact.table.modules.values(), *artifact.table.functions.values())
                if is_declared and any(changed_source(self.package.root, row["sources"]) for row in rows):
                    break  # other functions may be declared now
                table = artifact.table
                records = {name: ModuleRecord.read(row, artifact.where) for name, row in table.modules.items()}
                return {name: record.contents() for name, record in records.items()}, table.functions
        declared = self.package.declaration()
        return declared_signatures(self.package.name, self._root(), declared), declared.kernels

    def _load_parts(self, name: str) -> PlatformModule:
        """Load a module for two platforms: in C++, and in CUDA if there is a GPU, an architecture or prebuilt code."""
        from be_runtime.load.platforms import PlatformModule, has_archs  # it imports jax

        package, key = self.package, f"{name}:cuda"
        parts = {"cpp": self._load(f"{name}:cpp")}
        declared: Mapping[str, CallSignature] = {}
        is_here = self._store.get(key) is not None or bool(self._store.devices())
        if not is_here and PROCESS.settings().jit != "never":
            module = package.declaration().modules[key]
            is_here = has_archs(request_of(package.name, self._root(), module)[0], PROCESS.session())
            declared = {} if is_here else functions_of(package.name, self._root(), module)
        if is_here:
            parts["cuda"] = self._load(key)
        return PlatformModule(f"{package.name}.{name}", parts, declared)

    def _load(self, name: str) -> Any:
        """Load the prebuilt code of a module, by its key, or of a kernel; without such code, compile it."""
        package = self.package
        artifact = self._store.get(name)
        if artifact is not None:
            with reading(artifact.where):
                return self._open(name, artifact)
        reason, jit = self._store.explain(name), PROCESS.settings().jit
        if jit == "never":
            raise LoadError(
                f"{package.name}: no code of {name} that was built ahead of time can be used: {reason}",
                hints=(
                    "BE_JIT=missing compiles them here, if a compiler and the sources are there",
                    f"or build them for this machine: python -m be_runtime build {package.name}",
                ),
            )
        try:
            return self._compile(name)
        except (ToolchainError, LoadError) as error:
            if jit != "always":
                error.hints = (f"no code that was built ahead of time can be used: {reason}", *error.hints)
            raise

    def _open(self, name: str, artifact: Artifact) -> Any:
        """Load a module or a kernel of an artifact."""
        row = artifact.table.modules.get(name)
        if row is None:
            from be_runtime.ship.kernels import open_function

            return open_function(artifact.table.functions[name], artifact)
        record, full = ModuleRecord.read(row, artifact.where), f"{self.package.name}.{name_of(name)}"
        module = open_prebuilt(full, record, artifact, PROCESS.registry, captures_graphs=record.captures_graphs)
        note(ModuleInfo.of(module).content_hash)
        return _registered(module, full)

    def _compile(self, name: str) -> Any:
        """Compile a module or a kernel from the package's sources, unless the cache has it."""
        declared, root = self.package.declaration(), self._root()
        if name not in declared.modules:
            return declared_function(name, declared.kernels[name], self.package.name, root)
        request, options = request_of(self.package.name, root, declared.modules[name])
        module = PROCESS.load(request, options._replace(auto_register=False))
        try:
            manifest = parse_manifest((ModuleInfo.of(module).path.parents[1] / MANIFEST).read_bytes())
        except (OSError, ValueError):  # the folder has prebuilt modules
            pass
        else:
            refuse_read_links_out(f"modules.{name}", root, manifest.dependencies.paths)
        return _registered(module, options.target_prefix)

    def _root(self) -> Path:
        """Return the folder of the package's sources.

        Raises
        ------
        LoadError
            The package is in an archive, so it has no folder.
        """
        if self.package.root is None:
            raise LoadError(
                f"the sources of {self.package.name} are not files of a folder, so they can't be compiled",
                hints=("install the package instead of importing it from an archive",),
            )
        return self.package.root


def _registered(module: CompiledModule, prefix: str) -> CompiledModule:
    """Register a module's names, and return the module; if it was loaded before, the names keep the first code."""
    try:
        register_module(module, prefix, PROCESS.registry)
    except RegistrationError as error:
        text = f"{prefix} has changed: its functions call the new code, jax.ffi.ffi_call by name the old"
        warn_caller(f"{text}: {error.message}")
    return module


@contextlib.contextmanager
def _naming(package: str) -> Iterator[None]:
    """Add the package's name to errors of the block that lack it, such as errors of a compiler."""
    try:
        yield
    except (BeRuntimeError, ToolchainError) as error:
        if package not in error.message:
            error.message = f"{package}: {error.message}"
        raise


def find_package(name: str) -> Package:
    """Return an importable package that has kernels.

    Raises
    ------
    ArgumentError
        The package does not exist or has no kernels.
    """
    if not all(part.isidentifier() for part in str(name).split(".")):
        raise ArgumentError(f"{name!r} is not the name of a package", hints=("pass __name__ or __package__",))
    try:
        files = importlib.resources.files(name)
    except (ImportError, TypeError) as error:
        raise ArgumentError(f"the package {name!r} can't be imported: {error}") from None
    if not (files / FILE).is_file() and not (files / KERNELS / INDEX).is_file():
        hints = (
            f"add a {FILE} beside its __init__.py: the page 'Packages and wheels' shows one",
            "or add it to the package's data files",
        )
        raise ArgumentError(f"the package {name} has no kernels: neither {FILE} nor {KERNELS}/{INDEX}", hints=hints)
    return Package(name, files)


def locate_package(asked: str | None, here: Path) -> Package:
    """Return the package with a name or in a folder; without either, the only package below `here`.

    Raises
    ------
    ArgumentError
        The package does not exist, or there are several below the folder.
    """
    if asked is None:
        found = [path.parent for pattern in (f"*/{FILE}", f"src/*/{FILE}") for path in sorted(here.glob(pattern))]
        if len(found) != 1:
            names = ", ".join(str(path.relative_to(here)) for path in found) or "none"
            raise ArgumentError(
                f"several packages below this folder have a {FILE}: {names}",
                hints=('name it: python -m be_runtime build a.mykernels, or packages = ["a.mykernels"] for a wheel',),
            )
        return package_in(found[0])
    folder = Path(asked)
    if folder.is_dir():
        return package_in(folder)
    try:
        spec = importlib.util.find_spec(asked)
    except (ImportError, ValueError):
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise ArgumentError(
            f"{asked!r} is neither a package nor a folder", hints=("name the folder of its __init__.py",)
        )
    return Package(asked, Path(places[0]))


def package_in(folder: Path) -> Package:
    """Return the package in a folder; its name begins with the names of its parent packages."""
    root = folder.absolute().resolve()
    name, above = root.name, root.parent
    while (above / "__init__.py").is_file():
        name, above = f"{above.name}.{name}", above.parent
    return Package(name, root)


def request_of(package: str, root: Path, declared: DeclaredModule) -> tuple[BuildRequest, LoadOptions]:
    """Return the request for a declared module, and the options of its load.

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
        An option has an invalid value, or a source is missing.
    """
    options = dict(declared.options)
    folders = [root / path for path in options.get("extra_include_paths", ())]
    if folders:
        options["extra_include_paths"] = [*map(str, folders)]
    allow_cuda_graph = options.pop("allow_cuda_graph", True)
    sources = [root / source for source in declared.sources]
    refuse_links_out(f"modules.{declared.name}", root, sources, folders)
    name, functions = f"{package}.{declared.name}", declared.functions
    files: tuple[tuple[str, bytes], ...] = ()
    if declared.is_tvm_ffi:
        from be_runtime.kernels.tvm_ffi import library_source

        platform = "cuda" if declared.language == "cuda" else "cpu"
        text, data = library_source(sources[0], functions, platform=platform, owned=declared.owned)
        units, functions = inline_units(name, text, f"modules.{declared.name}"), None
        files = ((sources[0].name, data),)
        options["extra_ldflags"] = [*options.get("extra_ldflags", ()), "-ldl"]
    else:
        units = _units(root, sources, declared)
    make = cuda_request if declared.language == "cuda" else cpp_request
    if declared.language == "cuda":
        options.setdefault("active", "nonzero")  # BE_ACTIVE must not change a package's results
    request = make(name, units, functions, **options)._replace(files=files)
    return request, load_options(name, allow_cuda_graph=allow_cuda_graph)


def _units(root: Path, paths: Sequence[Path], declared: DeclaredModule) -> tuple[Unit, ...]:
    """Return the sources of a module; sources with equal stems get their paths as stems."""
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


def declared_signatures(package: str, root: Path, declaration: Declaration) -> dict[str, dict[str, CallSignature]]:
    """Return the signatures of each declared module's functions by the module's key, read from its sources.

    Raises
    ------
    ArgumentError, SourceNotFoundError, SpecError
        A source is missing, or an entry point is invalid.
    """
    return {key: functions_of(package, root, declared) for key, declared in declaration.modules.items()}


def functions_of(package: str, root: Path, declared: DeclaredModule) -> dict[str, CallSignature]:
    """Return the signatures of a declared module's functions; see `declared_signatures`."""
    bound = [binding for bindings in bind(request_of(package, root, declared)[0]).values() for binding in bindings]
    return {each.export: signature_of_entry(f"{declared.name}.{each.export}", each.entry) for each in bound}


def refuse_links_out(where: str, root: Path, sources: Iterable[Path], include_folders: Iterable[Path]) -> None:
    """Raise an error for links out of a package: sources, headers beside them, and files below folders of headers.

    Parameters
    ----------
    where : str
        Beginning of the message.
    root : Path
        Folder of the package, which may itself be a link.
    sources : iterable of Path
        Files and folders of sources, below `root`.
    include_folders : iterable of Path
        Folders of headers, below `root`.

    Raises
    ------
    ArgumentError
        There is such a link. The message names it and its target.
    """
    # An installer may make each file a link to its own copy of the package, which also has the declaration.
    own = (os.path.realpath(root), str((root / FILE).resolve().parent))
    for path in (*_with_links_beside(sources), *_with_links_below(include_folders)):
        if not _is_out(path, own):
            continue
        below = (each for each in (*reversed(path.parents), path) if each.is_relative_to(root))
        link = next(each for each in below if _is_out(each, own))
        raise ArgumentError(
            f"{where}: {link.relative_to(root)} is a link to {os.path.realpath(link)}, which is outside the package",
            hints=("put the file or folder itself there: a wheel has only the files of the package",),
        )


def refuse_read_links_out(where: str, root: Path, read: Iterable[str]) -> None:
    """Raise an error for links out of a package among the files that a compiler read; other outside files are allowed.

    Raises
    ------
    ArgumentError
        The compiler read such a link. The message names it and its target.
    """
    paths = (Path(os.path.normpath(each)) for each in read)
    refuse_links_out(where, root, [path for path in paths if path.is_relative_to(root)], ())


def _is_out(path: Path, own: tuple[str, ...]) -> bool:
    """Return whether the target of a path is outside the given folders."""
    target = f"{os.path.realpath(path)}/"
    return not target.startswith(tuple(f"{folder}/" for folder in own))


def _with_links_beside(paths: Iterable[Path]) -> Iterator[Path]:
    """List sources, and the links to code in their folders."""
    for path in paths:
        yield path
        folder = path if path.is_dir() else path.parent
        if folder.is_dir():
            yield from (each for each in folder.iterdir() if each.suffix in _CODE and each.is_symlink())


def _with_links_below(folders: Iterable[Path]) -> Iterator[Path]:
    """List folders of headers, and all links below them."""
    for folder in folders:
        yield folder
        for place, names, files in os.walk(folder):
            yield from (path for path in (Path(place, name) for name in (*names, *files)) if path.is_symlink())
