"""Artifacts as another machine packs them."""

import hashlib
from typing import Any

from be_runtime.store.artifact import Artifact, pack, unpack
from be_runtime.store.index import CodeImage, Index, Inputs
from be_runtime.store.keys import CacheKey
from be_runtime.store.signing import Sign

CODE = b"\x7fELF" * 100


def table(key: CacheKey, code: bytes = CODE, **inputs: Any) -> Index:
    """Return the index of one library, made from such inputs."""
    image = CodeImage("library", "cpu", len(code))
    made_from = Inputs(key.digest, key.kind, key.name)._replace(**inputs)
    return Index("x86_64", {hashlib.sha256(code).hexdigest(): image}, inputs=made_from)


def packed(key: CacheKey, code: bytes = CODE, sign: Sign | None = None, **inputs: Any) -> bytes:
    """Return an artifact of one library as a file."""
    return pack(table(key, code, **inputs), {hashlib.sha256(code).hexdigest(): code}, sign)


def artifact(key: CacheKey, code: bytes = CODE, **inputs: Any) -> Artifact:
    """Return an artifact that another store gave."""
    return unpack(packed(key, code, **inputs), "the artifact")
