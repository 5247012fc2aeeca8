"""A file of archives for people to carry: a zip with each archive as it is, under its digest.

The archives have their own hashes and signatures; a member ``be-export`` states the format.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from be_runtime.cache.folder.layout import is_digest
from be_runtime.errors import ArgumentError
from be_runtime.sharing.archive import ArchiveError, Head, SignatureError, Verify, unpack
from be_toolchain.machine.trust.regular_file import LARGEST, open_regular
from be_toolchain.machine.trust.zip_files import open_archive, read_member

_MARK, _FORMAT = "be-export", b"1\n"


class ExportWriter:
    """Writes such a file, which appears when it is whole."""

    def __init__(self, path: Path) -> None:
        self._path, self._partial = path, path.with_name(f"{path.name}.{os.urandom(4).hex()}.partial")
        self._seen: set[str] = set()

    def __enter__(self) -> Self:
        try:
            self._file = self._partial.open("xb")  # through no link, and into no file of somebody else
            self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED)
        except OSError as error:
            raise _unwritable(self._path, error) from error
        self._write(_MARK, _FORMAT)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._zip.close()
            self._file.close()
            if kind is None:
                self._partial.replace(self._path)
        except OSError as error:
            raise _unwritable(self._path, error) from error
        finally:
            self._partial.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._file.close()

    def add(self, digest: str, data: bytes) -> None:
        """Add an archive, unless there is one of the same entry."""
        if digest not in self._seen:
            self._seen.add(digest)
            self._write(digest, data)

    def _write(self, name: str, data: bytes) -> None:
        try:
            self._zip.writestr(zipfile.ZipInfo(name), data)
        except OSError as error:
            raise _unwritable(self._path, error) from error


def read_export(path: Path, verify: Verify | None = None) -> Iterator[tuple[Head, bytes]]:
    """Iterate over the archives in a file, each after a check of its hashes, and of its signature if asked for.

    Raises
    ------
    ArgumentError
        There is no such file, or it is damaged, of another format, or not signed by somebody who is trusted.
    """
    try:
        with open_regular(path) as file, open_archive(file) as opened:
            members = opened.infolist()
            names = [member.filename for member in members]
            if _MARK not in names or opened.getinfo(_MARK).file_size > len(_FORMAT):
                raise ArgumentError(f"{path} is no export of the cache", hints=("python -m be_runtime cache export",))
            if opened.read(_MARK) != _FORMAT:
                raise ArgumentError(f"{path} is of another release's format")
            for member in members:
                if member.filename != _MARK:
                    yield _read(opened, member, verify, path)
    except zipfile.BadZipFile as error:
        hint = "an export is the file that python -m be_runtime cache export writes; it may have been cut short"
        raise ArgumentError(f"{path} is no export of the cache, or is damaged: {error}", hints=(hint,)) from error
    except (OSError, RuntimeError, EOFError) as error:
        raise ArgumentError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from error


def _read(opened: zipfile.ZipFile, member: zipfile.ZipInfo, verify: Verify | None, path: Path) -> tuple[Head, bytes]:
    name = member.filename
    if not is_digest(name) or member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise ArgumentError(f"{path} has {name!r}, which is no archive of an entry")
    try:
        data = read_member(opened, name, LARGEST)
    except ValueError as error:
        raise ArgumentError(f"{path}: the archive {name[:12]} can't be read: {error}") from error
    try:
        head, _ = unpack(data, verify)
    except ArchiveError as problem:
        hints = ["nothing was taken from it"]
        if isinstance(problem, SignatureError):
            hints.append("--public-key, else BE_REMOTE_CACHE_PUBLIC_KEY, names who is trusted")
        raise ArgumentError(f"{path}: the archive {name[:12]} {problem}", hints=tuple(hints)) from None
    if head.digest != name:
        raise ArgumentError(f"{path}: the archive {name[:12]} is of another entry than its name says")
    return head, data


def _unwritable(path: Path, error: OSError) -> ArgumentError:
    return ArgumentError(f"{path} can't be written: {error.strerror}")
