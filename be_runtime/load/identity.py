"""Identity of a module: the key that finds it in the cache, and the hash of what it was made from.

The key has the inputs of a build, and nothing derived from them: entry points, generated text and commands follow from
the request, the tools and the generator's own code, which is part of the key. So a warm load derives nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence

from be_runtime.abi import ABI, FFI_CLAIM
from be_runtime.cache import CacheKey, Entry, make_key
from be_runtime.load.own_code import own_code_digest
from be_runtime.own_files import HERE, by_name, homes
from be_runtime.request.options import BuildRequest
from be_runtime.request.tools import Tools
from be_toolchain import Toolchain

Field = tuple[str, str | Sequence[str]]
"""A label of a key, and its value."""

_XLA = "xla/ffi/"
"""What an include of one of XLA's headers contains, of those that jaxlib has."""


def request_fields(request: BuildRequest) -> tuple[Field, ...]:
    """Return the fields of a module's key for the request and the ABI, which do not depend on the tools."""
    units = [
        part
        for unit in request.units
        for source in unit.sources
        for part in (unit.stem, str(unit.path or ""), source.name, source.text)
    ]
    return (
        ("name", request.name),
        ("language", request.language),
        ("sources", units),
        ("functions", _functions_text(request.functions)),
        *((name, _text(value)) for name, value in request.compile.key_items()),
        ("abi", str(ABI)),
        ("ffi", FFI_CLAIM),
    )


def module_key(request: BuildRequest, tools: Tools, toolchain: Toolchain) -> CacheKey:
    """Make the key of a module; the headers that it reads are in its entry's manifest.

    Modules are the same whichever jaxlib they are compiled beside, except where an author includes XLA's headers.
    """
    includes_xla = any(_XLA in source.text for unit in request.units for source in unit.sources)
    return own_key(
        "module",
        *request_fields(request),
        ("generator", own_code_digest()),
        ("xla", by_name(str(tools.ffi_include)) if includes_xla else ""),
        ("tools", tools.key_fields()),
        ("archs", [arch.sm for arch in tools.archs]),
        ("toolchain", [part for pair in toolchain.key_fields() for part in pair]),
    )


def own_key(kind: str, *fields: Field) -> CacheKey:
    """Make a key that environments share, unless its fields name a folder of our files or JAX's in one of them."""
    key = make_key(kind, *fields)
    named = [folder for folder, _ in homes() if any(os.fsencode(folder) in value for _, value in key.fields)]
    return make_key(kind, *fields, (HERE, named)) if named else key


def _text(value: object) -> str | list[str]:
    """Convert an option's value for the key."""
    return [str(item) for item in value] if isinstance(value, tuple) else str(value)


def _functions_text(functions: object) -> str:
    """Convert the argument `functions` to text; a malformed one finds nothing and is refused by discovery."""
    given = ["mapping", list(functions.items())] if isinstance(functions, Mapping) else ["names", functions]
    return json.dumps(given, default=repr)


def content_hash(key: CacheKey, entry: Entry) -> str:
    """Hash everything a library was made from, the key and every file that was read; the same in every process.

    Compilers read the files in another order when CUDA's headers come from kept text.
    """
    read = sorted(entry.manifest.dependencies.sha256s)
    return hashlib.sha256("".join([key.digest, *read]).encode()).hexdigest()


def origin_hash(key: CacheKey, entry: Entry) -> str:
    """Hash the same without the list of functions: a function is the same in all libraries of one origin."""
    fields = tuple(field for field in key.fields if field[0] != "functions")
    return content_hash(CacheKey(key.kind, fields), entry)
