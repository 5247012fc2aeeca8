"""Exchanges with servers that fail: never a wrong file, and never longer than allowed; over TLS as well."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from be_toolchain.machine.http import FIRST_S, HttpReply, exchange, parse_server, run_bounded
from be_toolchain.machine.local_system import LocalSystem
from tests.support.faulty_server import FAULTS, GOOD, FaultyServer, closed_port, faulty_server, full_backlog

WHOLE_S = 0.4
SLACK_S = 30.0
"""A bound is checked, not a speed: other processes have the machine as well."""

FAULT = (OSError, ValueError)


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyServer]:
    with faulty_server() as found:
        yield found


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """What takes longer than it is allowed to fails."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < WHOLE_S + SLACK_S


def get(url: str, whole_s: float = WHOLE_S) -> HttpReply:
    return exchange(parse_server(url), "GET", "name", whole_s=whole_s)


def test_a_file_is_got_and_a_missing_one_is_an_answer(server: FaultyServer):
    assert get(f"{server.url}/good", 10) == HttpReply(200, "200 OK", GOOD)
    assert get(f"{server.url}/miss", 10) == HttpReply(404, "404 Not Found", b"")
    assert exchange(parse_server(f"{server.url}/good/"), "PUT", "a/b", GOOD, whole_s=10).status == 200
    assert server.asked[-1] == ("PUT", "/good/a/b", "")
    get(f"{server.url.replace('://', '://ci:p%40ss@')}/good", 10)
    assert server.asked[-1] == ("GET", "/good/name", "Basic Y2k6cEBzcw==")


@pytest.mark.parametrize("how", FAULTS)
def test_a_fault_is_an_error_within_the_limit(server: FaultyServer, how: str):
    with bounded():
        try:
            reply = get(f"{server.url}/{how}")
            told, body = reply.text, reply.body
        except FAULT as error:
            told, body = f"{type(error).__name__} {error}", b""
    assert FAULTS[how] in told
    assert body == b""


@pytest.mark.parametrize("how", ["silent", "drip_head", "hangs_up", "redirect"])
def test_a_fault_of_an_upload_is_an_error_within_the_limit(server: FaultyServer, how: str):
    with bounded(), pytest.raises(FAULT):
        exchange(parse_server(f"{server.url}/{how}"), "PUT", "name", bytes(1 << 24), whole_s=WHOLE_S)


@pytest.mark.parametrize("how", ["echo_reason", "echo_status", "echo_version", "echo_location", "echo_header"])
def test_what_a_server_echoes_is_not_shown(server: FaultyServer, how: str):
    """Credentials go into a header, and servers quote what they were sent."""
    url = f"{server.url.replace('://', '://ci:secret@')}/{how}"
    sent = ("secret", "Basic", base64.b64encode(b"ci:secret").decode())
    told = LocalSystem().ask_server(url, "name")
    with contextlib.suppress(OSError, ValueError):
        told += get(url, 10).text
    assert server.asked[-1][2] == f"Basic {sent[2]}"
    assert told
    assert not [text for text in sent if text in told]


def test_a_redirect_is_not_followed(server: FaultyServer):
    server.asked.clear()
    with pytest.raises(ValueError, match=r"^302 Found: no redirect is followed$"):
        get(f"{server.url}/redirect", 10)
    assert [path for _, path, _ in server.asked] == ["/redirect/name"]


def test_where_nobody_answers():
    with pytest.raises(ConnectionRefusedError):
        get(closed_port())
    with full_backlog() as url, pytest.raises(TimeoutError):
        get(url)


@pytest.mark.parametrize("how", ["silent", "drip_head"])
def test_the_first_byte_has_a_limit_of_its_own(server: FaultyServer, how: str):
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=f"no answer within {FIRST_S:g} s"):
        get(f"{server.url}/{how}", 60)
    assert FIRST_S <= time.monotonic() - began < FIRST_S + SLACK_S


def wait_for_threads() -> None:
    """A thread that somebody waited for ends when nobody waits any more."""
    for thread in threading.enumerate():
        if thread.name == "be-bounded":
            thread.join(SLACK_S)
            assert not thread.is_alive()


def test_the_look_up_of_a_name_counts_and_its_late_socket_is_not_used(server: FaultyServer):
    asked, over, connected = threading.Event(), threading.Event(), []

    def connect(address: tuple[str, int], timeout_s: float) -> socket.socket:
        asked.set()
        over.wait(60)
        connected.append(socket.create_connection(address, timeout_s))
        return connected[0]

    server.asked.clear()
    with bounded(), pytest.raises(TimeoutError):
        exchange(parse_server(f"{server.url}/good"), "GET", "late", whole_s=WHOLE_S, connect=connect)
    assert asked.is_set()
    over.set()
    wait_for_threads()
    assert connected[0].fileno() == -1
    assert server.asked == []


def test_who_waits_no_more_ends_what_the_thread_does(server: FaultyServer):
    """A server that drips for ever would keep a thread for ever, and the file that it writes."""
    with pytest.raises(TimeoutError):
        get(f"{server.url}/drip_body")
    wait_for_threads()


def test_a_function_that_ends_the_thread_is_a_fault():
    def leaves(_watch: object) -> None:
        raise SystemExit

    with pytest.raises(RuntimeError, match="SystemExit"):
        run_bounded(leaves, 1, 1)


@pytest.mark.parametrize(
    "url", ["https://", "https:///x", "ftp://h", "https://h:port/", "https://h/?a", "https://h/#a", "https://h/ü"]
)
def test_what_is_no_server(url: str):
    with pytest.raises(ValueError):
        parse_server(url)


def test_this_machine():
    urls = ("http://localhost", "http://[::1]:80", "http://127.0.0.1", "http://127.evil.org")
    assert [parse_server(url).is_local for url in urls] == [True, True, True, False]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, signed by itself, with its key."""
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    key = "openssl req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -days 2 -subj /CN=test"
    made = [*key.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "-"]
    path.write_bytes(subprocess.run(made, check=True, capture_output=True).stdout)
    return path


@pytest.mark.needs("openssl")
def test_over_tls_authorities_can_be_named(certificate: Path, monkeypatch: pytest.MonkeyPatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with faulty_server(context) as server:
        url = server.url.replace("http:", "https:")
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(ssl.SSLCertVerificationError):
            get(f"{url}/good", 10)
        assert server.asked == [], "a server that nobody vouches for gets nothing"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert get(f"{url}/good", 10).body == GOOD
        assert exchange(parse_server(f"{url}/good"), "PUT", "x", GOOD, whole_s=10).status == 200
        with bounded(), pytest.raises(TimeoutError):
            get(f"{url}/drip_body")


def test_a_handshake_that_does_not_end_has_the_same_limit():
    with socket.create_server(("127.0.0.1", 0)) as listener, bounded(), pytest.raises(TimeoutError):
        get(f"https://127.0.0.1:{listener.getsockname()[1]}")
