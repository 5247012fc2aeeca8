"""Artifacts: compiled code with its index, the one format on disk, in wheels, in exported programs, and on the wire.

As a folder, an artifact has ``index.json`` and ``images/<sha256>.<ending>``. As one file, it is a magic line, the seal
of the index, the index's length, the index (compressed JSON), and the images in the order of their hashes. The seal is
``h`` and the index's SHA-512, or ``s`` and an Ed25519 signature.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import io
import os
import platform
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

from be_runtime.errors import ArgumentError, BeRuntimeError, LoadError
from be_runtime.store.index import (
    IMAGES,
    INDEX,
    LARGEST_INDEX,
    CodeImage,
    Index,
    ModuleRecord,
    image_file,
    parse_index,
    render_index,
)
from be_toolchain.machine import forks, trust
from be_toolchain.named import NamedTuple

if TYPE_CHECKING:
    from be_runtime.store.signing import Sign, Verifier

MAGIC = b"be-artifact-1\n"
EXPORT_MARK = "be-export"
"""Member of an export of the cache, which is a zip of artifacts, see `be_runtime.store.places`."""
_SIGNED, _HASHED = b"s", b"h"
_SEAL, _LENGTH = 65, 8

_OLD_MAGIC, _ZIP, _PROGRAM = b"be-entry-1\n", b"PK\3\4", "program.stablehlo"
"""First bytes of earlier releases' entries and of their exported programs, which are zips, and a member of the zips."""

_mapped: dict[str, ctypes.CDLL] = {}
_mapping = forks.ThreadLock()


class Artifact(NamedTuple):
    """An open artifact.

    Parameters
    ----------
    where : str
        Place of the artifact, for messages.
    table : Index
    folder : Traversable or None
        Folder of the images, which may be a part of a zip; None if they are in memory.
    data : dict of str to memoryview
        Images in memory, by their hashes.
    vouched : Path or None
        Folder whose code this process runs anyway, such as the folder of an imported package. Users that may change
        this folder may change the artifact.
    is_checked : bool
        True if the hashes of all images are checked already.
    memory : str
        Folder with records of checks, see `is_whole`; empty to record nothing.
    packed : bytes
        The artifact as one file, if it was opened from one.
    """

    where: str
    table: Index
    folder: Traversable | None = None
    data: Mapping[str, bytes | memoryview] = {}
    vouched: Path | None = None
    is_checked: bool = False
    memory: str = ""
    packed: bytes = b""

    def image(self, digest: str) -> bytes:
        """Return the bytes of an image.

        Raises
        ------
        LoadError
            The image is missing or damaged.
        """
        return bytes(self._checked(digest))

    def _checked(self, digest: str) -> bytes | memoryview:
        """Return the bytes of an image after a check of their hash, without a copy if they are in memory already."""
        if self.folder is None:
            return self.data[digest]
        image = self.table.images[digest]
        with _reading(self.where, image_file(digest, image)):
            data = _read(self.folder / IMAGES / self.path(digest).name, image.size)
        if not self.is_checked:
            self._require(hashlib.sha256(data).hexdigest() == digest, digest)
        return data

    def require_whole(self, digest: str) -> None:
        """Check the bytes of an image, unless this machine remembers a check.

        Raises
        ------
        LoadError
            The image is missing or damaged.
        """
        if not isinstance(self.folder, Path) or self.is_checked:
            self._checked(digest)
            return
        image = self.table.images[digest]
        with _reading(self.where, image_file(digest, image)):
            from be_runtime.store.images import is_whole  # a load from the cache does not need it

            self._require(is_whole(self.path(digest), digest, image.size, self.memory), digest)

    def _require(self, is_whole: bool, digest: str) -> None:
        if not is_whole:
            raise LoadError(
                f"{self.where} is damaged: the image {digest[:16]} has other bytes than when it was built",
                hints=("copy, install or build it again",),
            )

    def library(self, digest: str) -> ctypes.CDLL:
        """Map an image into this process, once.

        Raises
        ------
        LoadError
            The image is missing, damaged or for another machine, or another user can change it.
        """
        from be_runtime.store.images import require_baseline, require_machine

        with _mapping:
            if digest not in _mapped:
                require_machine(self.table.machine, self.where)
                require_baseline(self.table.images[digest].baseline, self.where)
                _mapped[digest] = self._map(digest)
            return _mapped[digest]

    def path(self, digest: str) -> Path:
        """Return the path of an image for messages; the file exists if the artifact is a folder."""
        return Path(self.where, image_file(digest, self.table.images[digest]))

    def _map(self, digest: str) -> ctypes.CDLL:
        from be_runtime.store.images import map_bytes, map_file

        if not isinstance(self.folder, Path):
            return map_bytes(self._checked(digest), digest, self.where)
        path = self.path(digest)
        with _reading(self.where, image_file(digest, self.table.images[digest])):
            _require_trusted(self.vouched, self.folder, path.parent, path)
        if not self.is_checked:
            self.require_whole(digest)
        return map_file(str(path), self.where)


