"""Cache keys of modules, the identity of this package's own code, and requests made portable."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from be_runtime.own_files import ABI, FFI_CLAIM, HERE, INCLUDE_DIR, NATIVE_DIR, by_name, homes
from be_runtime.request.build_tools import BuildTools
from be_runtime.request.options import BuildRequest
from be_runtime.store.cache import Entry, replace_file
from be_runtime.store.index import Demand
from be_runtime.store.keys import CacheKey, make_key
from be_toolchain import Toolchain, __version__
from be_toolchain.machine.trust import SMALL, read_regular

_SITE = Path(__file__).parents[2]
_PACKAGES = ("be_runtime", "be_toolchain")
_ENDINGS = (".py", ".c", ".cc", ".h", ".sh", ".ci")
_TICK_NS = 2_000_000_000
"""Nanoseconds after a change in which a file may change again without a change of its stat."""


@cache
def own_code_digest() -> str:
    """Return the hash of the code that turns a request into a library."""
    record = _SITE / f"brainevent_toolchain-{__version__}.dist-info" / "RECORD"
    if record.is_file():
        rows = (row.rsplit(",", 1)[0] for row in record.read_text(encoding="utf-8").splitlines())
        return _digest(row for row in rows if row.startswith(_PACKAGES) and row.split(",")[0].endswith(_ENDINGS))
    memo = None if sys.dont_write_bytecode else Path(__spec__.cached or __file__).with_name("own_code.json")
    return checkout_digest(_SITE, memo, time.time_ns())


@cache
def shipped_folder() -> Path | None:
    """Return the folder of our compiled files in the package; None if there is no such folder for this code.

    The folder is named by the kind of machine and by `own_code_digest`, so files of other code are never found. A wheel
    has the folder among the native sources; conda's package of the compiled files has it in the environment's ``lib``.
    """
    places = [NATIVE_DIR / "shipped"]
    if _SITE.name == "site-packages":
        places.append(_SITE.parents[1] / "brainevent-toolchain")
    existing = [place for place in places if place.is_dir()]
    named = [place / shipped_name(os.uname().machine, own_code_digest()) for place in existing]
    return next((folder for folder in named if folder.is_dir()), None)


def shipped_name(machine: str, digest: str) -> str:
    """Return the name of a folder of our own compiled files.

    Examples
    --------
    >>> shipped_name("x86_64", "0123456789abcdef0123456789abcdef")
    'x86_64-0123456789abcdef'
    """
    return f"{machine}-{digest[:16]}"


def checkout_digest(site: Path, memo: Path | None, now_ns: int) -> str:
    """Return the identity of the packages in a folder.

    Parameters
    ----------
    site : Path
        Folder that contains the packages.
    memo : Path or None
        File that keeps the identity and the stats for which it is valid; None to keep nothing.
    now_ns : int
        The time.
    """
    stats = dict(_source_files(str(site)))
    facts = [f"{name} {now.st_size} {now.st_mtime_ns} {now.st_ctime_ns} {now.st_ino}" for name, now in stats.items()]
    seen = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    with contextlib.suppress(OSError, ValueError, RecursionError):
        kept = json.loads(read_regular(memo, SMALL)) if memo is not None else None
        if isinstance(kept, dict) and kept.get("seen") == seen and isinstance(kept.get("digest"), str):
            digest: str = kept["digest"]
            return digest
    digest = _digest(f"{name},sha256={_sha256(f'{site}/{name}')}" for name in stats)
    newest_ns = max(max(now.st_mtime_ns, now.st_ctime_ns) for now in stats.values())
    if memo is not None and newest_ns < now_ns - _TICK_NS:
        with contextlib.suppress(OSError):
            replace_file(str(memo), json.dumps({"seen": seen, "digest": digest}), mode=0o666)
    return digest


def _digest(rows: Iterable[str]) -> str:
    return hashlib.sha256("\n".join([__version__, *sorted(rows)]).encode()).hexdigest()


def _source_files(site: str) -> Iterator[tuple[str, os.stat_result]]:
    """List the packages' sources in all folders, relative to `site`, and their stats."""
    folders = list(_PACKAGES)
    while folders:
        folder = folders.pop()
        with os.scandir(f"{site}/{folder}") as entries:
            for entry in entries:
                if entry.name.endswith(_ENDINGS):
                    yield f"{folder}/{entry.name}", entry.stat()
                elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                    folders.append(f"{folder}/{entry.name}")


