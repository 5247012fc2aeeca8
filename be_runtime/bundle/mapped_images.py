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
from be_runtime.bundle.elf_header import library_problem
from be_runtime.bundle.index import INDEX, LARGEST_INDEX, CodeImage, Index, image_file, parse_index
from be_runtime.bundle.whole_files import is_whole
from be_runtime.errors import BeRuntimeError, LoadError
from be_toolchain.machine.forks import ThreadLock
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.trust.folder_trust import distrust, distrust_entry, is_open, is_trusted_owner
from be_toolchain.machine.trust.regular_file import LARGEST, open_regular, read_regular
from be_toolchain.machine.trust.zip_files import read_member

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
        Function from a path in the bundle, and the most bytes that it may have, to the bytes of the file.
    folder : Path or None
        Folder of its files, which can be mapped in place.
    vouched : Path or None
        Folder whose code this process runs anyway, such as that of an imported package: whoever may change that may
        change this.
    is_checked : bool
        True if the hashes of all images are checked already.
    memory : str
        Folder that remembers which files were checked, see `be_runtime.bundle.whole_files`; empty without one.
    """

    where: str
    table: Index
    read: Callable[[str, int], bytes | memoryview]
    folder: Path | None = None
    vouched: Path | None = None
    is_checked: bool = False
    memory: str = ""

    def image(self, digest: str) -> bytes:
        """Return the bytes of an image.

        Raises
        ------
        LoadError
            The image is missing or damaged.
        """
        return bytes(self._checked(digest))

    def file(self, name: str, most_bytes: int = LARGEST) -> bytes | memoryview:
        """Return the bytes of a file.

        Raises
        ------
        LoadError
            It is missing, can't be read, or is larger.
        """
        with self._reading(name):
            return self.read(name, most_bytes)

    def _checked(self, digest: str) -> bytes | memoryview:
        """Return the bytes of an image, without a copy where there are bytes already."""
        image = self.table.images[digest]
        data = self.file(image_file(digest, image), image.size)
        if not self.is_checked:
            self._require(hashlib.sha256(data).hexdigest() == digest, digest)
        return data

    def require_whole(self, digest: str) -> None:
        """Check the bytes of an image, without reading them if that was done on this machine before.

        Raises
        ------
        LoadError
            The image is missing or damaged.
        """
        image = self.table.images[digest]
        if self.folder is None or self.is_checked:
            self._checked(digest)
            return
        with self._reading(image_file(digest, image)):
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
        with self._reading(image_file(digest, self.table.images[digest])):
            _require_trusted(self.vouched, self.folder, path.parent, path)
        if not self.is_checked:
            self.require_whole(digest)
        return _open(str(path), self.where)

    @contextlib.contextmanager
    def _reading(self, file: str) -> Iterator[None]:
        try:
            yield
        except BeRuntimeError:
            raise
        except Exception as error:
            raise _damaged(self.where, file, error) from error


def _require_trusted(vouched: Path | None, *places: Path) -> None:
    """Check that nobody else can change places; each is judged before what is in it is looked at.

    Raises
    ------
    LoadError
        Another user can.
    OSError
        One does not exist.
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
    """Return the reason why a place is not trusted; empty if it is as trustworthy as another one."""
    uid = os.geteuid()
    if vouched is None:
        return distrust_entry(status, uid)
    if is_trusted_owner(status, uid) or status.st_uid == vouched.st_uid:
        is_worse = is_open(status, status.st_uid) and not is_open(vouched, vouched.st_uid)
        return f"can be written by other users (mode {stat.S_IMODE(status.st_mode):o})" if is_worse else ""
    return f"belongs to another user (uid {status.st_uid})"


def open_trusted(folder: Path, vouched: Path | None = None, memory: str = "") -> Bundle | None:
    """Open the bundle of a folder, after a check that nobody else can change what its index says.

    Raises
    ------
    LoadError
        Another user can; see `parse_index` too.
    """
    above = () if vouched is not None else (folder.parent,)
    try:
        _require_trusted(vouched, *above, folder, folder / INDEX)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LoadError(f"{error.filename} can't be read: {error.strerror}") from error
    bundle = open_folder(folder)
    return None if bundle is None else bundle._replace(vouched=vouched, memory=memory)


def open_folder(folder: Path) -> Bundle | None:
    """Open the bundle of a folder, whoever may write to it; None if there is none.

    Raises
    ------
    LoadError
        See `parse_index`.
    """
    try:
        text = read_regular(folder / INDEX, LARGEST_INDEX)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LoadError(f"{folder / INDEX} can't be read: {error.strerror}") from error
    return Bundle(
        str(folder),
        parse_index(text, str(folder)),
        lambda file, most_bytes: read_regular(folder / file, most_bytes),
        folder,
    )


def read_index(archive: zipfile.ZipFile, name: str, where: str) -> bytes:
    """Read an index in a zip.

    Raises
    ------
    LoadError
        It can't be read, or is larger than any index.
    """
    try:
        return read_member(archive, name, LARGEST_INDEX)
    except Exception as error:
        raise _damaged(where, name, error) from error


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
    above = tempfile.gettempdir()
    facts = LocalSystem().folder_facts(Path(above))
    problem = distrust(Path(above).stat(), os.geteuid()) or (facts.obstacle if facts.doubtful else "")
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
        with open_regular(path) as file:
            problem = library_problem(file, platform.machine())
        if problem:
            raise LoadError(f"code of {where} can't be loaded: {problem}", hints=("copy, install or build it again",))
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
        return read_regular(library._name)  # noqa: SLF001 - the only record of it
    except OSError as error:
        raise LoadError(f"the code of a loaded kernel can't be read again: {error}") from error
