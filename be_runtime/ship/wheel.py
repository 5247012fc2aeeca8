"""The kernels and the platform tag of a wheel, for the plug-ins of all build backends."""

from __future__ import annotations

import contextlib
import importlib.resources
import io
import json
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError, BeRuntimeError
from be_runtime.ship import build, declaration
from be_runtime.ship.package import locate_package
from be_runtime.ship.package_store import KERNELS, Package
from be_runtime.store.artifact import open_folder
from be_runtime.store.index import HASH_DIGITS
from be_runtime.tune.winners import FILE as TUNED
from be_toolchain import errors, terminal
from be_toolchain.machine.trust import LARGE, read_regular

_SOURCES = frozenset([".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl", ".toml"])


class Needs(NamedTuple):
    """The libraries and symbols that an image needs.

    Parameters
    ----------
    libraries : tuple of str
        Names of shared libraries, such as ``"libc.so.6"``, without the dynamic loader.
    versions : frozenset of str
        Versions of their symbols, such as ``"GLIBC_2.34"``.
    undefined : frozenset of str
        Symbols that other libraries must define.
    run_paths : tuple of str
        Folders in which the dynamic loader searches for libraries.
    """

    libraries: tuple[str, ...]
    versions: frozenset[str] = frozenset()
    undefined: frozenset[str] = frozenset()
    run_paths: tuple[str, ...] = ()


def read_needs(data: bytes) -> Needs:
    """Read the libraries and symbols that an image needs.

    Raises
    ------
    BeRuntimeError
        The extra ``build`` is not installed.
    """
    try:
        from elftools.elf.elffile import ELFFile
    except ImportError:
        raise lacking_extra("pyelftools") from None
    elf = ELFFile(io.BytesIO(data))
    dynamic, versions, symbols = map(elf.get_section_by_name, (".dynamic", ".gnu.version_r", ".dynsym"))
    tags = list(dynamic.iter_tags()) if dynamic else []
    paths = [tag.rpath for tag in tags if tag.entry.d_tag == "DT_RPATH"]
    paths += [tag.runpath for tag in tags if tag.entry.d_tag == "DT_RUNPATH"]
    return Needs(
        libraries=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED" and not _is_loader(tag.needed)),
        versions=frozenset(
            each.name
            for library, rows in (versions.iter_versions() if versions else ())
            if not _is_loader(library.name)
            for each in rows
        ),
        undefined=frozenset(
            symbol.name
            for symbol in (symbols.iter_symbols() if symbols else ())
            if symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_WEAK"
        ),
        run_paths=tuple(path for text in paths for path in text.split(":") if path),
    )


def _is_loader(library: str) -> bool:
    return library.startswith(("ld-linux", "ld64.so"))


def lacking_extra(package: str) -> BeRuntimeError:
    """Return the error for a missing package of the extra ``build``."""
    return BeRuntimeError(
        f"the tag of a wheel can't be found without {package}",
        hints=('[build-system] requires = ["brainevent-toolchain[build]", ...] has it',),
    )


class Policy(NamedTuple):
    """The libraries and symbols that all systems of a platform have.

    Parameters
    ----------
    name : str
        The platform without the machine, such as ``"manylinux_2_28"``.
    versions : dict of str to frozenset of str
        Versions of symbols, by their prefix, such as ``"GLIBC"``.
    libraries : frozenset of str
    lacking : dict of str to frozenset of str
        Symbols that the libraries of some systems lack, by library.
    """

    name: str
    versions: Mapping[str, frozenset[str]]
    libraries: frozenset[str]
    lacking: Mapping[str, frozenset[str]]


