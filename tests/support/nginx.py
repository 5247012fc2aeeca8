"""A real nginx as a remote cache, by the configuration that docs/remote-cache.md shows."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "remote-cache.md"


def configuration() -> str:
    """The page's configuration."""
    (text,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(text)


@contextlib.contextmanager
def nginx(folder: Path) -> Iterator[str]:
    """Run nginx with its files in a folder: the URL of those who may upload."""
    for name in ("logs", "store", "tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    text = configuration()
    assert "listen 8080;" in text
    text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};")
    user = "user root;\n" if os.geteuid() == 0 else ""  # else its workers may not enter folders of tests
    (folder / "nginx.conf").write_text(f"{user}daemon off;\n{text}")
    (folder / "htpasswd").write_text("ci:{PLAIN}secret\n")
    argv = ["nginx", "-p", str(folder), "-c", "nginx.conf", "-e", "logs/error.log"]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(port, process, folder)
            yield f"http://ci:secret@127.0.0.1:{port}/kernels"
        finally:
            process.terminate()


def _wait_for(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError((folder / "logs" / "error.log").read_text()) from None
            time.sleep(0.02)
        else:
            return
