"""Ed25519 keys that sign and verify artifacts. Only functions with keys import the package cryptography."""

from __future__ import annotations

import base64
import binascii
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.trust import SMALL, Judge, distrust_entry, read_regular
from be_toolchain.terminal import shown_key

_PRIVATE = "private-ed25519:"
"""Prefix of a private key's text, so that users do not confuse it with a public key."""

Sign = Callable[[bytes], bytes]
"""Function of data; returns the 64 bytes of its signature."""


class Verifier(NamedTuple):
    """The trusted keys.

    Parameters
    ----------
    check : callable
        Function of data and a signature; returns whether a trusted key signed the data.
    named_by : str
        The setting that names the keys.
    """

    check: Callable[[bytes, bytes], bool]
    named_by: str


def _ed25519() -> Any:
    """Import Ed25519 from the package cryptography.

    Raises
    ------
    ArgumentError
        The package is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise ArgumentError(
            f"signatures need the package cryptography: {error}", hints=("pip install 'brainevent-toolchain[signing]'",)
        ) from None
    return ed25519


def make_keys() -> tuple[str, str]:
    """Make a pair of keys, and return the texts of the private and the public key."""
    key = _ed25519().Ed25519PrivateKey.generate()
    raws = (key.private_bytes_raw(), key.public_key().public_bytes_raw())
    private, public = (base64.b64encode(raw).decode() for raw in raws)
    return f"{_PRIVATE}{private}\n", public


def write_private_key(path: Path, text: str) -> None:
    """Write a private key into a new file that only its owner can read.

    Raises
    ------
    ArgumentError
        The file exists, or can't be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise ArgumentError(f"{path} exists, and a key is never overwritten", hints=("name another file",)) from None
    except OSError as error:
        raise ArgumentError(f"{path} can't be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)


def read_signer(path: Path, named_by: str) -> Sign:
    """Return the function that signs with the private key in a file.

    Parameters
    ----------
    path : Path
    named_by : str
        The setting or option that names the file.

    Raises
    ------
    ArgumentError
        The file has no private key.
    """
    text = _read(path, named_by)
    raw = _decoded(text.removeprefix(_PRIVATE)) if text.startswith(_PRIVATE) else None
    if raw is None:
        raise ArgumentError(
            f"{named_by} is {str(path)!r}, a file without a private key",
            hints=("python -m be_runtime cache keygen makes one",),
        )
    sign: Sign = _ed25519().Ed25519PrivateKey.from_private_bytes(raw).sign
    return sign


def read_verifier(keys: str, named_by: str) -> Verifier:
    """Return the trusted keys.

    Parameters
    ----------
    keys : str
        Public keys, or absolute paths of files with one key a line, separated by commas.
    named_by : str
        The setting that names the keys.

    Raises
    ------
    ArgumentError
        A key or file is not valid.
    """
    found = [
        _ed25519().Ed25519PublicKey.from_public_bytes(raw)
        for word in filter(None, map(str.strip, keys.split(",")))
        for raw in _read_public(word, named_by)
    ]
    if not found:
        raise ArgumentError(f"{named_by} is {keys!r}, without a public key")

    from cryptography.exceptions import InvalidSignature

    def verify(data: bytes, signature: bytes) -> bool:
        for key in found:
            try:
                key.verify(signature, data)
            except InvalidSignature:
                continue
            return True
        return False

    return Verifier(verify, named_by)


def _read_public(word: str, named_by: str) -> list[bytes]:
    """Return the key in a text, or the keys in the file that it names."""
    raw = _decoded(word)
    if raw is not None:
        return [raw]
    if not word.startswith(("/", "~")):  # another user may have made a file of that name in the working folder
        hint = "python -m be_runtime cache keygen prints a key; name a file of keys by its absolute path"
        raise ArgumentError(f"{named_by} is {shown_key(word)!r}, neither a key nor an absolute path", hints=(hint,))
    text = _read(Path(word), named_by, judge=distrust_entry)
    problem = LocalSystem().distrust(Path(word).expanduser())
    if problem:
        hint = "whoever can write to it, or to a folder above it, decides whose code runs here"
        raise ArgumentError(f"{named_by} is {word!r}, a file that is not trusted: {problem}", hints=(hint,))
    lines = filter(None, map(str.strip, text.splitlines()))
    keys = [_decoded(line) for line in lines if not line.startswith("#")]
    if None in keys or not keys:
        hint = "a key is the text that python -m be_runtime cache keygen prints; write one key a line"
        raise ArgumentError(f"{named_by} is {word!r}, a file without valid public keys", hints=(hint,))
    return [key for key in keys if key is not None]


def _read(path: Path, named_by: str, judge: Judge | None = None) -> str:
    try:
        return read_regular(path.expanduser(), SMALL, judge=judge).decode("ascii").strip()
    except (OSError, ValueError, RuntimeError) as error:
        is_distrusted = isinstance(error, OSError) and error.errno == errno.EPERM
        problem = "a file that is not trusted" if is_distrusted else "neither a key nor a file with one"
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ArgumentError(
            f"{named_by} is {shown_key(str(path))!r}, {problem}: {reason}",
            hints=("whoever can write to it decides whose code runs here",) * is_distrusted,
        ) from None


def _decoded(text: str) -> bytes | None:
    """Return the 32 bytes of a key; None if the text is not a key."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == 32 else None
