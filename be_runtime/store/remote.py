"""Exchange entries with the remote cache of the settings, with a time limit for requests and a pause after faults."""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from be_runtime.errors import ArgumentError
from be_runtime.settings import Settings
from be_runtime.store.artifact import Artifact, unpack
from be_runtime.store.sharing import Query, Say, where_of
from be_runtime.store.signing import Sign, Verifier, read_signer, read_verifier
from be_toolchain.machine import forks
from be_toolchain.machine.http import FIRST_S, LARGEST, HttpServer, Watch, exchange, parse_server, run_bounded
from be_toolchain.machine.system import System
from be_toolchain.remote import FOLDER, RemoteSource, find_remote
from be_toolchain.settings import RUNTIME
from be_toolchain.terminal import printable_line, shown_url, url_secrets

T = TypeVar("T")

_MISSES = (404, 410)
_FAULTS, _REST_S = 2, 60.0
"""Number of faults in a row after which the server is not asked, and the duration of this pause in seconds."""

_LONGEST = 300
"""Largest number of characters of an error's text."""

_told: set[str] = set()
"""Messages about settings that this process has shown."""

_SHARED = forks.ThreadLock()
"""Lock for threads that change the lists of messages and uploads."""


@contextlib.contextmanager
def _unquoted() -> Iterator[None]:
    """Replace the text of an error by its number or type: the text may quote the request and its secrets."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
        number = getattr(error, "errno", 0)
        if isinstance(number, int) and number > 0:
            raise OSError(number, os.strerror(number)) from None
        raise OSError(type(error).__name__) from None


def _fsspec() -> Any:
    """Import the package fsspec.

    Raises
    ------
    ArgumentError
        The package is not installed.
    """
    try:
        import fsspec  # the import takes 300 ms with S3
    except ImportError as error:
        raise ArgumentError(
            f"the remote cache needs the package fsspec: {error}", hints=("pip install 'brainevent-toolchain[s3]'",)
        ) from None
    return fsspec


class FsspecCache:
    """A remote cache in a file system of fsspec, which has its own settings, such as ``AWS_PROFILE``.

    Parameters
    ----------
    url : str
    timeout_s : float
        Longest time of one request.

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
        """Return the file of a digest, or None if there is none; see `_bounded` for errors."""

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
        """Call a function with the file system within the time limit, which includes the setup of the file system.

        Raises
        ------
        OSError
            The call takes too long, or the file system raised an error, whose type is named without its text.
        """
        until = time.monotonic() + self._timeout_s
        system = run_bounded(lambda _: self._connected(), self._timeout_s, self._timeout_s)
        return run_bounded(lambda watch: use(watch, system), FIRST_S, max(0.0, until - time.monotonic()))

    @_unquoted()
    def _connected(self) -> Any:
        """Return the file system, of which fsspec keeps one for each process, since none works after a fork."""
        options = {"auto_mkdir": True} if self._scheme in ("file", "local") else {}
        system = self._fsspec.filesystem(self._scheme, **options)
        if hasattr(system, "connect"):
            system.connect()  # otherwise, the first request takes 0.2 s longer for S3
        return system


class HttpCache:
    """A remote cache on a web server.

    Parameters
    ----------
    server : HttpServer
    timeout_s : float
        Longest time of one request.
    """

    def __init__(self, server: HttpServer, timeout_s: float) -> None:
        self._server, self._timeout_s = server, timeout_s
        self.is_open = not server.is_tls and not server.is_local

    def get(self, digest: str) -> bytes | None:
        """Return the file of a digest, None if there is none.

        Raises
        ------
        OSError, ValueError
            The server gives no valid answer.
        """
        reply = exchange(self._server, "GET", f"{FOLDER}/{digest}", whole_s=self._timeout_s)
        if reply.status in _MISSES:
            return None
        if reply.status != 200:
            raise ValueError(reply.text)
        return reply.body

    def put(self, digest: str, data: bytes) -> None:
        """Write the file of a digest.

        Raises
        ------
        OSError, ValueError
            The server refuses the file.
        """
        reply = exchange(self._server, "PUT", f"{FOLDER}/{digest}", data, whole_s=self._timeout_s)
        if reply.status >= 500:
            raise ValueError(f"{reply.text}; the server may lack the right to write to its folder: see its error log")
        if not 200 <= reply.status < 300:
            raise ValueError(reply.text)


class Carrier(Protocol):
    """The transport of a remote cache. Both functions end within their time limit.

    They may raise any error whose text quotes no server, since a server may repeat the request and its secrets.

    Attributes
    ----------
    is_open : bool
        Whether others could read and change the data on the network.
    """

    is_open: bool

    def get(self, digest: str) -> bytes | None:
        """Return the file of a digest, None if there is none."""

    def put(self, digest: str, data: bytes) -> None:
        """Write the file of a digest."""


class Health:
    """Number of a server's faults in a row, for reads or for writes."""

    def __init__(self) -> None:
        self._faults, self._rests_until = 0, 0.0

    @property
    def is_resting(self) -> bool:
        """True while the server gets no requests."""
        return time.monotonic() < self._rests_until

    def note(self, *, is_fault: bool) -> bool:
        """Count a fault, or reset the count after an answer; return whether this fault begins a pause."""
        self._faults = self._faults + 1 if is_fault else 0
        if self._faults >= _FAULTS:
            self._rests_until = time.monotonic() + _REST_S
        return self._faults >= _FAULTS


class Link(NamedTuple):
    """The process's state of one remote cache."""

    carrier: Carrier
    reading: Health
    writing: Health
    said: set[str]
    uploads: list[threading.Thread]

    def finish(self, timeout_s: float) -> None:
        """Wait for uploads, `timeout_s` seconds in all."""
        until = time.monotonic() + timeout_s
        for thread in tuple(self.uploads):
            thread.join(max(0.0, until - time.monotonic()))