def platform_tag(
    needs: Mapping[str, Needs], machine: str, policies: Sequence[Policy], exclude: Sequence[str] = ()
) -> str:
    """Return the platform with the most systems, on all of which the images run. Pure.

    Parameters
    ----------
    needs : dict of str to Needs
        Needs of each image, by the name of its module or kernel.
    machine : str
    policies : sequence of Policy
        Policies, sorted by their number of systems, largest first.
    exclude : sequence of str
        Patterns of libraries that another distribution installs on each system.

    Returns
    -------
    str
        ``linux_<machine>`` if no policy has all libraries and symbols that the images need.

    Raises
    ------
    ArgumentError
        An image has a run path of the build machine, or needs a library that no policy has.

    Examples
    --------
    >>> old = Policy("manylinux_2_17", {"GLIBC": frozenset({"2.17"})}, frozenset({"libc.so.6"}), {})
    >>> platform_tag({"ops": Needs(("libc.so.6",), frozenset({"GLIBC_2.17"}))}, "x86_64", [old])
    'manylinux_2_17_x86_64'
    """
    for name, need in needs.items():
        for path in need.run_paths:
            if not path.startswith(("$ORIGIN", "${ORIGIN}")):
                raise ArgumentError(
                    f"{name} searches for libraries in {path}, a folder of the machine that built it",
                    hints=(
                        f"take -rpath={path} out of its extra_ldflags",
                        "link a library that lies there into the module, as -l:libfoo.a",
                    ),
                )
    if any(library.startswith("libc.musl-") for need in needs.values() for library in need.libraries):
        return f"linux_{machine}"
    known = {library for policy in policies for library in policy.libraries}
    for name, need in needs.items():
        for library in need.libraries:
            if library not in known and not _matches(library, exclude):
                flag = library.removeprefix("lib").partition(".so")[0]
                raise ArgumentError(
                    f"{name} needs {library}, which is not on every Linux",
                    hints=(
                        f"link it into the module: -l:lib{flag}.a instead of -l{flag}",
                        f'or write exclude = ["{library}"] if users of the wheel have it',
                    ),
                )
    fitting = (policy for policy in policies if all(_fits(need, policy, exclude) for need in needs.values()))
    return f"{next((policy.name for policy in fitting), 'linux')}_{machine}"


def _fits(need: Needs, policy: Policy, exclude: Sequence[str]) -> bool:
    """Return whether each system of a policy meets an image's needs."""
    for version in need.versions:
        kind, _, number = version.partition("_")
        if kind in policy.versions and number not in policy.versions[kind]:
            return False
    return all(
        (library in policy.libraries or _matches(library, exclude))
        and not need.undefined & policy.lacking.get(library, frozenset())
        for library in need.libraries
    )


def _matches(library: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(library, pattern) for pattern in patterns)


def parse_policies(document: Sequence[Mapping[str, Any]], machine: str) -> tuple[Policy, ...]:
    """Parse auditwheel's policies for a machine, and sort them by their number of systems, largest first. Pure."""
    rows = sorted(document, key=lambda row: -row["priority"])
    return tuple(
        Policy(
            name=row["name"],
            versions={kind: frozenset(numbers) for kind, numbers in row["symbol_versions"][machine].items()},
            libraries=frozenset(row["lib_whitelist"]),
            lacking={library: frozenset(symbols) for library, symbols in row["blacklist"].items()},
        )
        for row in rows
        if machine in row["symbol_versions"]
    )


@lru_cache(maxsize=1)
def read_policies(machine: str) -> tuple[Policy, ...]:
    """Return the policies of the installed auditwheel; see `parse_policies`.

    Raises
    ------
    BeRuntimeError
        The extra ``build`` is not installed.
    """
    try:
        text = (importlib.resources.files("auditwheel") / "policy" / "manylinux-policy.json").read_text(
            encoding="utf-8"
        )
    except (ImportError, OSError):
        raise lacking_extra("auditwheel") from None
    return parse_policies(json.loads(text), machine)


class WheelOptions(NamedTuple):
    """Options for the kernels of a wheel, from its author's ``pyproject.toml``.

    Parameters
    ----------
    packages : tuple of str
        Names or folders of packages; empty for the only package below the project's folder.
    archs : tuple of str or None
        Architectures of CUDA code; None for the architectures in ``kernels.toml``.
    exclude : tuple of str
        Patterns of shared libraries that each user of the wheel has.
    """

    packages: tuple[str, ...] = ()
    archs: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()