def _sha256(path: str) -> str:
    """Hash a file in RECORD's format."""
    import base64  # a kept identity needs no hashes

    with open(path, "rb") as file:
        return base64.urlsafe_b64encode(hashlib.sha256(file.read()).digest()).rstrip(b"=").decode()


Field = tuple[str, str | Sequence[str]]
"""A label of a key, and its value."""

_XLA = "xla/ffi/"
"""The part of an ``#include`` by which a header of XLA in jaxlib is recognized."""


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
        *((f"file {name}", hashlib.sha256(data).hexdigest()) for name, data in request.files),
        ("abi", str(ABI)),
        ("ffi", FFI_CLAIM),
    )


def module_key(request: BuildRequest, tools: BuildTools, toolchain: Toolchain) -> CacheKey:
    """Make the key of a module; the headers that it reads are in its entry's manifest.

    Modules do not depend on the release of jaxlib, unless an author includes XLA's headers.
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
    """Make a key that environments share, unless its fields name a folder of our files, or of JAX, in one of them."""
    key = make_key(kind, *fields)
    named = [folder for folder, _ in homes() if any(os.fsencode(folder) in value for _, value in key.fields)]
    return make_key(kind, *fields, (HERE, named)) if named else key


def _text(value: object) -> str | list[str]:
    """Convert an option's value for the key."""
    return [str(item) for item in value] if isinstance(value, tuple) else str(value)


def _functions_text(functions: object) -> str:
    """Convert the argument `functions` to text; a malformed argument finds no entry, and discovery refuses it."""
    given = ["mapping", list(functions.items())] if isinstance(functions, Mapping) else ["names", functions]
    return json.dumps(given, default=repr)


def content_hash(key: CacheKey, entry: Entry) -> str:
    """Hash all inputs of a library, the key and every file that was read; the hash is equal in all processes.

    The files are sorted, since compilers read them in another order if CUDA's headers come from kept text.
    """
    read = sorted(entry.manifest.dependencies.sha256s)
    return hashlib.sha256("".join([key.digest, *read]).encode()).hexdigest()


def origin_hash(key: CacheKey, entry: Entry) -> str:
    """Hash the inputs without the list of functions, since a function is equal in all libraries of one origin."""
    fields = tuple(field for field in key.fields if field[0] != "functions")
    return content_hash(CacheKey(key.kind, fields), entry)


def portable_request(request: BuildRequest, wanted: Demand, names: Mapping[Path, str] | None = None) -> BuildRequest:
    """Return a request whose library depends neither on the CPU nor on the folders of this machine.

    Parameters
    ----------
    request : BuildRequest
    wanted : Demand
        The architectures replace the request's architectures. The level comes after the author's flags and so overrides
        them.
    names : dict of Path to str, optional
        Names of folders in messages and debugging information. By default, all folders of sources have the module's
        name.
    """
    compile_ = request.compile
    if names is None:
        folders = [*(unit.path.parent for unit in request.units if unit.path is not None), *compile_.include_paths]
        names = dict.fromkeys(folders, request.name)
    renamed = {**names, INCLUDE_DIR: "brainevent"}
    flags = [f"-ffile-prefix-map={folder}={name}" for folder, name in renamed.items()]
    flags += [f"-march={wanted.baseline}"] if wanted.baseline else []
    if request.language == "cuda":
        flags = [part for flag in flags for part in ("-Xcompiler", shlex.quote(flag))]  # a shell of nvcc's reads them
        if wanted.archs:
            request = request._replace(compute_capability=",".join(wanted.archs))
    # An author's libraries are not searched where they lie here; without any, the module stays one that is closed.
    ldflags = (*compile_.ldflags, "-rpath=") if compile_.ldflags else ()
    return request._replace(compile=compile_._replace(cflags=(*compile_.cflags, *flags), ldflags=ldflags, native=""))
