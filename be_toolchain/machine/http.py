"""HTTP exchanges with limits of time and size, without redirects and proxies."""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

T = TypeVar("T")

FIRST_S = 1.0
"""The limit, in seconds, until an answer begins, or until a server accepts the sent bytes."""

LARGEST = 1 << 30
"""The largest size of an answer, in bytes."""


class Watch:
    """The state that a bounded function shares with the thread that waits for it."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self._socket: socket.socket | None = None
        self._is_left = False

    def hold(self, connection: socket.socket) -> None:
        """Keep a socket, to shut it down when the caller stops waiting.

        Raises
        ------
        TimeoutError
            The caller has stopped waiting.
        """
        self._socket = connection
        if self._is_left:
            raise TimeoutError

    def leave(self) -> None:
        """Stop waiting, and shut down the socket."""
        self._is_left = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(
                    self._socket, socket.SHUT_RDWR
                )  # the method of a TLS socket would also change it


def run_bounded(function: Callable[[Watch], T], first_s: float, whole_s: float) -> T:
    """Call a function in a thread of its own, and stop waiting if it takes too long.

    Parameters
    ----------
    function : callable
        The function. It sets `Watch.has_begun` when the other side answers.
    first_s, whole_s : float
        Limits, in seconds, until an answer begins, and for the whole call.

    Raises
    ------
    TimeoutError
        The function took too long.
    Exception
        The exception of the function.
    """
    watch = Watch()
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(function(watch))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
            errors.append(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        finally:
            watch.has_begun.set()

    thread = threading.Thread(target=run, name="be-bounded", daemon=True)
    until = time.monotonic() + whole_s
    try:
        thread.start()
        if not watch.has_begun.wait(min(first_s, whole_s)):
            raise TimeoutError(f"no answer within {min(first_s, whole_s):g} s")
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            raise TimeoutError(f"not done within {whole_s:g} s")
    finally:
        watch.leave()
    if errors:
        raise errors[0]
    return results[0]


Connect = Callable[[tuple[str, int], float], socket.socket]


class HttpServer(NamedTuple):
    """A web server, and a folder on it.

    Parameters
    ----------
    host, port, is_tls
        The server.
    folder : str
        The path of the URL, without the last slash.
    authorization : str
        The value of the header ``Authorization``; empty without credentials.
    """

    host: str
    port: int
    is_tls: bool
    folder: str
    authorization: str = ""

    @property
    def is_local(self) -> bool:
        """True if the server is this machine."""
        return self.host in ("localhost", "127.0.0.1", "::1")


class HttpReply(NamedTuple):
    """An answer. The body is empty unless the status is 200."""

    status: int
    text: str
    body: bytes


def parse_server(url: str) -> HttpServer:
    """Read the URL of a folder on a server.

    Raises
    ------
    ValueError
        The text is not such a URL.

    Examples
    --------
    >>> parse_server("https://ci:x@cache.example.org/kernels/")
    HttpServer(host='cache.example.org', port=443, is_tls=True, folder='/kernels', authorization='Basic Y2k6eA==')
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its text may quote a password
        raise ValueError("not the URL of a server") from None
    is_tls = parts.scheme == "https"
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or not url.isprintable():
        raise ValueError("not the URL of a server")
    if parts.query or parts.fragment:
        raise ValueError("a URL with ? or #")
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return HttpServer(
        host=parts.hostname,
        port=port or (443 if is_tls else 80),
        is_tls=is_tls,
        folder=parts.path.rstrip("/"),
        authorization=f"Basic {base64.b64encode(user.encode()).decode()}" if user != ":" else "",
    )


def exchange(
    server: HttpServer,
    method: str,
    name: str,
    body: bytes | None = None,
    *,
    whole_s: float,
    connect: Connect = socket.create_connection,
) -> HttpReply:
    """Get or put one file. Neither the reply nor an error quotes the server, which may echo credentials.

    Parameters
    ----------
    server : HttpServer
        The server.
    method, name : str
        The method, and the path below the server's folder.
    body : bytes, optional
        The bytes to put.
    whole_s : float
        Limit for the whole exchange, in seconds. `FIRST_S` limits the time until an answer begins, or until the server
        accepts a `body`.
    connect : callable
        Function that resolves a name and connects.

    Raises
    ------
    OSError, ValueError
        The server does not answer in time, or the answer can't be used.
    """

    def talk(watch: Watch) -> HttpReply:
        first_s = min(FIRST_S, whole_s)
        sock = connect((server.host, server.port), first_s)
        connection = http.client.HTTPConnection(server.host, server.port)
        connection.sock = sock
        try:
            watch.hold(sock)
            if server.is_tls:
                import ssl

                # SSL_CERT_FILE may name a file of other authorities, as for all programs that use OpenSSL.
                context = ssl.create_default_context()
                secured = context.wrap_socket(sock, server_hostname=server.host, do_handshake_on_connect=False)
                connection.sock = secured
                watch.hold(secured)
                secured.do_handshake()
            connection.sock.settimeout(
                whole_s + FIRST_S
            )  # the watch ends it before, with an error that names the limit
            headers = {"Accept-Encoding": "identity", "User-Agent": "brainevent-toolchain"}
            if server.authorization:
                headers["Authorization"] = server.authorization
            if body is not None:
                watch.has_begun.set()
            connection.request(method, f"{server.folder}/{name}", body=body, headers=headers)
            with connection.getresponse() as response:
                watch.has_begun.set()
                return _read(method, response)
        except http.client.HTTPException as error:
            raise ValueError(f"an answer that can't be read: {type(error).__name__}") from None
        finally:
            connection.close()

    return run_bounded(talk, FIRST_S, whole_s)


def _read(method: str, response: http.client.HTTPResponse) -> HttpReply:
    """Read an answer; its body only for a GET that succeeded."""
    text = f"{response.status} {http.client.responses.get(response.status, '')}".rstrip()
    if 300 <= response.status < 400:
        raise ValueError(f"{text}: no redirect is followed")
    if method != "GET" or response.status != 200:
        return HttpReply(response.status, text, b"")
    size = response.length
    if size is None or size > LARGEST:
        raise ValueError("an answer without a length" if size is None else f"an answer of {size} bytes")
    return HttpReply(200, text, response.read())
