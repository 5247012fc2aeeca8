"""pip and uv behind one interface: they resolve, download and install wheels, and this module verifies the files."""

from __future__ import annotations

import base64
import csv
import errno
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from be_toolchain.errors import InstallError
from be_toolchain.install.plan import Wheel
from be_toolchain.known.layouts import normalize, parse_dist_info, parse_requirement
from be_toolchain.machine.system import System

_CHUNK = 1 << 20


def dist_infos_of(site: Path, name: str) -> tuple[tuple[Path, str], ...]:
    """Find a distribution's dist-info folders and versions; after an interrupted exchange there may be several."""
    from packaging.utils import canonicalize_name

    paths = sorted(site.glob("*.dist-info")) if site.is_dir() else ()
    found = ((path, parse_dist_info(path.name)) for path in paths)
    rows = ((path, normalize(*row)) for path, row in found if row is not None)
    return tuple((path, version) for path, (each, version) in rows if each == canonicalize_name(name))


def check_wheel(site: Path, name: str, version: str) -> Iterator[str]:
    """Compare every installed file of a wheel with its RECORD.

    Parameters
    ----------
    site : Path
        The folder that it was installed into.
    name, version : str
        The distribution and its version.

    Yields
    ------
    str
        A description of each difference.
    """
    folders = dist_infos_of(site, name)
    if [found for _, found in folders] != [normalize(name, version)[1]]:
        listed = ", ".join(folder.name for folder, _ in folders) or "none"
        yield f"{name} {version} is not installed in {site} (found: {listed})"
        return
    try:
        rows = read_record(folders[0][0])
    except OSError as error:
        yield f"{name}: no readable RECORD ({error.strerror})"
        return
    for path, digest in rows:
        # Only commands, which installers generate, lie above the folder.
        if digest and not path.startswith("../") and not _matches(site / path, digest):
            yield f"{name}: {path} is missing or differs from the wheel"


def read_record(folder: Path) -> tuple[tuple[str, str], ...]:
    """Read the RECORD in a dist-info folder: the files of the wheel, each with its digest, which may be empty.

    Raises
    ------
    OSError
        The file is missing or damaged.
    """
    try:
        with (folder / "RECORD").open(encoding="utf-8", newline="") as file:
            rows = tuple((row[0], row[1] if len(row) == 3 else "") for row in csv.reader(file) if row)
    except (UnicodeDecodeError, csv.Error) as error:
        raise OSError(errno.EINVAL, f"it is damaged: {error}") from None
    if not any(digest for _, digest in rows) or any("\0" in path for path, _ in rows):
        raise OSError(errno.EINVAL, "it is damaged: it lists no files")  # as a power cut leaves it
    return rows


def _matches(path: Path, recorded: str) -> bool:
    """Return whether a file has the digest ``sha256=<urlsafe base64>`` of a RECORD."""
    algorithm, _, wanted = recorded.partition("=")
    try:
        digest = hashlib.new(algorithm)
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except (OSError, ValueError):
        return False
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode() == wanted


TIMEOUT_S = 3600.0
"""The limit for one run of pip or uv, in seconds, for slow networks."""