def _read(file: Traversable, most_bytes: int) -> bytes:
    """Read a file of a folder, and refuse a member of a zip that exceeds the limit."""
    if isinstance(file, zipfile.Path) and file.is_file():
        from be_toolchain.machine.zips import read_member

        return read_member(file.root, file.at, most_bytes)
    return trust.read_part(file, most_bytes)


@contextlib.contextmanager
def _reading(where: str, file: str) -> Iterator[None]:
    """Convert any error in the block to a `LoadError` that names the damaged file, except errors of this package."""
    try:
        yield
    except BeRuntimeError:
        raise
    except Exception as error:
        raise LoadError(
            f"{where} is damaged: {file} can't be read: {error!s:.300}", hints=("copy or install it again",)
        ) from error


def _require_trusted(vouched: Path | None, *places: Path) -> None:
    """Check that no other user can change some places; each folder is checked before its contents.

    Raises
    ------
    LoadError
        Another user can change a path.
    OSError
        A path does not exist.
    """
    known = None if vouched is None else vouched.stat()
    for place in places:
        problem = _distrust(place.stat(), known)
        if problem:
            raise LoadError(
                f"code is not loaded from {place}, which {problem}",
                hints=(f"chmod go-w {place}" if problem.startswith("can be") else "install it as yourself or root",),
            )


def _distrust(status: os.stat_result, vouched: os.stat_result | None) -> str:
    """Return the reason not to trust a path; empty if it is trusted, or as safe as the vouched folder."""
    uid = os.geteuid()
    if vouched is None:
        return trust.distrust_entry(status, uid)
    if trust.is_trusted_owner(status, uid) or status.st_uid == vouched.st_uid:
        is_worse = trust.is_open(status, status.st_uid) and not trust.is_open(vouched, vouched.st_uid)
        return f"can be written by other users (mode {stat.S_IMODE(status.st_mode):o})" if is_worse else ""
    return f"belongs to another user (uid {status.st_uid})"


def open_trusted(folder: Path, vouched: Path | None = None, memory: str = "") -> Artifact | None:
    """Open the artifact in a folder, after a check that no other user can change its index; None if there is none.

    Raises
    ------
    LoadError
        Another user can change the index, or it is not valid, see `parse_index`.
    """
    above = () if vouched is not None else (folder.parent,)
    try:
        _require_trusted(vouched, *above, folder, folder / INDEX)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LoadError(f"{error.filename} can't be read: {error.strerror}") from error
    found = open_folder(folder)
    return None if found is None else found._replace(vouched=vouched, memory=memory)


def open_folder(folder: Traversable, where: str = "") -> Artifact | None:
    """Open the artifact in a folder or a part of a zip, without a check of its owner; None if there is none.

    Parameters
    ----------
    folder : Traversable
    where : str
        Place of the artifact, for messages; by default the folder.

    Raises
    ------
    LoadError
        See `parse_index`.
    """
    where = where or str(folder)
    with _reading(where, INDEX):
        try:
            text = _read(folder / INDEX, LARGEST_INDEX)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise LoadError(f"{where}/{INDEX} can't be read: {error.strerror}") from error
    return Artifact(where, parse_index(text, where), folder)


def open_own(folder: Path) -> Artifact:
    """Open the artifact of a cache entry, whose files the cache has checked."""
    return Artifact(str(folder), parse_index(trust.read_regular(folder / INDEX), str(folder)), folder, is_checked=True)


