"""Images as libraries of this process: what is mapped is what its name, a hash, says, and nobody else can change it.

XLA never forgets a handler, so an image stays mapped for the life of the process, and each is mapped once.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import platform
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from be_runtime.bundle.baseline import require_baseline, require_machine
from be_runtime.bundle.carried import Demand
from be_runtime.bundle.index import INDEX, CodeImage, Index, image_file, parse_index
from be_runtime.errors import BeRuntimeError, LoadError
from be_toolchain.machine.forks import ThreadLock
from be_toolchain.machine.trust.folder_trust import distrust, distrust_entry, is_open, is_trusted_owner

_MOST = 2**26
"""Bytes of the largest index that is read: a few kilobytes of a zip may stand for more than there is memory."""

_mapped: dict[str, ctypes.CDLL] = {}
_mapping = ThreadLock()


class Bundle(NamedTuple):
    """A bundle that can be read.

    Parameters
    ----------
    where : str
        Its place, for messages.
    table : Index
    read : callable
        Function from a path in the bundle to the bytes of the file.
    folder : Path or None
        Folder of its files, which can be mapped in place.
    vouched : Path or None
        Folder whose code this process runs anyway, such as that of an imported package: whoever may change that may
        change this.
    is_checked : bool
        True if the hashes of all images are checked already.
    """

    where: str
    table: Index
    read: Callable[[str], bytes | memoryview]
    folder: Path | None = None
    vouched: Path | None = None
    is_checked: bool = False

    def image(self, digest: str) -> bytes:
        """Return the bytes of an image.

        Raises
        ------
        LoadError
            The image is missing or damaged.
        """
        return bytes(self._checked(digest))

    def file(self, name: str) -> bytes | memoryview:
        """Return the bytes of a file.

        Raises
        ------
        LoadError
            It is missing, or can't be read.
        """
        with self._reading(name):
            return self.read(name)

    def _checked(self, digest: str) -> bytes | memoryview:
        """Return the bytes of an image, without a copy where there are bytes already."""
        file = image_file(digest, self.table.images[digest])
        data = self.file(file)
        if not self.is_checked:
            self._require(hashlib.sha256(data).hexdigest() == digest, digest)
        return data

    def _check_file(self, path: Path, digest: str) -> None:
        """Check a file that is mapped in place: its hash, once; beside code that is run as it is, only its size."""
        with self._reading(image_file(digest, self.table.images[digest])):
            if self.vouched is None and not self.is_checked:
                with path.open("rb") as file:
                    self._require(hashlib.file_digest(file, "sha256").hexdigest() == digest, digest)
            else:
                self._require(path.stat().st_size == self.table.images[digest].size, digest)

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
            It is missing, damaged, for another machine, or could be changed by another user.
        """
        with _mapping:
            if digest not in _mapped:
                require_machine(self.table.machine, self.where)
                require_baseline(self.table.images[digest].baseline, self.where)
                _mapped[digest] = self._map(digest)
            return _mapped[digest]

    def path(self, digest: str) -> Path:
        """Return the file of an image, for messages; it exists if the bundle is a folder."""
        return Path(self.where, image_file(digest, self.table.images[digest]))

    def _map(self, digest: str) -> ctypes.CDLL:
        if self.folder is None:
            return map_bytes(self._checked(digest), digest, self.where)
        path = self.path(digest)
        self._check_file(path, digest)
        self._require_trusted(self.folder, path.parent, path)
        return _open(str(path), self.where)

    def require_trusted(self) -> None:
        """Check that nobody else can change what the index of a folder says.

        Raises
        ------
        LoadError
            Another user can.
        """
        if self.folder is not None:
            above = () if self.vouched is not None else (self.folder.parent,)
            self._require_trusted(*above, self.folder, self.folder / INDEX)

    def _require_trusted(self, *places: Path) -> None:
        vouched = None if self.vouched is None else self.vouched.stat()
        for place in places:
            problem = _distrust(place.stat(), vouched)
            if problem:
                raise LoadError(
                    f"code is not loaded from {place}, which {problem}",
                    hints=(
                        f"chmod go-w {place}" if problem.startswith("can be") else "install it as yourself or root",
                    ),
                )

    @contextlib.contextmanager
    def _reading(self, file: str) -> Iterator[None]:
        try:
            yield
        except BeRuntimeError:
            raise
        except Exception as error:
            raise _damaged(self.where, file, error) from error


