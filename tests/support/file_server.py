"""A web server in memory that keeps what it is given, and counts what it is asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class FileServer(ThreadingHTTPServer):
    """The server; its files are bytes by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.hits: list[str] = []

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FileServer

    def do_GET(self) -> None:
        found = self.server.files.get(self.path)
        if found is not None:
            self.server.hits.append(self.path)
        self._answer(404 if found is None else 200, found or b"")

    def do_PUT(self) -> None:
        self.server.files[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(201, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving() -> Iterator[FileServer]:
    """Run a server while the block runs."""
    with FileServer() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