UNSET = (
    *("PIP_TARGET", "PIP_USER", "PIP_PREFIX", "PIP_ROOT"),
    *("PIP_DRY_RUN", "PIP_REPORT", "PIP_QUIET", "PIP_VERBOSE", "PIP_LOG"),
    *("PIP_CONSTRAINT", "PIP_UPGRADE", "UV_CONSTRAINT", "UV_OVERRIDE", "PYTHONPATH"),
)
"""Variables that change pip's index, packages or output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installer(ABC):
    """A program that fetches and installs wheels for the running Python.

    Parameters
    ----------
    system : System
        The machine.
    python : Path
        The Python of the environment.
    wheels : Path, optional
        A folder of downloaded wheels to use instead of an index.
    """

    system: System
    python: Path
    wheels: Path | None = None

    @abstractmethod
    def resolve(self, requirement: str, work: Path) -> tuple[Wheel, ...]:
        """Ask the index for the wheels that meet a requirement; `work` is a folder for temporary files.

        Raises
        ------
        InstallError
            There is no wheel that fits, or the index can't be reached.
        """

    @abstractmethod
    def install_tree(self, requirements: Path, tree: Path, work: Path) -> None:
        """Install into a folder of its own, verifying hashes; raise InstallError on failure."""

    @abstractmethod
    def exchange(self, requirements: Path, work: Path, *, force: bool) -> None:
        """Install the wheels that `download` fetched into the environment; raise InstallError on failure."""

    @abstractmethod
    def download(self, requirements: Path, work: Path) -> None:
        """Fetch all wheels, verifying hashes, so that `exchange` is short; raise InstallError on failure."""

    def _source(self) -> tuple[str, ...]:
        """Return the options that name the index, or the folder instead of it."""
        return () if self.wheels is None else ("--no-index", "--find-links", str(self.wheels))

    def _run(self, argv: tuple[str, ...], what: str, work: Path) -> str:
        """Run a command with temporary files in `work`; return its output; raise InstallError on failure."""
        env = self.system.which("env") or Path("/usr/bin/env")
        done = self.system.run((str(env), f"TMPDIR={work}", *argv), unset=UNSET, timeout_s=TIMEOUT_S)
        if done.returncode != 0:
            said = [line for line in done.text.splitlines() if line.strip() and not line.startswith("WARNING:")]
            tail = "\n".join(f"  {line}" for line in said[-8:])
            message = f"{what} failed ({done.problem or f'exit status {done.returncode}'})\n{tail}".rstrip()
            raise InstallError(message, hints=(f"nothing was changed; {explain_failure(done.text, self.wheels)}",))
        return done.stdout


_UNREACHABLE = (
    "connection broken by",
    "Could not fetch URL",
    "Failed to fetch",
    "Request failed after",
    "error sending request",
)
_NOT_OFFERED = ("No matching distribution found", "No solution found when resolving")


def explain_failure(text: str, wheels: Path | None = None) -> str:
    """Return the hint for a failure of pip or uv: the index can't be reached, or it has no such version.

    Parameters
    ----------
    text : str
        The whole output. pip prints "No matching distribution" even if it reached no index.
    wheels : Path, optional
        The folder that was used instead of an index.

    Examples
    --------
    >>> explain_failure("ERROR: No matching distribution found for cuda-toolkit<100,>=99")
    'the package index has no such version for this Python and machine: name another one, or auto'
    """
    if any(words in text for words in _UNREACHABLE):
        return "the package index can't be reached: give a folder of downloaded wheels with --wheels FOLDER"
    if any(words in text for words in _NOT_OFFERED):
        if wheels is not None:
            return f"{wheels} lacks a wheel of that version for this Python and machine: add it, or leave --wheels out"
        if "(from versions: none)" not in text:
            return "the package index has no such version for this Python and machine: name another one, or auto"
    return "without a network, give a folder of downloaded wheels with --wheels FOLDER"


class Pip(Installer):
    """``python -m pip``."""

    def resolve(self, requirement: str, work: Path) -> tuple[Wheel, ...]:
        """See `Installer.resolve`."""
        options = ("--dry-run", "--ignore-installed", "--report", "-", *self._source(), requirement)
        return parse_pip_report(self._pip("install", options, f"asking pip for {requirement}", work), self.system)

    def install_tree(self, requirements: Path, tree: Path, work: Path) -> None:
        """See `Installer.install_tree`."""
        options = ("--no-compile", "--target", str(tree), *self._source(), *_pinned(requirements))
        self._pip("install", options, "pip install", work)

    def download(self, requirements: Path, work: Path) -> None:
        """See `Installer.download`."""
        options = ("--dest", str(work / "wheels"), *self._source(), *_pinned(requirements))
        self._pip("download", options, "pip download", work)

    def exchange(self, requirements: Path, work: Path, *, force: bool) -> None:
        """See `Installer.exchange`."""
        source = ("--no-compile", "--no-index", "--find-links", str(work / "wheels"))
        options = (*source, *(("--force-reinstall",) if force else ()), *_pinned(requirements))
        self._pip("install", options, "pip install", work)

    def _pip(self, command: str, options: tuple[str, ...], what: str, work: Path) -> str:
        """Run a command of pip."""
        argv = (str(self.python), "-m", "pip", "--disable-pip-version-check", "--no-input", command, "--quiet")
        return self._run((*argv, "--only-binary", ":all:", *options), what, work)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uv(Installer):
    """``uv pip``, for environments without pip.

    Parameters
    ----------
    uv : Path
        The program.
    """

    uv: Path

    def resolve(self, requirement: str, work: Path) -> tuple[Wheel, ...]:
        """See `Installer.resolve`."""
        asked = work / "asked.in"
        asked.write_text(f"{requirement}\n", encoding="utf-8")
        argv = (str(self.uv), "pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-annotate")
        options = ("--only-binary", ":all:", "--python", str(self.python), *self._source(), str(asked))
        return parse_uv_compile(self._run((*argv, *options), "asking uv for " + requirement, work))

    def install_tree(self, requirements: Path, tree: Path, work: Path) -> None:
        """See `Installer.install_tree`."""
        self._install(("--target", str(tree), *self._source()), requirements, work)

    def download(self, requirements: Path, work: Path) -> None:
        """See `Installer.download`: uv keeps wheels in its cache when they are installed into a folder in `work`."""
        self.install_tree(requirements, work / "fetched", work)

    def exchange(self, requirements: Path, work: Path, *, force: bool) -> None:
        """See `Installer.exchange`."""
        self._install((*(("--reinstall",) if force else ()), *self._source()), requirements, work)

    def _install(self, options: tuple[str, ...], requirements: Path, work: Path) -> None:
        """Run ``uv pip install`` with the options that all installations share."""
        argv = (str(self.uv), "pip", "install", "--quiet", "--link-mode", "copy", "--only-binary", ":all:")
        options = ("--python", str(self.python), *options, *_pinned(requirements))
        self._run((*argv, *options), "uv pip install", work)


def _pinned(requirements: Path) -> tuple[str, ...]:
    """Return the options that make pip and uv take exactly the wheels in a file of requirements."""
    return ("--no-deps", "--require-hashes", "--requirement", str(requirements))


def find_installer(system: System, python: Path, wheels: Path | None) -> Installer:
    """Find pip in the running Python, else uv on PATH.

    Raises
    ------
    InstallError
        Neither is installed.
    """
    asked = system.run((str(python), "-c", "import pip"), unset=UNSET)
    if asked.returncode == 0:
        return Pip(system=system, python=python, wheels=wheels)
    uv = system.which("uv")
    if uv is not None:
        return Uv(system=system, python=python, wheels=wheels, uv=uv)
    raise InstallError(
        f"{python} has no pip, and no uv is on PATH ({asked.why_failed})",
        hints=(f"{python} -m ensurepip", "or install uv"),
    )


def parse_pip_report(text: str, system: System) -> tuple[Wheel, ...]:
    """Read the output of ``pip install --report``; `system` has the sizes of local files.

    Raises
    ------
    InstallError
        The text is not a report, or a wheel in it has no hash.
    """
    try:
        rows = [_row(row) for row in json.loads(text)["install"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        hints = ("upgrade pip: pip install -U pip",)
        raise InstallError(f"pip's report can't be read ({error})", hints=hints) from None
    wheels = []
    for name, version, digest, parts in rows:
        if not digest:
            raise InstallError(f"the package index has no SHA-256 for {name} {version}: it can't be verified")
        found = system.stat(unquote(parts.path)) if parts.scheme == "file" else None
        size = found.size_bytes if found is not None else None
        wheels.append(Wheel(*normalize(name, version), hashes=(f"sha256:{digest}",), size_bytes=size))
    return tuple(wheels)


def _row(row: Any) -> tuple[str, str, str, SplitResult]:
    """Read the name, version, hash and place of a wheel in pip's report."""
    source = row["download_info"]
    digest = source.get("archive_info", {}).get("hashes", {}).get("sha256", "")
    return str(row["metadata"]["name"]), str(row["metadata"]["version"]), digest, urlsplit(str(source.get("url", "")))


def parse_uv_compile(text: str) -> tuple[Wheel, ...]:
    r"""Read the requirements that ``uv pip compile --generate-hashes`` prints.

    Examples
    --------
    >>> parse_uv_compile("ziglang==0.15.1 \\\n    --hash=sha256:ab \\\n    --hash=sha256:cd\n")[0].hashes
    ('sha256:ab', 'sha256:cd')
    """
    wheels: list[Wheel] = []
    for line in text.replace("\\\n", " ").splitlines():
        written, *hashes = line.split("--hash=")
        requirement = parse_requirement(written)
        if requirement is not None:
            pins = [pin.version for pin in requirement.specifier if pin.operator == "=="]
            digests = tuple(digest.strip() for digest in hashes)
            wheels.extend(Wheel(*normalize(requirement.name, pin), hashes=digests) for pin in pins)
    return tuple(wheels)
