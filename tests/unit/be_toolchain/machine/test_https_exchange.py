"""Exchanges over TLS: authorities are the system's, or those that SSL_CERT_FILE names."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from be_toolchain.machine.http_exchange import exchange, parse_server
from tests.support.faulty_server import GOOD, FaultyServer, faulty_server

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

SLACK_S = 30.0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, signed by itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test")])
    now = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    path.write_bytes(
        made.public_bytes(pem) + key.private_bytes(pem, plain, encryption_algorithm=serialization.NoEncryption())
    )
    return path


@pytest.fixture
def server(certificate: Path) -> Iterator[FaultyServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with faulty_server(context) as found:
        yield found


def secure(server: FaultyServer) -> str:
    return server.url.replace("http:", "https:")


def test_an_authority_can_be_named(server: FaultyServer, certificate: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    good = parse_server(f"{secure(server)}/good")
    assert exchange(good, "GET", "x", whole_s=10).body == GOOD
    assert exchange(good, "PUT", "x", GOOD, whole_s=10).status == 200


def test_a_server_that_nobody_vouches_for_gets_nothing(server: FaultyServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(ssl.SSLCertVerificationError):
        exchange(parse_server(f"{secure(server)}/good"), "GET", "x", whole_s=10)
    assert server.asked == []


def test_a_drip_over_tls_ends_when_nobody_waits(
    server: FaultyServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        exchange(parse_server(f"{secure(server)}/drip_body"), "GET", "x", whole_s=0.4)
    assert time.monotonic() - began < SLACK_S


def test_a_handshake_that_does_not_end_has_the_same_limit():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            exchange(parse_server(f"https://127.0.0.1:{listener.getsockname()[1]}"), "GET", "x", whole_s=0.4)
        assert time.monotonic() - began < SLACK_S