def pack(table: Index, images: Mapping[str, bytes], sign: Sign | None = None) -> bytes:
    """Return an artifact as one file; `unpack` is the inverse.

    Raises
    ------
    ArgumentError
        The index is larger than a reader accepts.
    """
    text = zlib.compress(render_index(table).encode())
    framed = len(text).to_bytes(_LENGTH, "little") + text
    return b"".join((MAGIC, _seal(framed, sign), framed, *(images[digest] for digest in sorted(images))))


def _seal(framed: bytes, sign: Sign | None) -> bytes:
    return _SIGNED + sign(framed) if sign else _HASHED + hashlib.sha512(framed).digest()


def unpack(data: bytes, where: str, verify: Verifier | None = None) -> Artifact:
    """Open an artifact from the bytes of its file, after checks of its hashes and, with `verify`, of its signature.

    Raises
    ------
    LoadError
        The artifact is damaged, has another format, or is not signed by a trusted key.
    """
    if data.startswith(_ZIP):
        return _unpack_zip(data, where)
    seal, framed, rest = _split(data, where)
    is_signed = seal.startswith(_SIGNED)
    if verify is not None and not is_signed:
        hint = f"the builder must sign it, since {verify.named_by} is set"
        raise LoadError(f"{where} is not signed", hints=(hint,))
    if verify is not None and not verify.check(framed, seal[1:]):
        hint = f"if you trust the signer, add their key to {verify.named_by}"
        raise LoadError(f"{where} is not signed by a trusted key", hints=(hint,))
    if not is_signed and seal != _seal(framed, None):
        raise _damaged(where, "its index does not match its hash")
    with _reading(where, INDEX):
        inflate = zlib.decompressobj()
        text = inflate.decompress(framed[_LENGTH:], LARGEST_INDEX)
        if not inflate.eof or inflate.unused_data:
            raise ValueError("its end is missing, or it is too large")
    table = parse_index(text, where)
    images, at = {}, 0
    for digest, image in sorted(table.images.items()):
        images[digest] = rest[at : at + image.size]
        at += image.size
        if hashlib.sha256(images[digest]).hexdigest() != digest:
            raise _damaged(where, f"the image {digest[:16]} has other bytes than when it was built")
    if at != len(rest):
        raise _damaged(where, "it is longer than its index states")
    return Artifact(where, table, data=images, is_checked=True, packed=data)


def _unpack_zip(data: bytes, where: str) -> Artifact:
    """Open an exported program of an earlier release: a zip of an artifact's files and the program."""
    from be_toolchain.machine.zips import open_archive, read_member  # few programs are that old

    with _reading(where, "the zip"):
        archive = open_archive(io.BytesIO(data))
        if EXPORT_MARK in archive.namelist():
            hints = ("python -m be_runtime cache import takes it",)
            raise LoadError(f"{where} is an export of the cache, not a program", hints=hints)
        table = parse_index(read_member(archive, INDEX, LARGEST_INDEX), where)
        names = {image_file(digest, image): image.size for digest, image in table.images.items()}
        parts = [read_member(archive, name, size) for name, size in names.items()]
        is_packed = archive.getinfo(_PROGRAM).compress_type != zipfile.ZIP_STORED
        parts.append(read_member(archive, _PROGRAM, trust.LARGE if is_packed else trust.LARGEST))
    images = {hashlib.sha256(part).hexdigest(): part for part in parts}
    program = CodeImage("program", "", len(parts[-1]))
    digests = {**table.images, [*images][-1]: program}
    if images.keys() != digests.keys():
        raise _damaged(where, "an image has other bytes than when it was built")
    table = table._replace(images=digests, program={**table.program, "image": [*images][-1]})
    return Artifact(where, table, data=images, is_checked=True, packed=data)


def resigned(data: bytes, where: str, sign: Sign) -> bytes:
    """Return the bytes of an artifact with its signature replaced.

    Raises
    ------
    LoadError
        The artifact is damaged.
    """
    _, framed, rest = _split(data, where)
    return b"".join((MAGIC, _seal(framed, sign), framed, rest))


