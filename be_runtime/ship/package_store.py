"""A package with kernels, and the store of its prebuilt artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError
from be_runtime.load.process import PROCESS
from be_runtime.ship.declaration import FILE, Declaration, parse_declaration
from be_runtime.store.artifact import Artifact, open_folder, open_trusted
from be_runtime.store.index import INDEX, CodeImage, ImageTarget, lacking_arch, reading
from be_toolchain.arch import Arch
from be_toolchain.find.record import device_archs
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.trust import SMALL, file_sha256, read_part

KERNELS = "_kernels"
"""Folder of a package that holds its artifact."""

MISSING = ""
"""Hash of a file that did not exist."""


class Package(NamedTuple):
    """A package with kernels.

    Parameters
    ----------
    name : str
    files : Traversable
        The package's files: a folder, or a part of a zip.
    """

    name: str
    files: Traversable

    @property
    def root(self) -> Path | None:
        """The package's folder; None if the package is in an archive."""
        return self.files if isinstance(self.files, Path) else None

    def declaration(self) -> Declaration:
        """Read the package's ``kernels.toml``.

        Raises
        ------
        ArgumentError
            The file is missing or invalid, or declares nothing.
        """
        where = f"{self.name}/{FILE}"
        try:
            text = read_part(self.files / FILE, SMALL).decode()
        except FileNotFoundError:
            raise ArgumentError(
                f"the package {self.name} has no {FILE}",
                hints=(f"add one beside {self.name}/__init__.py: the page 'Packages and wheels' shows one",),
            ) from None
        except OSError as error:
            raise ArgumentError(f"{where} can't be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ArgumentError(f"{where} is not TOML: it is not UTF-8: {error}") from None
        return parse_declaration(text, where, self._has_cuda)

    def _has_cuda(self, source: str) -> bool:
        folder = self.files / source
        return folder.is_dir() and any(each.name.endswith(".cu") for each in folder.iterdir())


class Part(NamedTuple):
    """The part of an artifact for one module or kernel.

    Parameters
    ----------
    images : dict of str to (CodeImage, bytes)
    targets : dict of str to ImageTarget
    kernels, modules, functions : dict
        See `Index`.
    """

    images: Mapping[str, tuple[CodeImage, bytes]]
    targets: Mapping[str, ImageTarget] = {}
    kernels: Mapping[str, Any] = {}
    modules: Mapping[str, Any] = {}
    functions: Mapping[str, Any] = {}


def record_sources(root: Path, files: Iterable[Path]) -> dict[str, str]:
    """Return the hashes of a package's files and its declaration by their names, without files outside of it."""
    own = root.resolve()
    found = sorted({path.resolve() for path in (root / FILE, *files)})
    return {
        str(path.relative_to(own)): digest
        for path in found
        if path.is_relative_to(own) and (digest := file_sha256(path)) is not None
    }


def changed_source(root: Path | None, sources: Mapping[str, str]) -> str:
    """Return the first file that is changed or new; empty without one. A missing file does not count.

    Parameters
    ----------
    root : Path or None
        Folder of the package; None for a package in an archive.
    sources : dict of str to str
        Hash of each file. The value of a name that ends with a slash, a folder, is the suffixes of its sources.
    """
    if root is None:
        return ""
    for name, recorded in sources.items():
        path = root / name
        if name.endswith("/"):
            files = path.glob("[!.]*")
            found = (str(PurePosixPath(name, each.name)) for each in files if each.suffix in recorded.split())
            added = sorted(each for each in found if each not in sources)
            if added:
                return added[0]
        elif file_sha256(path) not in (None, recorded):
            return name
    return ""


class PackageStore:
    """The artifacts of a package that were built ahead of time: in the package, and below ``BE_PREBUILT_DIR``.

    Its `get` and `describe` work as in `be_runtime.store.sharing.Store`, with names of modules and kernels as keys;
    `be_runtime.ship.build` writes the artifacts.

    Parameters
    ----------
    package : Package
    """

    def __init__(self, package: Package) -> None:
        self.package = package
        self._found: tuple[Artifact, ...] | None = None
        self._archs: tuple[Arch, ...] | None = None

    def describe(self) -> str:
        """Return the paths of the artifacts' indexes, for messages."""
        prebuilt = PROCESS.settings().prebuilt_dir
        folders = [self.package.files / KERNELS, *([prebuilt / self.package.name] if prebuilt else ())]
        return " or ".join(str(folder / INDEX) for folder in folders)

    def artifacts(self) -> tuple[Artifact, ...]:
        """Return the artifacts in search order; none with ``BE_JIT=always``."""
        package, settings = self.package, PROCESS.settings()
        if settings.jit == "always":
            return ()
        if self._found is None:
            memory = PROCESS.image_memory(settings)
            if package.root is not None:
                found = [open_trusted(package.root / KERNELS, vouched=package.root, memory=memory)]
            else:
                found = [open_folder(package.files / KERNELS, f"{package.name}/{KERNELS}")]
            if settings.prebuilt_dir is not None:
                found.append(open_trusted(settings.prebuilt_dir / package.name, memory=memory))
            self._found = tuple(filter(None, found))
        return self._found

    def get(self, name: str) -> Artifact | None:
        """Return the artifact with the code of a module or a kernel for this machine; None without one."""
        return next((artifact for artifact in self.artifacts() if not self._obstacle(name, artifact)), None)

    def explain(self, name: str) -> str:
        """Return the reason that `get` found nothing."""
        reasons = [self._obstacle(name, artifact) for artifact in self.artifacts()]
        return reasons[-1] if reasons else f"there is no {self.describe()}"

    def _obstacle(self, name: str, artifact: Artifact) -> str:
        """Return the reason that an artifact's code for a module or a kernel can't be used here; empty if it can."""
        table = artifact.table
        with reading(artifact.where):
            row = table.modules.get(name) or table.functions.get(name)
            if row is None:
                return "it was not built"
            changed = changed_source(self.package.root, row["sources"])
            if changed:
                return f"{changed} changed since it was built"
            if name in table.modules:
                archs = table.images[row["image"]].archs
                return lacking_arch(archs, self.devices()) if archs else ""
            from be_runtime.kernels.launcher import lacking

            kernels = [table.kernels[each["kernel"]] for each in row["variants"] if "kernel" in each]
            return next(filter(None, (lacking(each, self.devices()) for each in kernels)), "")

    def devices(self) -> tuple[Arch, ...]:
        """Return the architectures of this machine's GPUs, which are determined once."""
        if self._archs is None:
            self._archs = device_archs(LocalSystem())
        return self._archs