def parse_options(table: Mapping[str, Any], where: str) -> WheelOptions:
    """Parse a table of options. Pure.

    Parameters
    ----------
    table : mapping
    where : str
        Name of the table, for messages.

    Raises
    ------
    ArgumentError
        An option is unknown, or has an invalid value.

    Examples
    --------
    >>> parse_options({"package": "mykernels", "archs": ["9.0"]}, "tool.be-runtime")
    WheelOptions(packages=('mykernels',), archs=('9.0',), exclude=())
    """
    options = dict(table)
    if "package" in options:
        options.setdefault("packages", [options.pop("package")])
    declaration.refuse_unknown(options, {"package", *WheelOptions._fields}, where)
    return WheelOptions(**{name: declaration.texts(value, f"{where}: {name}") for name, value in options.items()})


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
    document = declaration.read_toml(text, "pyproject.toml")
    table: Mapping[str, Any] = document["tool"]["be-runtime"]
    return table


def wheel_packages(options: WheelOptions, root: Path) -> tuple[Package, ...]:
    """Return the packages whose kernels go into a wheel.

    Raises
    ------
    ArgumentError
        A package is missing, or there are several packages and the options name none.
    """
    found = []
    for name in options.packages:
        folders = [base / name.replace(".", "/") for base in (root, root / "src")]
        folder = next((folder for folder in folders if folder.is_dir()), None)
        if "/" in name:
            found.append(locate_package(str(root / name), root))
        elif folder is not None:
            found.append(Package(name, folder.resolve()))
        else:
            hint = 'name its folder, as in "lib/mykernels"'
            raise ArgumentError(f"{root} has no package {name!r}", hints=(hint,))
    return tuple(found) or (locate_package(None, root),)


def place(package: Package) -> str:
    """Return the path of a package's kernels in a wheel."""
    return f"{package.name.replace('.', '/')}/{KERNELS}"


def source_files(package: Package, root: Path) -> list[str]:
    """List a package's declaration, sources, headers and tuned choices, by their paths below `root`."""
    assert package.root is not None, "packages of a project are folders"
    own = kernels_folder(package)
    found = (path for path in package.root.rglob("*") if path.suffix in _SOURCES or path.name == TUNED)
    return sorted(str(path.relative_to(root.resolve())) for path in found if own not in path.parents and path.is_file())


def kernels_folder(package: Package) -> Path:
    """Return the folder of kernels that a developer builds in a package."""
    assert package.root is not None, "packages of a project are folders"
    return package.root / KERNELS


def files_below(folder: Path) -> list[str]:
    """List the files below a folder, by their paths from there."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def build_kernels(package: Package, options: WheelOptions, folder: Path) -> None:
    """Build a package's kernels into a folder, and print a summary to standard error.

    Raises
    ------
    ArgumentError, ToolchainError, BuildError
        See `build_package`.
    """
    built = build.build_package(package, archs=options.archs, out=folder)
    terminal.say(f"{package.name}: {built.size / 2**20:.1f} MiB, {built.summary}", sys.stderr)


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
        artifact = open_folder(folder)
        assert artifact is not None, "it was built above"
        rows = [(f"modules.{name}", str(row)) for name, row in artifact.table.modules.items()]
        rows += [
            (f"kernels.{name}", str(row))
            for name, row in artifact.table.functions.items()
            if row["language"] == "numba"
        ]
        for digest, image in artifact.table.images.items():
            if image.kind == "library":
                made_from = next((name for name, row in rows if digest[:HASH_DIGITS] in row), "the launcher")
                needs[f"{made_from} of {package} ({digest[:8]})"] = read_needs(artifact.image(digest))
    machine = platform.machine()
    tag = platform_tag(needs, machine, read_policies(machine), options.exclude)
    if not tag.startswith("manylinux"):
        terminal.say(f"the kernels need more than a manylinux system has, so the wheel's tag is {tag}", sys.stderr)
    return tag


@contextlib.contextmanager
def errors_as_text() -> Iterator[None]:
    """End a build backend with the text of an error instead of a traceback."""
    try:
        yield
    except (BeRuntimeError, errors.ToolchainError) as error:
        raise SystemExit(f"error: {error}") from None
