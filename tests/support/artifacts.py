"""Artifacts as another machine packs them."""

import hashlib
from typing import Any

from be_runtime.store import index, keys, signing
from be_runtime.store.artifact import Artifact, pack, unpack

CODE = b"\x7fELF" * 100


def table(key: keys.CacheKey, code: bytes = CODE, **inputs: Any) -> index.Index:
    """Return the index of one library, made from such inputs."""
    image = index.CodeImage("library", "cpu", len(code))
    made_from = index.Inputs(key.digest, key.kind, key.name)._replace(**inputs)
    return index.Index("x86_64", {hashlib.sha256(code).hexdigest(): image}, inputs=made_from)


def packed(key: keys.CacheKey, code: bytes = CODE, sign: signing.Sign | None = None, **inputs: Any) -> bytes:
    """Return an artifact of one library as a file."""
    return pack(table(key, code, **inputs), {hashlib.sha256(code).hexdigest(): code}, sign)


def artifact(key: keys.CacheKey, code: bytes = CODE, **inputs: Any) -> Artifact:
    """Return an artifact that another store gave."""
    return unpack(packed(key, code, **inputs), "the artifact")