def _distrust(status: os.stat_result, vouched: os.stat_result | None) -> str:
    """Return the reason why a place is not trusted; empty if it is as trustworthy as another one."""
    uid = os.geteuid()
    if vouched is None:
        return distrust_entry(status, uid)
    if is_trusted_owner(status, uid) or status.st_uid == vouched.st_uid:
        is_worse = is_open(status, status.st_uid) and not is_open(vouched, vouched.st_uid)
        return f"can be written by other users (mode {stat.S_IMODE(status.st_mode):o})" if is_worse else ""
    return f"belongs to another user (uid {status.st_uid})"


def open_folder(folder: Path, vouched: Path | None = None) -> Bundle | None:
    """Open the bundle of a folder; None if there is none.

    Raises
    ------
    LoadError
        See `parse_index`.
    """
    try:
        text = (folder / INDEX).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LoadError(f"{folder / INDEX} can't be read: {error.strerror}") from error
    return Bundle(
        str(folder), parse_index(text, str(folder)), lambda file: (folder / file).read_bytes(), folder, vouched
    )


def read_index(archive: zipfile.ZipFile, name: str, where: str) -> bytes:
    """Read an index in a zip.

    Raises
    ------
    LoadError
        It can't be read, or is larger than any index.
    """
    try:
        with archive.open(name) as file:
            text = file.read(_MOST + 1)
    except Exception as error:
        raise _damaged(where, name, error) from error
    if len(text) > _MOST:
        raise _damaged(where, name, f"it has more than {_MOST} bytes")
    return text


def _damaged(where: str, file: str, problem: object) -> LoadError:
    return LoadError(f"{where} is damaged: {file} can't be read: {problem}", hints=("copy or install it again",))


def map_bytes(data: bytes | memoryview, digest: str, where: str) -> ctypes.CDLL:
    """Map a library from memory, which nobody can change; where that is forbidden, from a private folder.

    The file's descriptor stays open: glibc tells libraries apart by name first, and a closed number is used again.
    """
    with contextlib.suppress(OSError, LoadError):
        descriptor = os.memfd_create(f"be-{digest[:16]}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
            return _open(f"/proc/self/fd/{descriptor}", where)
        except (OSError, LoadError):
            os.close(descriptor)  # nothing is mapped by its name
            raise
    with _private_file(data, digest) as path:
        return _open(path, where)


@contextlib.contextmanager
def _private_file(data: bytes | memoryview, digest: str) -> Iterator[str]:
    """Write a file in a folder of mode 0700, for as long as it takes to map it.

    Raises
    ------
    LoadError
        Another user could replace that folder.
    """
    from be_toolchain.machine.trust.folder_trail import distrusted_on_way  # few loads come here

    above = tempfile.gettempdir()
    problem = distrust(Path(above).stat(), os.geteuid())
    problem = problem or next(
        (f"is below {', which '.join(row)}" for row in distrusted_on_way(Path(above), to_it=True)), ""
    )
    if problem:
        raise LoadError(
            f"code is not written to {above}, which {problem}", hints=("name a folder of your own in TMPDIR",)
        )
    with tempfile.TemporaryDirectory(prefix="be-") as folder:
        path = Path(folder, f"{digest}.so")
        path.write_bytes(data)
        yield str(path)


def _open(path: str, where: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError as error:
        libc = " ".join(platform.libc_ver())
        hints = (f"this machine has {libc}: build it on an older system, or in a manylinux image",)
        raise LoadError(
            f"code of {where} can't be loaded: {error}", hints=hints if "GLIBC" in str(error) else ()
        ) from error


def mapped_bytes(image: CodeImage, library: ctypes.CDLL, name: str, wanted: Demand) -> bytes:
    """Return a mapped library's bytes, for an exported program: it is taken as it was built.

    Raises
    ------
    LoadError
        Its file is gone, or it lacks an architecture that is asked for.
    """
    lacking = sorted({*wanted.archs} - {*image.archs}) if image.archs else []
    if lacking:
        raise LoadError(
            f"{name} was built ahead of time for {', '.join(image.archs)}, and not for {', '.join(lacking)}",
            hints=("build its package for these architectures", "or BE_JIT=always compiles it here"),
        )
    return library_bytes(library)


def library_bytes(library: ctypes.CDLL) -> bytes:
    """Return the bytes of a library's file.

    Raises
    ------
    LoadError
        The file is gone.
    """
    try:
        return Path(library._name).read_bytes()  # noqa: SLF001 - the only record of it
    except OSError as error:
        raise LoadError(f"the code of a loaded kernel can't be read again: {error}") from error
