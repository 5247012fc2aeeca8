"""The doctor's lines about the remote cache and its keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from be_toolchain.errors import PreferenceError
from be_toolchain.machine.system import System
from be_toolchain.report.model import Remark
from be_toolchain.settings.remote_source import FOLDER, RemoteSource, find_remote
from be_toolchain.settings.table import RUNTIME, read_setting
from be_toolchain.terminal import printable_line, shown_key

_SUBJECT = "remote cache"
_NOBODY = "0" * 64
"""A name that no entry has."""

_FSSPEC_NEEDS = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("abfs", "abfss", "az", "adl"), "adlfs"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
    **dict.fromkeys(("webdav", "webhdfs"), "requests"),
    "smb": "smbprotocol",
    "oci": "ocifs",
    "oss": "ossfs",
    "hf": "huggingface_hub",
}
"""Packages without which fsspec does not reach a scheme, of those that it knows:
https://filesystem-spec.readthedocs.io/en/latest/api.html#other-known-implementations."""


def report_remote(system: System) -> Iterator[Remark]:
    """Yield findings if settings name a remote cache or a private key; a web server is asked whether it answers."""
    names = ("remote_cache", "remote_cache_write", "remote_cache_public_key", "remote_cache_private_key")
    try:
        url, writes, keys, private_key = (read_setting(RUNTIME[name], system.environ) for name in names)
    except PreferenceError:
        return  # reported with all other settings
    try:
        source = find_remote(system, url or "", keys or "")
    except PreferenceError as error:
        yield Remark("warn", _SUBJECT, f"{error.message}, so what is not compiled yet is not loaded", *error.hints[:1])
        return
    if source.problem:
        yield Remark("warn", _SUBJECT, *source.problem.split("; ", 1))
    if source.url:
        yield _describe(system, source, writes=bool(writes) and source.may_write)
    if private_key is not None:
        yield from _judge_private_key(system, private_key)
    if (source.keys or private_key is not None) and not system.has_package("cryptography"):
        message = (
            "keys need the package cryptography, which is not installed, so what is not compiled yet is not loaded"
        )
        yield Remark("warn", _SUBJECT, message, "pip install 'brainevent-toolchain[signing]'")


def _describe(system: System, source: RemoteSource, *, writes: bool) -> Remark:
    way = "read and written" if writes else "only read"
    trust = f"entries signed by the keys of {source.keys_named_by}" if source.keys else "entries are not signed"
    text = f"{source.label} (from {source.named_by}), {way}, {trust}"
    if not source.url.startswith(("http://", "https://")):
        return _describe_fsspec(system, source, text)
    problem = system.ask_server(source.url, f"{FOLDER}/{_NOBODY}")
    if problem:
        message = f"{text}; it does not answer as it should: {printable_line(problem)}"
        return Remark("warn", _SUBJECT, message, "correct it, or unset it: until then all is compiled here")
    return Remark("ok", _SUBJECT, f"{text}; it answers")


def _describe_fsspec(system: System, source: RemoteSource, text: str) -> Remark:
    """Describe what is no web server, by the packages that a load imports for it."""
    package = _FSSPEC_NEEDS.get(source.url.partition("://")[0])
    absent = [name for name in ("fsspec", package) if name and not system.has_package(name)]
    if not absent:
        return Remark("note", _SUBJECT, f"{text}; whether it answers is not known: loads alone ask it, by fsspec")
    message = f"{text}; it needs {' and '.join(absent)}, not installed, so what is not compiled yet is not loaded"
    wanted = "'brainevent-toolchain[s3]'" if package == "s3fs" else " ".join(absent)
    return Remark("warn", _SUBJECT, message, f"pip install {wanted}")


def _judge_private_key(system: System, path: Path) -> Iterator[Remark]:
    """Yield a finding if a private key is none that can be used, or no secret."""
    problem, variable = system.private_key_problem(path), RUNTIME["remote_cache_private_key"].variable
    if problem.startswith("can't"):
        problem = f"{problem}, so what is not compiled yet is not loaded"
        yield Remark(
            "warn", _SUBJECT, f"{variable} is {shown_key(str(path))}, which {problem}", "correct it, or unset it"
        )
    elif problem:
        yield Remark("warn", _SUBJECT, f"{variable} is {path}, which {problem}", f"chmod 600 {path}")
