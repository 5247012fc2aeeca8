"""A web server that fails as servers do: the first part of a path says how."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

GOOD = bytes(range(256)) * 400
FAULTS = {
    "error500": "500",
    "error403": "403",
    "redirect": "no redirect is followed",
    "silent": "no answer within",
    "cut": "IncompleteRead",
    "drip_body": "not done within",
    "drip_head": "no answer within",
    "no_length": "without a length",
    "huge": "1099511627776 bytes",
    "chunked": "without a length",
    "headers_without_end": "HTTPException",
    "garbage": "",
    "hangs_up": "",
}
"""Each way to fail, and what is said of it when one gets a file."""


class Handler(BaseHTTPRequestHandler):
    """Fails as asked."""

    protocol_version = "HTTP/1.1"
    server: FaultyServer

    def do_PUT(self) -> None:
        """Take the body, unless it should not."""
        how = self.path.split("/")[1]
        if how != "silent":
            self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        """Answer, or fail."""
        self.server.asked.append((self.command, self.path, self.headers.get("Authorization", "")))
        with contextlib.suppress(OSError):
            getattr(self, self.path.split("/")[1])()
        self.close_connection = True

    def good(self) -> None:
        self._answer(200, GOOD)

    def miss(self) -> None:
        self._answer(404, b"none")

    def error500(self) -> None:
        self._answer(500, b"oops")

    def error403(self) -> None:
        self._answer(403, b"")

    def redirect(self) -> None:
        self._answer(302, b"", Location=f"http://127.0.0.1:{self.server.server_port}/good")

    def silent(self) -> None:
        self.server.wait()

    def hangs_up(self) -> None:
        pass

    def cut(self) -> None:
        self._head(200, {"Content-Length": str(len(GOOD))})
        self.wfile.write(GOOD[:1000])

    def drip_body(self) -> None:
        self._head(200, {"Content-Length": str(len(GOOD))})
        self._drip(GOOD)

    def drip_head(self) -> None:
        self._drip(b"HTTP/1.1 200 OK\r\n" * 1000)

    def no_length(self) -> None:
        self._head(200, {"Connection": "close"})
        self.wfile.write(GOOD)

    def huge(self) -> None:
        self._head(200, {"Content-Length": str(1 << 40)})
        self.wfile.write(GOOD)

    def chunked(self) -> None:
        self._head(200, {"Transfer-Encoding": "chunked"})
        while True:
            self.wfile.write(b"100000\r\n" + bytes(1 << 20) + b"\r\n")

    def headers_without_end(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            self.wfile.write(b"X-A: " + b"a" * 1000 + b"\r\n")

    def echo_reason(self) -> None:
        self.wfile.write(f"HTTP/1.1 403 {self.headers['Authorization']} {self.path}\r\n\r\n".encode())

    def echo_status(self) -> None:
        self.wfile.write(f"{self.headers['Authorization']} is no status\r\n".encode())

    def echo_version(self) -> None:
        self.wfile.write(f"HTTP/{self.headers['Authorization']} 200 OK\r\n\r\n".encode())

    def echo_location(self) -> None:
        self._answer(302, b"", Location=f"http://{self.headers['Authorization']}")

    def echo_header(self) -> None:
        self.wfile.write(f"HTTP/1.1 200 OK\r\n{self.headers['Authorization']}\r\n\r\n".encode())

    def garbage(self) -> None:
        self.wfile.write(b"\x16\x03\x01\x00" * 100)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        pass

    def _drip(self, data: bytes) -> None:
        for byte in data:
            self.wfile.write(bytes([byte]))
            if self.server.wait(0.05):
                return

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self._head(status, {"Content-Length": str(len(body)), **headers})
        self.wfile.write(body)


class FaultyServer(ThreadingHTTPServer):
    """The server, with what it was asked: method, path and credentials."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, str]] = []
        self.is_over = False

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"

    def wait(self, seconds: float = 60.0) -> bool:
        """Wait, and return whether the server stops."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.is_over:
            time.sleep(0.01)
        return self.is_over

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that leave are the point."""


@contextlib.contextmanager
def faulty_server(tls: ssl.SSLContext | None = None) -> Iterator[FaultyServer]:
    """Run a server in threads of this process."""
    with FaultyServer() as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.is_over = True
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def full_backlog() -> Iterator[str]:
    """Listen and never accept, with a queue that is full: the URL."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            held = stack.enter_context(socket.socket())
            held.setblocking(False)
            held.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def closed_port() -> str:
    """The URL of a port where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"
