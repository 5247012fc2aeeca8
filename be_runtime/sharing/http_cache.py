"""A remote cache on a web server: one GET or PUT for each entry."""

from __future__ import annotations

from be_toolchain.machine.http_exchange import HttpServer, exchange
from be_toolchain.settings.remote_source import FOLDER

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