class RemoteCache:
    """A remote cache, see `be_runtime.store.sharing.Store`.

    Parameters
    ----------
    source : RemoteSource
    link : Link
    say : callable
        Shows the user a fault. Each fault is shown once in a process.
    writes : bool
        Whether entries that are built here are uploaded.
    timeout_s : float
        Longest wait for uploads when the process ends.
    """

    def __init__(self, source: RemoteSource, link: Link, say: Say, *, writes: bool, timeout_s: float) -> None:
        self._label, self._named_by, self.secrets = source.label, source.named_by, url_secrets(source.url)
        self.link, self._say, self._writes, self._timeout_s = link, say, writes, timeout_s

    def describe(self) -> str:
        """See `Store.describe`."""
        return self._label

    def get(self, wanted: Query) -> Artifact | None:
        """See `Store.get`."""
        found: list[bytes | None] = []
        self._try("reading", self.link.reading, lambda: found.append(self.link.carrier.get(wanted.key.digest)))
        return unpack(found[0], where_of(self), wanted.verify) if found and found[0] else None

    def put(self, wanted: Query, artifact: Artifact) -> None:
        """See `Store.put`. The upload runs in parallel with the load, and the process waits for it before it ends."""
        if not self._writes or self.link.writing.is_resting:
            return
        put = functools.partial(self.link.carrier.put, wanted.key.digest, artifact.packed)
        thread = threading.Thread(target=self._try, args=("writing", self.link.writing, put), daemon=True)
        uploads = self.link.uploads
        with _SHARED:
            try:
                thread.start()
            except RuntimeError:  # there are no more threads, or the process ends
                return
            if not uploads:
                atexit.register(self.link.finish, self._timeout_s)
            uploads[:] = [*filter(threading.Thread.is_alive, uploads), thread]

    def _try(self, what: str, health: Health, request: Callable[[], object]) -> None:
        """Run a request unless the server pauses, and report a fault."""
        if health.is_resting:
            return
        try:
            request()
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything, and a cache never fails a build
            rests = health.note(is_fault=True)
            text = printable_line(str(error))[:_LONGEST] or type(error).__name__
            if isinstance(error, ConnectionRefusedError):
                text += f"; is it running? Unset {self._named_by} to do without"
            rest = f"; no request for {_REST_S:g} s" if rests else ""
            _tell_once(self.link.said, f"{what} {self._label}: {text}{rest}", self._say)
        else:
            health.note(is_fault=False)


def _tell_once(said: set[str], text: str, say: Say) -> None:
    """Show a message unless it was shown before."""
    with _SHARED:
        if text in said:
            return
        said.add(text)
    say(f"remote cache: {text}")


def name_remote(settings: Settings, system: System, say: Say) -> RemoteSource:
    """Return the remote cache and the keys that the settings name, in the environment or in files.

    Raises
    ------
    PreferenceError
        A settings file is not valid.
    """
    source = find_remote(system, settings.remote_cache, settings.remote_cache_public_key)
    if source.problem:
        _tell_once(_told, source.problem, say)
    return source


def open_remote(source: RemoteSource, settings: Settings, say: Say) -> RemoteCache | None:
    """Open a remote cache; None if there is none.

    Parameters
    ----------
    source : RemoteSource
        URL of the cache, and the keys that sign its entries.
    settings : Settings
    say : callable
        Shows the user a message.

    Raises
    ------
    ArgumentError
        The URL is not valid, or a package for it is missing.
    """
    if not source.url:
        return None
    timeout_s = settings.remote_cache_timeout_s
    link = _link(source.url, source.named_by, timeout_s)
    if link.carrier.is_open:
        signed = "" if source.keys else ", and replace them, since no key is set"
        _tell_once(link.said, f"{source.label} is not encrypted: others on the network can read entries{signed}", say)
    writes = settings.remote_cache_write and source.may_write
    return RemoteCache(source, link, say, writes=writes, timeout_s=timeout_s)


def open_verifier(source: RemoteSource) -> Verifier | None:
    """Return the function that checks signatures; None if no key is set.

    Raises
    ------
    ArgumentError
        A key is not valid, or the package cryptography is missing.
    """
    if not source.keys:
        return None
    return read_verifier(source.keys, source.keys_named_by)


def open_signer(settings: Settings, system: System, say: Say) -> Sign | None:
    """Return the function that signs entries with the key in ``BE_REMOTE_CACHE_PRIVATE_KEY``; None if it is not set.

    A key that other users can read gives one warning in a process and is accepted, since containers mount secrets so.

    Raises
    ------
    ArgumentError
        The file has no key, or the package cryptography is missing.
    """
    if settings.remote_cache_private_key is None:
        return None
    path, variable = settings.remote_cache_private_key, RUNTIME["remote_cache_private_key"].variable
    sign = read_signer(path, variable)
    problem = system.private_key_problem(path)
    if problem:
        _tell_once(_told, f"{variable} is {path}, which {problem}: chmod 600 {path}", say)
    return sign


@forks.made_once(8)
def _link(url: str, named_by: str, timeout_s: float) -> Link:
    """Return the process's state of a remote cache, so that all loads share its fault counts."""
    if not url.startswith(("http://", "https://")):
        return Link(FsspecCache(url, timeout_s), Health(), Health(), set(), [])
    try:
        server = parse_server(url)
    except ValueError as error:
        raise ArgumentError(f"{named_by} is {shown_url(url)!r}: {error}") from None
    return Link(HttpCache(server, timeout_s), Health(), Health(), set(), [])
