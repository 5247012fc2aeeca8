"""One HTTP exchange by the standard library, bounded in time and bytes. It follows no redirect and uses no proxy."""

from __future__ import annotations

import base64
import http.client
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from be_toolchain.machine.http import FIRST_S, LARGEST, Watch, run_bounded

Connect = Callable[[tuple[str, int], float], socket.socket]

if TYPE_CHECKING:
    import ssl


class HttpServer(NamedTuple):
    """A server, and the folder there.

    Parameters
    ----------
    host, port, is_tls
        Server.
    folder : str
        Path of the URL, without the last slash.
    authorization : str
        Value of the header of that name; empty without credentials.
    """

    host: str
    port: int
    is_tls: bool
    folder: str
    authorization: str = ""

    @property
    def is_local(self) -> bool:
        """True if it is this machine."""
        return self.host in ("localhost", "127.0.0.1", "::1")


class HttpReply(NamedTuple):
    """An answer; the body is empty unless the status is 200."""

    status: int
    text: str
    body: bytes


def parse_server(url: str) -> HttpServer:
    """Read the URL of a folder on a server.

    Raises
    ------
    ValueError
        It is not one.

    Examples
    --------
    >>> parse_server("https://ci:x@cache.example.org/kernels/")
    HttpServer(host='cache.example.org', port=443, is_tls=True, folder='/kernels', authorization='Basic Y2k6eA==')
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its text quotes a password that has a sign of a URL
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
    """Get or put one file. Neither a reply's text nor an error quotes the server, which may echo what it was sent.

    Parameters
    ----------
    server : HttpServer
    method, name : str
        The method, and the path below the server's folder.
    body : bytes, optional
        Bytes to put.
    whole_s : float
        Longest time for everything; an answer must begin, or a server take a `body`, within `FIRST_S`.
    connect : callable
        Looks up a name and connects.

    Raises
    ------
    OSError, ValueError
        No answer, one that takes too long, or one that can't be used.
    """

    def talk(watch: Watch) -> HttpReply:
        first_s = min(FIRST_S, whole_s)
        sock = connect((server.host, server.port), first_s)
        connection = http.client.HTTPConnection(server.host, server.port)
        connection.sock = sock
        try:
            watch.hold(sock)
            if server.is_tls:
                connection.sock = secured = _wrapped(sock, server.host)
                watch.hold(secured)
                secured.do_handshake()
            connection.sock.settimeout(whole_s + FIRST_S)  # the watch ends it before, and says so
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


def _wrapped(sock: socket.socket, host: str) -> ssl.SSLSocket:
    """Return the socket with TLS, before the handshake."""
    import ssl

    # The file that SSL_CERT_FILE names has other authorities, as everywhere with OpenSSL.
    return ssl.create_default_context().wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)


def _read(method: str, response: http.client.HTTPResponse) -> HttpReply:
    """Read an answer as far as it is wanted."""
    text = f"{response.status} {http.client.responses.get(response.status, '')}".rstrip()
    if 300 <= response.status < 400:
        raise ValueError(f"{text}: no redirect is followed")
    if method != "GET" or response.status != 200:
        return HttpReply(response.status, text, b"")
    size = response.length
    if size is None or size > LARGEST:
        raise ValueError("an answer without a length" if size is None else f"an answer of {size} bytes")
    return HttpReply(200, text, response.read())
