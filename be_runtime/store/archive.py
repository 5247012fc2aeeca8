"""Archives of cache entries: the one format in which an entry moves between machines, and its Ed25519 signature.

An archive is a magic line, a signature of the head, the head's length, the head (compressed JSON), and the outputs. The
head has the hash of each output. Only keys import the package cryptography.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import json
import math
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError
from be_runtime.store.folder import output_problem
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.trust import SMALL, Judge, distrust_entry, read_regular
from be_toolchain.terminal import shown_key

MAGIC = b"be-entry-1\n"
_SIGNATURE, _LENGTH = 64, 8
_UNSIGNED = bytes(_SIGNATURE)
_LARGEST_HEAD, _LONGEST_TEXT, _MOST_TEXTS, _MOST_FOLDERS = 1 << 22, 1024, 30_000, 100_000
"""Limits of a head. A module that includes Thrust has 0.6 MB and 9,000 texts; parsing 64 MB of brackets took 12 s."""

_PRIVATE = "private-ed25519:"
"""Prefix of a private key's file, so that nobody confuses it with a public key."""

Sign = Callable[[bytes], bytes]
"""Function of data; returns the 64 bytes of its signature."""

Verify = Callable[[bytes, bytes], bool]
"""Function of data and a signature; returns whether a trusted key signed the data."""


class ArchiveError(Exception):
    """An archive can't be used; the text gives the reason and follows the archive's name."""


class SignatureError(ArchiveError):
    """An archive is not signed by a key that is trusted here."""

    def __init__(self, *, is_signed: bool) -> None:
        super().__init__("is not signed by a key that is trusted here" if is_signed else "is not signed")
        self._is_signed = is_signed

    def remedy(self, keys_named_by: str) -> str:
        """Return the remedy, given the name of the setting that names the keys."""
        if self._is_signed:
            return f"if you trust the signer, add their key to {keys_named_by}"
        return f"the builder must sign it, since {keys_named_by} is set"


class Head(NamedTuple):
    """The description of an entry; paths begin with the name of a root, see `be_runtime.store.travelling.Roots`.

    Parameters
    ----------
    digest, kind, name : str
        Digest, kind and name of the movable key.
    outputs : tuple of (str, int, str)
        Name, size and SHA-256 of each output.
    dependencies, others : tuple of (str, str)
        Path and hash of each input, see `Manifest`.
    absent : tuple of (str, int, tuple of str)
        Folders, each with the names that the build did not find in it. The number is the position of the first row
        for the same folder.
    host : str
        Machine that built the entry.
    seconds : float
        Duration of the build.
    """

    digest: str
    kind: str
    name: str
    outputs: tuple[tuple[str, int, str], ...]
    dependencies: tuple[tuple[str, str], ...]
    others: tuple[tuple[str, str], ...]
    absent: tuple[tuple[str, int, tuple[str, ...]], ...]
    host: str
    seconds: float


def pack(head: Head, outputs: Mapping[str, bytes], sign: Sign | None = None) -> bytes:
    """Make an archive; `unpack` is the inverse."""
    text = zlib.compress(json.dumps(head._asdict(), separators=(",", ":")).encode("utf-8", "surrogatepass"))
    framed = len(text).to_bytes(_LENGTH, "little") + text
    return b"".join((MAGIC, sign(framed) if sign else _UNSIGNED, framed, *(outputs[name] for name, *_ in head.outputs)))


def resigned(data: bytes, sign: Sign) -> bytes:
    """Return the archive with its signature replaced.

    Raises
    ------
    ArchiveError
        The archive is damaged.
    """
    _, framed, rest = _split(data)
    return b"".join((MAGIC, sign(framed), framed, rest))


