"""Settings that keep all load functions from working: an invalid value, or a cache folder that is refused. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from be_toolchain.errors import PreferenceError
from be_toolchain.rules.coherence import judge_folder
from be_toolchain.rules.surroundings import Surroundings
from be_toolchain.settings.table import RUNTIME, read_setting


def refused_settings(environ: Mapping[str, str], around: Surroundings) -> tuple[PreferenceError, ...]:
    """Return an error for each setting that keeps all load functions from working."""
    return (*find_bad_settings(environ), *_refused_cache(around))


def _refused_cache(around: Surroundings) -> Iterator[PreferenceError]:
    """Yield the errors for a cache folder that a variable names; the runtime replaces only the default folder."""
    if around.cache_variable:
        remedy = f"set {around.cache_variable} to a folder of your own, or unset it"
        for row in judge_folder("cache", around.cache, remedy):
            yield PreferenceError(f"{row.message} ({around.cache_variable})", hints=(row.hint,))


def find_bad_settings(environ: Mapping[str, str]) -> Iterator[PreferenceError]:
    """Yield an error for every variable in use that has an invalid value: all load functions refuse it.

    Examples
    --------
    >>> next(find_bad_settings({"BE_MAX_JOBS": "many"})).message
    "BE_MAX_JOBS is 'many', expected a whole number above 0"
    """
    for setting in RUNTIME.values():
        try:
            read_setting(setting, environ)
        except PreferenceError as error:
            yield error
