"""A remote cache as a place for entries: opened as settings say, asked within limits, left alone when it fails."""

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
from be_runtime.store.archive import Sign, Verify
from be_runtime.store.travelling import WantedEntry
from be_toolchain.machine.http import FIRST_S, LARGEST, HttpServer, Watch, exchange, run_bounded
from be_toolchain.machine.system import System
from be_toolchain.settings import FOLDER, RUNTIME, RemoteSource, find_remote
from be_toolchain.terminal import printable_line, shown_url, url_secrets

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


_MISSES = (404, 410)


class HttpCache:
    """Entries as files of a web server.

    Parameters
    ----------
    server : HttpServer
    timeout_s : float
        Longest time of one exchange.
    """

    def __init__(self, server: HttpServer, timeout_s: float) -> None:
        self._server, self._timeout_s = server, timeout_s
        self.is_open = not server.is_tls and not server.is_local

    def get(self, digest: str) -> bytes | None:
        """Return the file of a digest, None if there is none.

        Raises
        ------
        OSError, ValueError
            The server does not answer as it should.
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
            The server does not take it.
        """
        reply = exchange(self._server, "PUT", f"{FOLDER}/{digest}", data, whole_s=self._timeout_s)
        if reply.status >= 500:
            raise ValueError(f"{reply.text}; may it write to its folder? Its error log says why")
        if not 200 <= reply.status < 300:
            raise ValueError(reply.text)


Say = Callable[[str], object]

_FAULTS, _REST_S = 2, 60.0
"""After so many faults in a row the server is left alone for so long."""

_LONGEST = 300
"""Most characters of an error's text."""


class Carrier(Protocol):
    """The protocol of a remote cache. Both functions take no longer than they were told.

    They may raise anything whose text quotes nothing that a server said: it may echo what it was sent.

    Attributes
    ----------
    is_open : bool
        Whether others could read, and change, what goes over the network.
    """

    is_open: bool

    def get(self, digest: str) -> bytes | None:
        """Return the file of a digest, None if there is none."""

    def put(self, digest: str, data: bytes) -> None:
        """Write the file of a digest."""


class Health:
    """The faults of a server in a row, of reading or of writing."""

    def __init__(self) -> None:
        self._faults, self._rests_until = 0, 0.0

    @property
    def is_resting(self) -> bool:
        """True while the server is left alone."""
        return time.monotonic() < self._rests_until

    def note(self, *, is_fault: bool) -> bool:
        """Count a fault, or forget those before an answer; return whether the server is left alone from now on."""
        self._faults = self._faults + 1 if is_fault else 0
        if self._faults >= _FAULTS:
            self._rests_until = time.monotonic() + _REST_S
        return self._faults >= _FAULTS


class Link(NamedTuple):
    """The process's way to one remote cache."""

    carrier: Carrier
    reading: Health
    writing: Health
    said: set[str]
    uploads: list[threading.Thread]

    def finish(self, timeout_s: float) -> None:
        """Wait for uploads, for some seconds in all."""
        until = time.monotonic() + timeout_s
        for thread in tuple(self.uploads):
            thread.join(max(0.0, until - time.monotonic()))


class RemoteCache:
    """A remote cache as a `EntryPlace`.

    Parameters
    ----------
    source : RemoteSource
    link : Link
    say : callable
        Function that tells the user of a fault; each is told once in a process.
    writes : bool
        Whether entries that are made here are put there.
    timeout_s : float
        Longest wait for uploads when the process ends.
    """

    def __init__(self, source: RemoteSource, link: Link, say: Say, *, writes: bool, timeout_s: float) -> None:
        self.label, self._named_by, self.secrets = source.label, source.named_by, url_secrets(source.url)
        self.link, self._say, self._writes, self._timeout_s = link, say, writes, timeout_s

    def fetch(self, wanted: WantedEntry) -> bytes | None:
        """See `EntryPlace.fetch`."""
        found: list[bytes | None] = []
        self._try("reading", self.link.reading, lambda: found.append(self.link.carrier.get(wanted.key.digest)))
        return found[0] or None if found else None

    def offer(self, wanted: WantedEntry, data: bytes) -> None:
        """See `EntryPlace.offer`. The upload runs beside the load, and the process waits for it when it ends."""
        if not self._writes or self.link.writing.is_resting:
            return
        put = functools.partial(self.link.carrier.put, wanted.key.digest, data)
        thread = threading.Thread(target=self._try, args=("writing", self.link.writing, put), daemon=True)
        uploads = self.link.uploads
        if not uploads:
            atexit.register(self.link.finish, self._timeout_s)
        uploads[:] = [*filter(threading.Thread.is_alive, uploads), thread]
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the process ends
            uploads.remove(thread)

    def abandon(self, wanted: WantedEntry, problem: str) -> None:
        """See `EntryPlace.abandon`."""

    def _try(self, what: str, health: Health, exchange: Callable[[], object]) -> None:
        """Run an exchange, unless the server is left alone; tell of a fault."""
        if health.is_resting:
            return
        try:
            exchange()
        except Exception as error:  # noqa: BLE001 - whatever a plug-in raises, a cache never fails a build
            rests = health.note(is_fault=True)
            text = printable_line(str(error))[:_LONGEST] or type(error).__name__
            if isinstance(error, ConnectionRefusedError):
                text += f"; is it running? Unset {self._named_by} to do without"
            rest = f"; it is left alone for {_REST_S:g} s" if rests else ""
            self._tell(f"{what} {self.label}: {text}{rest}")
        else:
            health.note(is_fault=False)

    def _tell(self, text: str) -> None:
        tell_once(self.link.said, text, self._say)