def unpack(data: bytes, verify: Verify | None = None) -> tuple[Head, dict[str, memoryview]]:
    """Read an archive: check its signature first if `verify` is given, and the hash of each output.

    Raises
    ------
    SignatureError
        The archive is not signed by a trusted key.
    ArchiveError
        The archive is damaged, or has another format.
    """
    signature, framed, rest = _split(data)
    if verify is not None and not verify(framed, signature):
        raise SignatureError(is_signed=signature != _UNSIGNED)
    head = _read_head(framed[_LENGTH:])
    outputs, at = {}, 0
    for name, size, digest in head.outputs:
        outputs[name] = rest[at : at + size]
        at += size
        if hashlib.sha256(outputs[name]).hexdigest() != digest:
            raise ArchiveError(f"is damaged: {name} does not have the hash that the head gives")
    if at != len(rest):
        raise ArchiveError("is damaged: it is longer than its head says")
    return head, outputs


def _split(data: bytes) -> tuple[bytes, bytes, memoryview]:
    """Return the signature, the head after its length, and the outputs."""
    at = len(MAGIC) + _SIGNATURE
    if not data.startswith(MAGIC):
        known = data.startswith(MAGIC.rstrip(b"1\n"))
        raise ArchiveError("is of another release's format" if known else "is no archive of an entry")
    end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "little")
    if end > len(data):
        raise ArchiveError("is damaged: it is cut off")
    return data[len(MAGIC) : at], data[at:end], memoryview(data)[end:]


def _read_head(text: bytes) -> Head:
    try:
        inflate = zlib.decompressobj()
        head = Head(**json.loads(inflate.decompress(text, _LARGEST_HEAD).decode("utf-8", "surrogatepass")))
        head = head._replace(
            outputs=_rows(head.outputs, str, int, str),
            dependencies=_rows(head.dependencies, str, str),
            others=_rows(head.others, str, str),
            absent=tuple((folder, same, _texts(names)) for folder, same, names in _rows(head.absent, str, int, list)),
        )
        is_whole = inflate.eof and not inflate.unused_data and _is_well_formed(head)
    except (ValueError, TypeError, RecursionError, zlib.error):
        is_whole = False
    if not is_whole:
        raise ArchiveError("is damaged: its head can't be read")
    for name, *_ in head.outputs:
        if problem := output_problem(name):
            raise ArchiveError(f"is damaged: the name of an output is {problem}")
    return head


def _rows(rows: Any, *kinds: type) -> tuple[Any, ...]:
    """Check a list of lists whose items have exactly these types."""
    if type(rows) is not list or any(type(row) is not list or (*map(type, row),) != kinds for row in rows):
        raise TypeError
    return tuple(map(tuple, rows))


def _texts(items: Any) -> tuple[str, ...]:
    """Check a list of str."""
    if type(items) is not list or any(type(item) is not str for item in items):
        raise TypeError
    return tuple(items)


def _is_well_formed(head: Head) -> bool:
    """Return whether a head's texts and numbers are possible for an entry and within its limits."""
    counts = [number for _, number, _ in (*head.outputs, *head.absent)]
    texts = _texts([head.digest, head.kind, head.name, head.host])
    texts += tuple(text for name, _, digest in head.outputs for text in (name, digest))
    texts += tuple(text for pair in (*head.dependencies, *head.others) for text in pair)
    texts += tuple(text for folder, _, names in head.absent for text in (folder, *names))
    is_small = len(texts) <= _MOST_TEXTS and sum(text.count("/") for text in texts) <= _MOST_FOLDERS
    are_once = len({name for name, *_ in head.outputs}) == len(head.outputs)
    is_time = type(head.seconds) in (int, float) and math.isfinite(head.seconds)
    return is_small and max(map(len, texts)) <= _LONGEST_TEXT and min(counts, default=0) >= 0 and are_once and is_time


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


def read_verifier(keys: str, named_by: str) -> Verify:
    """Return the function that checks whether one of these keys made a signature.

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

    return verify


def _read_public(word: str, named_by: str) -> list[bytes]:
    """Return the key that a text is, or the keys in the file that it names."""
    raw = _decoded(word)
    if raw is not None:
        return [raw]
    if not word.startswith(("/", "~")):  # anybody may have made a file of that name in the working folder
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
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ArgumentError(
            f"{named_by} is {shown_key(str(path))!r}, {problem}: {reason}",
            hints=("whoever can write to it decides whose code runs here",) * is_distrusted,
        ) from None


def _decoded(text: str) -> bytes | None:
    """Return the 32 bytes of a key; None if the text is no key."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == 32 else None
