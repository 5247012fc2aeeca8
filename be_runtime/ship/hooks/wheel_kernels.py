"""The kernels of a wheel, as the plug-ins of all build backends make them."""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from be_runtime.bundle.index import HASH_DIGITS
from be_runtime.bundle.mapped_images import open_folder
from be_runtime.errors import ArgumentError, BeRuntimeError
from be_runtime.ship.declaration import read_toml, refuse_unknown, texts
from be_runtime.ship.hooks.image_needs import Needs, read_needs
from be_runtime.ship.hooks.platform_tags import platform_tag, read_policies
from be_runtime.ship.locate import locate_package
from be_runtime.ship.package import KERNELS, Package
from be_runtime.ship.package_build import build_package
from be_runtime.tune.winners import FILE as TUNED
from be_toolchain.errors import ToolchainError
from be_toolchain.machine.trust.regular_file import LARGE, read_regular
from be_toolchain.terminal import say


class WheelOptions(NamedTuple):
    """Options for the kernels of a wheel, from its author's ``pyproject.toml``.

    Parameters
    ----------
    packages : tuple of str
        Names or folders of packages; empty for the only one below the project's folder.
    archs : tuple of str or None
        Architectures of CUDA code instead of those in ``kernels.toml``.
    standalone : bool
        True for kernels that need no be_runtime where the wheel is installed.
    exclude : tuple of str
        Patterns of shared libraries that are there wherever the wheel is used.
    """

    packages: tuple[str, ...] = ()
    archs: tuple[str, ...] | None = None
    standalone: bool = False
    exclude: tuple[str, ...] = ()


def parse_options(table: Mapping[str, Any], where: str) -> WheelOptions:
    """Read a table of options. Pure.

    Parameters
    ----------
    table : mapping
    where : str
        Name of the table, for messages.

    Raises
    ------
    ArgumentError
        An option is unknown, or has a bad value.

    Examples
    --------
    >>> parse_options({"package": "mykernels", "archs": ["9.0"]}, "tool.be-runtime")
    WheelOptions(packages=('mykernels',), archs=('9.0',), standalone=False, exclude=())
    """
    options = dict(table)
    if "package" in options:
        options.setdefault("packages", [options.pop("package")])
    refuse_unknown(options, {"package", *WheelOptions._fields}, where)
    for name in options.keys() - {"standalone"}:
        options[name] = texts(options[name], f"{where}: {name}")
    if not isinstance(options.get("standalone", False), bool):
        raise ArgumentError(f"{where}: standalone must be true or false, not {options['standalone']!r}")
    return WheelOptions(**options)


def project_table(root: Path) -> Mapping[str, Any]:
    """Return the table ``tool.be-runtime`` of a project.

    Raises
    ------
    ArgumentError
        The project's file is not TOML.
    """
    try:
        text = read_regular(root / "pyproject.toml", LARGE).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"pyproject.toml can't be read: {getattr(error, 'strerror', error)}") from None
    document = read_toml(text, "pyproject.toml")
    table: Mapping[str, Any] = document["tool"]["be-runtime"]
    return table


def wheel_packages(options: WheelOptions, root: Path) -> tuple[Package, ...]:
    """Find the packages whose kernels a wheel has.

    Raises
    ------
    ArgumentError
        One is not there, or none is named and there are several.
    """
    if not options.packages:
        return (locate_package(None, root),)
    return tuple(_package(name, root) for name in options.packages)


def _package(name: str, root: Path) -> Package:
    if "/" in name:
        return locate_package(str(root / name), root)
    folders = [base / name.replace(".", "/") for base in (root, root / "src")]
    found = [folder for folder in folders if folder.is_dir()]
    if not found:
        raise ArgumentError(
            f"there is no package {name!r} below {root}", hints=('name its folder, as in "lib/mykernels"',)
        )
    return Package(name, found[0].resolve())


def place(package: Package) -> str:
    """Return the path of a package's kernels in a wheel."""
    return f"{package.name.replace('.', '/')}/{KERNELS}"


def source_files(package: Package, root: Path) -> list[str]:
    """List the declaration, sources, headers and choices of a package, by their paths below `root`."""
    assert package.root is not None, "packages of a project are folders"
    own = kernels_folder(package)
    found = (path for path in package.root.rglob("*") if _is_source(path) and own not in path.parents)
    return sorted(str(path.relative_to(root.resolve())) for path in found if path.is_file())


def _is_source(path: Path) -> bool:
    return path.suffix in _SOURCES or path.name == TUNED


_SOURCES = frozenset([".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl", ".toml"])


def kernels_folder(package: Package) -> Path:
    """Return the folder in which a developer builds a package's kernels."""
    assert package.root is not None, "packages of a project are folders"
    return package.root / KERNELS


def files_below(folder: Path) -> list[str]:
    """List the files below a folder, by their paths from there."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def build_kernels(package: Package, options: WheelOptions, folder: Path) -> None:
    """Build a package's kernels into a folder, and say what was built.

    Raises
    ------
    ArgumentError, ToolchainError, BuildError
        See `build_package`.
    """
    built = build_package(package, archs=options.archs, out=folder, standalone=options.standalone)
    total = sum(image.size for image in built.table.images.values())
    say(f"{package.name}: {total / 2**20:.1f} MiB, modules and kernels: {len(built.reports)}", sys.stderr)


def platform_of(folders: Mapping[str, Path], options: WheelOptions) -> str:
    """Return the platform tag of a wheel.

    Parameters
    ----------
    folders : dict of str to Path
        The folder of the kernels of each package.
    options : WheelOptions

    Raises
    ------
    ArgumentError
        See `platform_tag`.
    BeRuntimeError
        The extra ``build`` is not installed.
    """
    needs: dict[str, Needs] = {}
    for package, folder in folders.items():
        bundle = open_folder(folder)
        assert bundle is not None, "it was built just now"
        rows = [(f"modules.{name}", str(row)) for name, row in bundle.table.modules.items()]
        rows += [
            (f"kernels.{name}", str(row)) for name, row in bundle.table.functions.items() if row["language"] == "numba"
        ]
        for digest, image in bundle.table.images.items():
            if image.kind == "library":
                made_from = next((name for name, row in rows if digest[:HASH_DIGITS] in row), "the launcher")
                needs[f"{made_from} of {package} ({digest[:8]})"] = read_needs(bundle.image(digest))
    machine = platform.machine()
    tag = platform_tag(needs, machine, read_policies(machine), options.exclude)
    if not tag.startswith("manylinux"):
        say(f"the kernels need a newer or another system than manylinux has: the wheel is {tag}", sys.stderr)
    return tag


@contextlib.contextmanager
def leaving_as_text() -> Iterator[None]:
    """Let our errors end a build backend with their text, not with a traceback of ours."""
    try:
        yield
    except (BeRuntimeError, ToolchainError) as error:
        raise SystemExit(f"error: {error}") from None
