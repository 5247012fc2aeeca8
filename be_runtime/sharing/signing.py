"""Signatures of entries: keys are made, read and used. Ed25519 by the package cryptography, imported for keys alone."""

from __future__ import annotations

import base64
import binascii
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from be_runtime.errors import ArgumentError
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.trust.folder_trust import distrust_entry
from be_toolchain.machine.trust.regular_file import SMALL, Judge, read_regular
from be_toolchain.terminal import shown_key

_PRIVATE = "private-ed25519:"
"""Begins a file with a private key, so that nobody takes one for the other."""


def _ed25519() -> Any:
    """Return the module of the package cryptography.

    Raises
    ------
    ArgumentError
        It is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise ArgumentError(
            f"signatures need the package cryptography: {error}", hints=("pip install 'brainevent-toolchain[signing]'",)
        ) from None
    return ed25519


def make_keys() -> tuple[str, str]:
    """Make a pair of keys: the texts of the private and of the public one."""
    key = _ed25519().Ed25519PrivateKey.generate()
    return f"{_PRIVATE}{_encoded(key.private_bytes_raw())}\n", _encoded(key.public_key().public_bytes_raw())


def write_private_key(path: Path, text: str) -> None:
    """Write a private key, which only its owner may read, into a new file.

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


def read_signer(path: Path, named_by: str) -> Callable[[bytes], bytes]:
    """Return the function that signs with the private key in a file.

    Parameters
    ----------
    path : Path
    named_by : str
        The setting or option that names it.

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
    sign: Callable[[bytes], bytes] = _ed25519().Ed25519PrivateKey.from_private_bytes(raw).sign
    return sign


def read_verifier(keys: str, named_by: str) -> Callable[[bytes, bytes], bool]:
    """Return the function that tells whether a signature of some data is by one of these keys.

    Parameters
    ----------
    keys : str
        Public keys, or absolute paths of files that have one in each line, with commas between.
    named_by : str
        The setting that names them.

    Raises
    ------
    ArgumentError
        One is no public key.
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

    return verify


def _read_public(word: str, named_by: str) -> list[bytes]:
    """Read a key, or the keys in a file."""
    raw = _decoded(word)
    if raw is not None:
        return [raw]
    if not word.startswith(("/", "~")):  # a file of that name in the working folder may be anybody's
        hint = "python -m be_runtime cache keygen prints a key; of a file with keys, write the whole path"
        raise ArgumentError(f"{named_by} is {shown_key(word)!r}, neither a key nor an absolute path", hints=(hint,))
    text = _read(Path(word), named_by, judge=distrust_entry)
    problem = LocalSystem().distrust(Path(word).expanduser())
    if problem:
        hint = "who can write to it, or to a folder above it, says whose code runs here"
        raise ArgumentError(f"{named_by} is {word!r}, a file that is not believed: {problem}", hints=(hint,))
    lines = filter(None, map(str.strip, text.splitlines()))
    keys = [_decoded(line) for line in lines if not line.startswith("#")]
    if None in keys or not keys:
        hint = "it has the text that python -m be_runtime cache keygen prints, one key in a line"
        raise ArgumentError(f"{named_by} is {word!r}, a file that is not one of public keys", hints=(hint,))
    return [key for key in keys if key is not None]


def _read(path: Path, named_by: str, judge: Judge | None = None) -> str:
    try:
        return read_regular(path.expanduser(), SMALL, judge=judge).decode("ascii").strip()
    except (OSError, ValueError, RuntimeError) as error:
        is_distrusted = isinstance(error, OSError) and error.errno == errno.EPERM
        problem = "a file that is not believed" if is_distrusted else "neither a key nor a file with one"
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ArgumentError(
            f"{named_by} is {shown_key(str(path))!r}, {problem}: {reason}",
            hints=("who can write to it says whose code runs here",) * is_distrusted,
        ) from None


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decoded(text: str) -> bytes | None:
    """Return the 32 bytes of a key, None if the text is none."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == 32 else None
