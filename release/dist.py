"""The sdist and the wheels, made so that the same source and compilers give the same bytes anywhere."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from be_toolchain import __version__
from release.links import write_links
from release.native import platform_wheel
from release.problems import ReleaseError

SOURCES = (
    *("be_toolchain", "be_runtime", "release", "pyproject.toml", "README.md"),
    *("LICENSE", "CHANGELOG.md", "MANIFEST.in"),
)
"""All that the distribution is made of; what else lies in a checkout can't get into it."""


def source_date_epoch(root: Path) -> int:
    """The time stamp of all files: ``SOURCE_DATE_EPOCH``, else that of the last commit.

    Raises
    ------
    ReleaseError
        There is neither, or the variable is no number of seconds.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        asked = ("git", "-C", str(root), "log", "-1", "--format=%ct")
        try:
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
        except OSError:
            raise ReleaseError(
                "git is not installed: set SOURCE_DATE_EPOCH to the release's time, in seconds"
            ) from None
        text = done.stdout.strip()
    if not text.isdecimal():
        raise ReleaseError(f"no time stamp for the files: set SOURCE_DATE_EPOCH to seconds since 1970, not {text!r}")
    return int(text)


def build(root: Path, out: Path, epoch: int, machines: Sequence[str] = ()) -> tuple[Path, ...]:
    """Build the sdist, and the wheels from that sdist: one without compiled files, and one for each kind of machine.

    Parameters
    ----------
    root : Path
        The checkout.
    out : Path
        Folder of the files; made if need be.
    epoch : int
        The time stamp of every file, in seconds since 1970; a wheel's can't be before 1980.
    machines : sequence of str
        Kinds of machines, as in `release.native.MACHINES`.

    Returns
    -------
    tuple of Path
        The sdist and the wheels.

    Raises
    ------
    ReleaseError
        The build failed; the message has what it printed.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="be-dist-") as name:
        folder = Path(name)
        tree = folder / "tree"
        copy_sources(root, tree)
        write_links(tree, __version__)
        made = _run_build("--sdist", tree, folder / "sdist", epoch)
        sdist = out / made.name
        sdist.write_bytes(normalize_sdist(made.read_bytes(), epoch))
        with tarfile.open(sdist) as archive:
            archive.extractall(folder / "unpacked", filter="data")
        (unpacked,) = (folder / "unpacked").iterdir()
        wheel = _run_build("--wheel", unpacked, folder / "wheel", epoch)
        pure = Path(shutil.copy2(wheel, out))
        return sdist, pure, *(platform_wheel(pure, unpacked, machine, epoch) for machine in machines)


def copy_sources(root: Path, tree: Path) -> None:
    """Lay out what is built in a new folder, apart from whatever else is in the checkout.

    Raises
    ------
    ReleaseError
        Some of it is missing.
    """
    tree.mkdir()
    for name in SOURCES:
        source = root / name
        if not source.exists():
            raise ReleaseError(f"{source} is missing: the distribution is made of {', '.join(SOURCES)}")
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, tree / name)


def build_twice(root: Path, out: Path, epoch: int, machines: Sequence[str] = ()) -> tuple[Path, ...]:
    """Build, and once more elsewhere, and compare.

    Raises
    ------
    ReleaseError
        The build failed, or gave other bytes the second time.
    """
    made = build(root, out, epoch, machines)
    with tempfile.TemporaryDirectory(prefix="be-again-") as folder:
        for first, second in zip(made, build(root, Path(folder), epoch, machines), strict=True):
            if first.read_bytes() != second.read_bytes():
                raise ReleaseError(f"{first.name} is not reproducible: a second build gave other bytes")
    return made


def normalize_sdist(content: bytes, epoch: int) -> bytes:
    """An sdist's files in one order, of one owner, with one time stamp and plain modes.

    Parameters
    ----------
    content : bytes
        A ``.tar.gz``.
    epoch : int
        The time stamp, in seconds since 1970.
    """
    plain = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as old,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            clean = tarfile.TarInfo(member.name)
            clean.type, clean.size, clean.mtime = member.type, member.size, epoch
            clean.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(clean, old.extractfile(member) if member.isfile() else None)
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=epoch) as stream:
        stream.write(plain.getvalue())
    return packed.getvalue()


def _run_build(kind: str, tree: Path, out: Path, epoch: int) -> Path:
    """Run the build backend of this environment: nothing is downloaded."""
    command = (sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", str(out), str(tree))
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    # The backend writes the metadata, whose modes get into the wheel.
    done = subprocess.run(command, env=environ, umask=0o022, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        printed = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise ReleaseError(f"python -m build {kind} failed:\n{printed}")
    (made,) = out.iterdir()
    return made
