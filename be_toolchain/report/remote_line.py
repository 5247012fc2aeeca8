"""The doctor's line about the remote cache."""

from __future__ import annotations

from collections.abc import Iterator

from be_toolchain.errors import PreferenceError
from be_toolchain.machine.system import System
from be_toolchain.report.model import Finding
from be_toolchain.settings.remote_source import FOLDER, RemoteSource, find_remote
from be_toolchain.settings.table import RUNTIME, read_setting
from be_toolchain.terminal import printable_line

_SUBJECT = "remote cache"
_NOBODY = "0" * 64
"""A name that no entry has."""


def report_remote(system: System) -> Iterator[Finding]:
    """Yield a finding if settings name a remote cache; a web server is asked whether it answers."""
    try:
        url, writes, keys = (
            read_setting(RUNTIME[name], system.environ)
            for name in ("remote_cache", "remote_cache_write", "remote_cache_public_key")
        )
    except PreferenceError:
        return  # reported with all other settings
    try:
        source = find_remote(system, url or "", keys or "")
    except PreferenceError as error:
        yield Finding("warn", _SUBJECT, f"{error.message}, so what is not compiled yet is not loaded", *error.hints[:1])
        return
    if source.problem:
        yield Finding("warn", _SUBJECT, *source.problem.split("; ", 1))
    if source.url:
        yield _describe(system, source, writes=bool(writes) and source.may_write)


def _describe(system: System, source: RemoteSource, *, writes: bool) -> Finding:
    way = "read and written" if writes else "only read"
    trust = f"entries signed by the keys of {source.keys_named_by}" if source.keys else "entries are not signed"
    text = f"{source.label} (from {source.named_by}), {way}, {trust}"
    if not source.url.startswith(("http://", "https://")):
        return Finding("ok", _SUBJECT, f"{text}; it was not asked")
    problem = system.ask_server(source.url, f"{FOLDER}/{_NOBODY}")
    if problem:
        message = f"{text}; it does not answer as it should: {printable_line(problem)}"
        return Finding("warn", _SUBJECT, message, "correct it, or unset it: until then all is compiled here")
    return Finding("ok", _SUBJECT, f"{text}; it answers")
