"""The remote cache that settings and files name."""

from __future__ import annotations

from be_toolchain.errors import PreferenceError
from be_toolchain.machine import trust
from be_toolchain.machine.system import System
from be_toolchain.named import NamedTuple
from be_toolchain.settings import RUNTIME, find_configuration, parse_configuration, parse_url
from be_toolchain.terminal import shown_url

FOLDER = "be-1/ac"
"""Folder of the entries below the URL. Servers for Bazel take files named by 64 digits in a folder ``ac``."""


class RemoteSource(NamedTuple):
    """The URL of a remote cache, and the keys that sign its entries, each with the name of its setting.

    Parameters
    ----------
    url, named_by : str
        Empty if there is no remote cache.
    keys, keys_named_by : str
        Public keys, or files with keys, separated by commas; empty if entries need no signature.
    may_write : bool
        False for the remote cache of a project's settings file.
    problem : str
        The reason why the remote cache in a project's settings file is not used; empty if there is none.
    """

    url: str = ""
    named_by: str = ""
    keys: str = ""
    keys_named_by: str = ""
    may_write: bool = True
    problem: str = ""

    @property
    def label(self) -> str:
        """The URL without its secrets, for messages."""
        return shown_url(self.url)


def find_remote(system: System, url: str, keys: str) -> RemoteSource:
    """Find the remote cache that settings name; read files unless the variables name both URL and keys.

    Parameters
    ----------
    system : System
        The machine.
    url, keys : str
        Values of ``BE_REMOTE_CACHE`` and ``BE_REMOTE_CACHE_PUBLIC_KEY``; empty if they are not set.

    Raises
    ------
    PreferenceError
        A file is not valid, or has an invalid URL.
    """
    own = trust.OwnSettings() if url and keys else trust.read_own_settings(system)
    variable, key_variable = RUNTIME["remote_cache"].variable, RUNTIME["remote_cache_public_key"].variable
    by = key_variable if keys else f"{trust.REMOTE_CACHE_KEY} in {own.path}" if own.remote_cache_key else ""
    trusted = RemoteSource(keys=keys or own.remote_cache_key, keys_named_by=by)
    if url:
        return trusted._replace(url=url, named_by=variable)
    if own.remote_cache:
        return _checked(trusted._replace(url=own.remote_cache, named_by=f"{trust.REMOTE_CACHE} in {own.path}"))
    file = parse_configuration(find_configuration(system))
    if not file.remote_cache:
        return trusted
    named_by, problem = file.label(trust.REMOTE_CACHE), ""
    if not trusted.keys:
        problem = f"it is used only with a key, since others may have written it; set {key_variable}, or {variable}"
    elif not file.remote_cache.startswith("https://"):
        problem = f"in a project's settings file it must begin with https://; correct it, or set {variable}"
    if problem:
        return trusted._replace(problem=f"{named_by} is ignored: {problem}")
    return _checked(trusted._replace(url=file.remote_cache, named_by=named_by, may_write=False))


def _checked(found: RemoteSource) -> RemoteSource:
    """Return a remote cache of a file; raise PreferenceError if its URL is invalid."""
    try:
        parse_url(found.url)
    except ValueError as error:
        raise PreferenceError(f"{found.named_by} is {found.label!r}", hints=(f"it must be {error}",)) from None
    return found