def tell_once(said: set[str], text: str, say: Say) -> None:
    """Tell something that was not told yet."""
    if text not in said:
        said.add(text)
        say(f"remote cache: {text}")


def name_remote(settings: Settings, system: System, say: Say) -> RemoteSource:
    """Return the remote cache, and the keys, that settings name, in the environment or in files.

    Raises
    ------
    PreferenceError
        A file of settings is not valid.
    """
    source = find_remote(system, settings.remote_cache, settings.remote_cache_public_key)
    if source.problem:
        tell_once(_told(), source.problem, say)
    return source


def open_remote(source: RemoteSource, settings: Settings, say: Say) -> RemoteCache | None:
    """Open a remote cache; None if there is none.

    Parameters
    ----------
    source : RemoteSource
        Its URL, and the keys that sign its entries.
    settings : Settings
    say : callable
        Function that tells the user something.

    Raises
    ------
    ArgumentError
        The URL means nothing, or a package for it is missing.
    """
    if not source.url:
        return None
    timeout_s = settings.remote_cache_timeout_s
    link = _link(source.url, source.named_by, timeout_s)
    if link.carrier.is_open:
        signed = "" if source.keys else ", and send others, since no key is set"
        tell_once(link.said, f"{source.label} is not encrypted: who is on the way can read entries{signed}", say)
    writes = settings.remote_cache_write and source.may_write
    return RemoteCache(source, link, say, writes=writes, timeout_s=timeout_s)


def open_verifier(source: RemoteSource) -> Verify | None:
    """Return the function that checks signatures; None if no key is set.

    Raises
    ------
    ArgumentError
        One is no key, or the package cryptography is missing.
    """
    if not source.keys:
        return None
    from be_runtime.store.archive import read_verifier

    return read_verifier(source.keys, source.keys_named_by)


def open_signer(settings: Settings, system: System, say: Say) -> Sign | None:
    """Return the function that signs entries, by the key that ``BE_REMOTE_CACHE_PRIVATE_KEY`` names.

    Others who can read the key are told of once in a process, and not refused: containers mount secrets like that.

    Raises
    ------
    ArgumentError
        It is no key, or the package cryptography is missing.
    """
    if settings.remote_cache_private_key is None:
        return None
    from be_runtime.store.archive import read_signer

    path, variable = settings.remote_cache_private_key, RUNTIME["remote_cache_private_key"].variable
    sign = read_signer(path, variable)
    problem = system.private_key_problem(path)
    if problem:
        tell_once(_told(), f"{variable} is {path}, which {problem}: chmod 600 {path}", say)
    return sign


@functools.lru_cache(maxsize=8)
def _link(url: str, named_by: str, timeout_s: float) -> Link:
    """Return the process's way to a remote cache, so that the next load knows of its faults."""
    return Link(_carrier(url, named_by, timeout_s), Health(), Health(), set(), [])


def _carrier(url: str, named_by: str, timeout_s: float) -> Carrier:
    """Return the protocol for a URL."""
    # Only what is named is imported: http.client takes 25 ms, TLS 20 more, and fsspec with S3 takes 300.
    if not url.startswith(("http://", "https://")):
        return FsspecCache(url, timeout_s)
    from be_toolchain.machine.http import parse_server

    try:
        return HttpCache(parse_server(url), timeout_s)
    except ValueError as error:
        raise ArgumentError(f"{named_by} is {shown_url(url)!r}: {error}") from None


@functools.lru_cache(maxsize=1)
def _told() -> set[str]:
    """Return what was told of settings in this process."""
    return set()
