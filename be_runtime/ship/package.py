"""`package_kernels`: the kernels that a package declares, compiled while one develops or built with its wheel."""

from __future__ import annotations

import contextlib
import importlib.resources
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from be_runtime.bundle.archs import lacking_arch
from be_runtime.bundle.index import INDEX, LARGEST_INDEX, parse_index, reading
from be_runtime.bundle.mapped_images import Bundle, open_trusted
from be_runtime.bundle.module_record import ModuleRecord
from be_runtime.errors import ArgumentError, BeRuntimeError, LoadError
from be_runtime.frames import public
from be_runtime.load.process import PROCESS
from be_runtime.ship.changes import changed_source
from be_runtime.ship.declaration import FILE, Declaration, parse_declaration
from be_runtime.ship.kernel_tables import declared_function
from be_runtime.ship.modules import jit_module, open_module, refusal
from be_toolchain.arch import Arch
from be_toolchain.errors import ToolchainError
from be_toolchain.find.device_memory import device_archs
from be_toolchain.machine.forks import ThreadLock
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.trust.regular_file import SMALL, read_part

KERNELS = "_kernels"
"""Folder of a package that holds its bundle."""


class Package(NamedTuple):
    """A package that has kernels.

    Parameters
    ----------
    name : str
    files : Traversable
        Its files: a folder, or a part of a zip.
    """

    name: str
    files: Traversable

    @property
    def root(self) -> Path | None:
        """The package's folder, if it is one."""
        return self.files if isinstance(self.files, Path) else None

    def declaration(self) -> Declaration:
        """Read what the package declares.

        Raises
        ------
        ArgumentError
            It declares nothing, or something that can't be understood.
        """
        where = f"{self.name}/{FILE}"
        try:
            text = read_part(self.files / FILE, SMALL).decode()
        except FileNotFoundError:
            raise ArgumentError(
                f"the package {self.name} has no {FILE}",
                hints=(f"add one beside {self.name}/__init__.py; see docs/packages.md",),
            ) from None
        except OSError as error:
            raise ArgumentError(f"{where} can't be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ArgumentError(f"{where} is not TOML: it is not UTF-8: {error}") from None
        return parse_declaration(text, where, self._has_cuda)

    def _has_cuda(self, source: str) -> bool:
        folder = self.files / source
        return folder.is_dir() and any(each.name.endswith(".cu") for each in folder.iterdir())

    def bundles(self) -> Iterator[Bundle]:
        """Find what was built ahead of time: in the package, then in the folder of BE_PREBUILT_DIR."""
        root, settings = self.root, PROCESS.settings()
        memory = PROCESS.image_memory(settings)
        if root is not None:
            found = [open_trusted(root / KERNELS, vouched=root, memory=memory)]
        else:
            found = [_open_part(self.files / KERNELS, f"{self.name}/{KERNELS}")]
        if settings.prebuilt_dir is not None:
            found.append(open_trusted(settings.prebuilt_dir / self.name, memory=memory))
        yield from filter(None, found)


def _open_part(folder: Traversable, where: str) -> Bundle | None:
    """Open the bundle of a package that is not a folder, such as one in a zip."""
    index = folder / INDEX
    if not index.is_file():
        return None

    def read(file: str, most_bytes: int) -> bytes:
        at = folder
        for part in file.split("/"):
            at = at / part
        return read_part(at, most_bytes)

    try:
        text = read_part(index, LARGEST_INDEX)
    except OSError as error:
        raise LoadError(f"{where}/{INDEX} can't be read: {error.strerror}") from error
    return Bundle(where, parse_index(text, where), read)


def find_package(name: str) -> Package:
    """Find a package that is imported, or can be.

    Raises
    ------
    ArgumentError
        There is no such package, or it has no kernels.
    """
    if not all(part.isidentifier() for part in str(name).split(".")):
        raise ArgumentError(f"{name!r} is not the name of a package", hints=("pass __name__ or __package__",))
    try:
        files = importlib.resources.files(name)
    except (ImportError, TypeError) as error:
        raise ArgumentError(f"there is no package {name!r}: {error}") from None
    if not (files / FILE).is_file() and not (files / KERNELS / INDEX).is_file():
        hints = (f"add a {FILE} beside its __init__.py; see docs/packages.md", "or add it to the package's data files")
        raise ArgumentError(f"the package {name} has no kernels: neither {FILE} nor {KERNELS}/{INDEX}", hints=hints)
    return Package(name, files)


class PackageKernels:
    """The kernels of a package: its modules, their functions where a name is unique, and kernels without host code.

    Nothing is read or loaded before the first use.

    Parameters
    ----------
    package : Package
    """

    def __init__(self, package: Package) -> None:
        self.__own__ = _Kernels(package)  # two underscores keep out of the way of kernels

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
            There is none, or functions of several modules have the name.
        """
        return self.__own__.get(name)

    def __dir__(self) -> list[str]:
        """The names of modules, kernels and functions that are attributes."""
        return self.__own__.unique()

    def __repr__(self) -> str:
        return f"package_kernels({self.__own__.package.name!r})"


class _Kernels:
    """The kernels of a package, read and loaded as they are asked for."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self._lock = ThreadLock()
        self._owners: dict[str, list[str]] | None = None
        self._built: tuple[Bundle, ...] | None = None
        self._archs: tuple[Arch, ...] | None = None
        self._made: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """Return a module, a kernel, or a function, loaded now or before; see `PackageKernels.__getitem__`."""
        with self._lock, _naming(self.package.name):
            if name not in self._made:
                self._made[name] = self._make(name)
            return self._made[name]

    def unique(self) -> list[str]:
        """Return the names that stand for one thing."""
        with self._lock, _naming(self.package.name):
            names = self._names().items()
            return sorted(name for name, owners in names if not name.startswith("__") and len(owners) == 1)

    def _make(self, name: str) -> Any:
        owners = self._names().get(name)
        if owners is None:
            has = ", ".join(sorted(self._names()))
            raise AttributeError(f"{self.package.name} has no kernel {name!r}; it has {has}")
        if name in owners:
            return self._load(name)
        if len(owners) > 1:
            ways = " or ".join(f"{each}.{name}" for each in owners)
            raise AttributeError(f"{self.package.name} has {name!r} in several modules: write {ways}")
        if owners[0] not in self._made:
            self._made[owners[0]] = self._load(owners[0])
        return self._made[owners[0]][name]

    def _names(self) -> dict[str, list[str]]:
        """Map each name to the modules that have it; a module's or kernel's own name to itself."""
        if self._owners is None:
            modules, kernels = self._listed()
            owners: dict[str, list[str]] = {}
            for module, functions in modules.items():
                for function in functions:
                    owners.setdefault(function, []).append(module)
            self._owners = owners | {name: [name] for name in (*modules, *kernels)}
        return self._owners

    def _listed(self) -> tuple[Mapping[str, Iterable[str]], Iterable[str]]:
        """List the functions of each module, and the kernels, without loading one."""
        for bundle in self._bundles():
            with reading(bundle.where):
                if self._is_old(bundle):
                    break
                rows = bundle.table.modules.items()
                modules = {name: ModuleRecord.read(row, bundle.where).contents() for name, row in rows}
                return modules, bundle.table.functions
        from be_runtime.ship.discover import declared_signatures

        declared = self.package.declaration()
        return declared_signatures(self.package.name, _root(self.package), declared), declared.kernels

    def _is_old(self, bundle: Bundle) -> bool:
        """Return whether other functions may be declared now than are in a bundle."""
        rows = (*bundle.table.modules.values(), *bundle.table.functions.values())
        is_wanted = PROCESS.settings().jit != "never" and (self.package.files / FILE).is_file()
        return is_wanted and any(changed_source(self.package.root, row["sources"]) for row in rows)

    def _devices(self) -> tuple[Arch, ...]:
        """Return the architectures of the GPUs here; the driver is asked once."""
        if self._archs is None:
            self._archs = device_archs(LocalSystem())
        return self._archs

    def _bundles(self) -> tuple[Bundle, ...]:
        """Return what was built ahead of time, unless it is not wanted."""
        if PROCESS.settings().jit == "always":
            return ()
        if self._built is None:
            self._built = tuple(self.package.bundles())
        return self._built

    def _load(self, name: str) -> Any:
        """Load a module or a kernel as it was built ahead of time, else compile it."""
        package, settings = self.package, PROCESS.settings()
        prebuilt = settings.prebuilt_dir
        folders = [package.files / KERNELS, *([prebuilt / package.name] if prebuilt else ())]
        reason = f"there is no {' or '.join(str(folder / INDEX) for folder in folders)}"
        for bundle in self._bundles():
            with reading(bundle.where):
                reason = _obstacle(package, name, bundle, self._devices)
                if not reason:
                    return _open(package, name, bundle)
        if settings.jit == "never":
            raise refusal(package.name, name, reason)
        try:
            return _compile(package, name)
        except (ToolchainError, LoadError) as error:
            if settings.jit != "always":
                error.hints = (f"nothing that was built ahead of time can be used: {reason}", *error.hints)
            raise


@public
def package_kernels(package: str) -> PackageKernels:
    """Return the kernels that a package declares in its ``kernels.toml``.

    The line is the same while one develops, when kernels are compiled at first use, and in an installed wheel that was
    built with them, which needs no compiler. The variable ``BE_JIT`` says when to compile: ``never``, only what is
    ``missing``, or ``always``.

    Parameters
    ----------
    package : str
        Name of the package, such as ``__name__`` in its ``__init__.py``.

    Returns
    -------
    PackageKernels
        ``kernels.module.function(...)``, or ``kernels.function(...)`` where the name is unique. Nothing is loaded
        before its first use.

    Raises
    ------
    ArgumentError
        There is no such package, or it has no kernels.

    Examples
    --------
    >>> ops = package_kernels("mykernels")  # doctest: +SKIP
    >>> ops.neurons.fire(v)  # doctest: +SKIP
    """
    return PackageKernels(find_package(package))


def package_of(kernels: PackageKernels) -> Package:
    """Return the package whose kernels they are; its names leave no room for a method."""
    return kernels.__own__.package


@contextlib.contextmanager
def _naming(package: str) -> Iterator[None]:
    """Name the package in errors of the block that do not name it, such as a compiler's: a user has many packages."""
    try:
        yield
    except (BeRuntimeError, ToolchainError) as error:
        if package not in error.message:
            error.message = f"{package}: {error.message}"
        raise


def _obstacle(package: Package, name: str, bundle: Bundle, devices: Callable[[], tuple[Arch, ...]]) -> str:
    """Return why a bundle's code for a module or kernel can't be used here; empty if it can."""
    table = bundle.table
    row = {**table.functions, **table.modules}.get(name)
    if row is None:
        return "it was not built"
    changed = changed_source(package.root, row["sources"])
    if changed:
        return f"{changed} changed since it was built"
    if name in table.modules:
        archs = table.images[row["image"]].archs
        return lacking_arch(archs, devices()) if archs else ""
    from be_runtime.kernels.cuda.images import lacking

    kernels = [table.kernels[each["kernel"]] for each in row["variants"] if "kernel" in each]
    return next(filter(None, (lacking(each, devices()) for each in kernels)), "")


def _open(package: Package, name: str, bundle: Bundle) -> Any:
    row = bundle.table.modules.get(name)
    if row is not None:
        return open_module(package.name, name, ModuleRecord.read(row, bundle.where), bundle)
    from be_runtime.ship.kernel_functions import open_function

    return open_function(bundle.table.functions[name], bundle)


def _compile(package: Package, name: str) -> Any:
    declared = package.declaration()
    module = declared.modules.get(name)
    if module is not None:
        return jit_module(package.name, _root(package), module)
    return declared_function(name, declared.kernels[name], _root(package))


def _root(package: Package) -> Path:
    if package.root is None:
        raise LoadError(
            f"the sources of {package.name} are not files of a folder, so they can't be compiled",
            hints=("install the package instead of importing it from an archive",),
        )
    return package.root
