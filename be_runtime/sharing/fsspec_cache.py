"""A remote cache in whatever fsspec reaches, such as S3. It is imported when settings name one."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from be_runtime.errors import ArgumentError
from be_toolchain.machine.bounded import FIRST_S, LARGEST, Watch, run_bounded
from be_toolchain.settings.remote_source import FOLDER

T = TypeVar("T")


@contextlib.contextmanager
def _unquoted() -> Iterator[None]:
    """Raise errors without their texts, which may have what a server was sent."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a plug-in raises whatever it likes
        number = getattr(error, "errno", 0)
        if isinstance(number, int) and number > 0:
            raise OSError(number, os.strerror(number)) from None
        raise OSError(type(error).__name__) from None


def _fsspec() -> Any:
    """Return the package fsspec.

    Raises
    ------
    ArgumentError
        It is not installed.
    """
    try:
        import fsspec
    except ImportError as error:
        raise ArgumentError(
            f"the remote cache needs the package fsspec: {error}", hints=("pip install 'brainevent-toolchain[s3]'",)
        ) from None
    return fsspec


class FsspecCache:
    """Entries as files of a file system of fsspec's, which has settings of its own, such as ``AWS_PROFILE``.

    Parameters
    ----------
    url : str
    timeout_s : float
        Longest time of one exchange.

    Raises
    ------
    ArgumentError
        The scheme is unknown, or its package is not installed.
    """

    is_open = False

    def __init__(self, url: str, timeout_s: float) -> None:
        self._scheme, _, self._folder = url.rstrip("/").partition("://")
        self._timeout_s, self._fsspec = timeout_s, _fsspec()
        try:
            self._fsspec.get_filesystem_class(self._scheme)
        except (ImportError, ValueError) as error:
            raise ArgumentError(f"the remote cache {self._scheme}:// can't be used: {error}") from None

    def get(self, digest: str) -> bytes | None:
        """Return the file of a digest, None if there is none; see `_bounded` for errors."""

        @_unquoted()
        def read(watch: Watch, system: Any) -> bytes | None:
            try:
                size = system.info(self._path(digest))["size"]
            except FileNotFoundError:
                return None
            watch.has_begun.set()
            if type(size) is not int or size > LARGEST:
                raise OSError(errno.EFBIG, None)
            return cast("bytes", system.cat_file(self._path(digest)))

        return self._bounded(read)

    def put(self, digest: str, data: bytes) -> None:
        """Write the file of a digest; see `_bounded` for errors."""

        @_unquoted()
        def write(watch: Watch, system: Any) -> None:
            watch.has_begun.set()
            system.pipe_file(self._path(digest), data)

        self._bounded(write)

    def _path(self, digest: str) -> str:
        return f"{self._folder}/{FOLDER}/{digest}"

    def _bounded(self, use: Callable[[Watch, Any], T]) -> T:
        """Call a function with the file system. To set that up takes time too, before any server is asked.

        Raises
        ------
        OSError
            It takes too long, or the file system raised an error, which is named and not quoted.
        """
        until = time.monotonic() + self._timeout_s
        system = run_bounded(lambda _: self._connected(), self._timeout_s, self._timeout_s)
        return run_bounded(lambda watch: use(watch, system), FIRST_S, max(0.0, until - time.monotonic()))

    @_unquoted()
    def _connected(self) -> Any:
        """Return the file system; fsspec keeps one for each process, since none survives a fork."""
        options = {"auto_mkdir": True} if self._scheme in ("file", "local") else {}
        system = self._fsspec.filesystem(self._scheme, **options)
        if hasattr(system, "connect"):
            system.connect()  # else the first question pays for it: 0.2 s for S3
        return system