def _split(data: bytes, where: str) -> tuple[bytes, bytes, memoryview]:
    """Split a packed artifact into its seal, its index with the length in front, and its images."""
    if not data.startswith(MAGIC):
        is_older = data.startswith((_OLD_MAGIC, MAGIC.rstrip(b"1\n")))
        if is_older:
            raise LoadError(f"{where} has the format of another release", hints=("make it again with this release",))
        hints = ("be_runtime.export makes programs", "copy it again")
        raise LoadError(f"{where} is not a complete exported program or artifact", hints=hints)
    at = len(MAGIC) + _SEAL
    end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "little")
    if end > len(data):
        raise _damaged(where, "it is truncated")
    return data[len(MAGIC) : at], data[at:end], memoryview(data)[end:]


def _damaged(where: str, problem: str) -> LoadError:
    return LoadError(f"{where} is damaged: {problem}", hints=("copy or build it again",))


def write_images(folder: Path, table: Index, images: Mapping[str, bytes | Path]) -> tuple[str, ...]:
    """Write an artifact into an empty folder, and return the names of its files.

    Parameters
    ----------
    folder : Path
    table : Index
    images : dict of str to (bytes or Path)
        Bytes of each image by its hash, or the file of the same file system that becomes the image.
    """
    names = [image_file(digest, table.images[digest]) for digest in images]
    (folder / IMAGES).mkdir(mode=0o700)
    for name, image in zip(names, images.values(), strict=True):
        image.rename(folder / name) if isinstance(image, Path) else (folder / name).write_bytes(image)
    (folder / INDEX).write_text(render_index(table), encoding="utf-8")
    return (INDEX, *names)


def keep_library(folder: Path, name: str, image: CodeImage, modules: Mapping[str, ModuleRecord]) -> tuple[str, ...]:
    """Make an artifact of a library that was linked in a folder, and return the names of its files.

    Parameters
    ----------
    folder : Path
    name : str
        Name of the library in the folder; the file becomes the image.
    image : CodeImage
        Description of the library, without its size.
    modules : dict of str to ModuleRecord
        Rows of the index by name, without the hash of the image.
    """
    with (folder / name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        image = image._replace(size=file.tell())
    rows = {module: record._replace(image=digest)._asdict() for module, record in modules.items()}
    return write_images(folder, Index(platform.machine(), {digest: image}, modules=rows), {digest: folder / name})


_NEW = f"{IMAGES}/.new"
"""Name of the file that is being written. A killed process may leave it, and the next process replaces it."""

_PYTHON = "__init__.py"
"""File of earlier releases; a new build removes it."""

_OURS = frozenset([INDEX, IMAGES, _PYTHON, "__pycache__"])
_OLD = r"[0-9a-f]{64}\.\w+|\.new"


def write_folder(folder: Path, index: Index, images: Mapping[str, bytes]) -> None:
    """Write an artifact that every user can read, and replace an older one in the folder.

    Readers always find a whole artifact, since images are written first, then the index in one step, and old images
    are removed last.

    Parameters
    ----------
    folder : Path
    index : Index
    images : dict of str to bytes
        Bytes of each image, by its hash.

    Raises
    ------
    ArgumentError
        The folder contains something else, or can't be written.
    """
    files = {image_file(digest, index.images[digest]): data for digest, data in images.items()}
    table = render_index(index).encode()
    try:
        if folder.exists() and not _OURS.issuperset(path.name for path in folder.iterdir()):
            raise ArgumentError(f"{folder} has files that this command did not write", hints=("name another folder",))
        (folder / IMAGES).mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            for place in (folder, folder / IMAGES):
                place.chmod(0o755)
            for name, data in (*files.items(), (INDEX, table)):
                new = folder / _NEW  # never change a library that a process has mapped
                new.write_bytes(data)
                new.chmod(0o755 if name.endswith(".so") else 0o644)
                new.replace(folder / name)
            for path in (folder / IMAGES).iterdir():
                if re.fullmatch(_OLD, path.name) and str(path.relative_to(folder)) not in files:
                    path.unlink(missing_ok=True)
            (folder / _PYTHON).unlink(missing_ok=True)
            shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    except OSError as error:
        raise ArgumentError(f"{error.filename or folder} can't be written: {error.strerror}") from error


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock against other writers, if its file system has locks."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
