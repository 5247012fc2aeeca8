"""Which variables the runtime reads when a kernel is loaded, and which values it refuses. Pure.

The runtime has the full table of its settings; a test compares both.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from be_toolchain.arch import ACCEPTED_SPELLINGS, parse_archs
from be_toolchain.errors import ArchError, PreferenceError
from be_toolchain.rules.coherence import judge_folder
from be_toolchain.rules.surroundings import Surroundings

_SWITCHES = ("1", "true", "yes", "on", "0", "false", "no", "off")


def _is_capabilities(text: str, _: Mapping[str, str]) -> bool:
    try:
        return bool(parse_archs(text))
    except ArchError:
        return False


def _is_count(text: str, _: Mapping[str, str]) -> bool:
    return text.isascii() and text.isdigit() and int(text) > 0


def _is_seconds(text: str, _: Mapping[str, str]) -> bool:
    try:
        return 0.0 < float(text) < float("inf")
    except ValueError:
        return False


def _is_switch(text: str, _: Mapping[str, str]) -> bool:
    return text.lower() in _SWITCHES


def _is_command(text: str, _: Mapping[str, str]) -> bool:
    try:
        return bool(shlex.split(text))
    except ValueError:
        return False


def _is_path(text: str, environ: Mapping[str, str]) -> bool:
    return bool(environ.get("HOME")) or not (text == "~" or text.startswith("~/"))


class _Kind(NamedTuple):
    """Which texts are accepted, and how to say so."""

    accepts: Callable[[str, Mapping[str, str]], bool]
    expected: str


_PATH = _Kind(_is_path, "a path without ~, since HOME is not set")
_CAPABILITIES = _Kind(_is_capabilities, f"{ACCEPTED_SPELLINGS}, or several with commas between")
_COUNT = _Kind(_is_count, "a whole number above 0")
_SECONDS = _Kind(_is_seconds, "a number of seconds above 0")
_SWITCH = _Kind(_is_switch, "1 or 0")
_COMMAND = _Kind(_is_command, "a command, quoted as for a shell")

VARIABLES = (
    (("BE_CACHE_DIR", "BRAINEVENT_CACHE_DIR"), _PATH),
    (("BE_PREBUILT_DIR",), _PATH),
    (("BE_COMPUTE_CAPABILITIES", "BRAINEVENT_COMPUTE_CAPABILITIES"), _CAPABILITIES),
    (("BE_MAX_JOBS",), _COUNT),
    (("BE_CACHE_MAX_SIZE_MIB",), _COUNT),
    (("BE_CACHE_MAX_AGE_DAYS",), _COUNT),
    (("BE_COMPILE_TIMEOUT_S", "BRAINEVENT_COMPILE_TIMEOUT"), _SECONDS),
    (("BE_LOCK_TIMEOUT_S",), _SECONDS),
    (("BE_COMPILER_LAUNCHER",), _COMMAND),
    (("BE_VERBOSE",), _SWITCH),
)
"""Each setting's variables, of which the first that is set counts, and its kind."""


def refused_settings(environ: Mapping[str, str], around: Surroundings) -> tuple[PreferenceError, ...]:
    """An error for everything in the environment that keeps all load functions from working."""
    return (*find_bad_settings(environ), *_refused_cache(around))


def _refused_cache(around: Surroundings) -> Iterator[PreferenceError]:
    """Why the runtime refuses the folder that a variable names; in the place of the usual one it uses another."""
    if around.cache_variable:
        remedy = f"set {around.cache_variable} to a folder of your own, or unset it"
        for row in judge_folder("cache", around.cache, remedy):
            yield PreferenceError(f"{row.message} ({around.cache_variable})", hints=(row.hint,))


def find_bad_settings(environ: Mapping[str, str]) -> Iterator[PreferenceError]:
    """An error for every variable that counts and has a value that means nothing: all load functions refuse it.

    Examples
    --------
    >>> next(find_bad_settings({"BE_MAX_JOBS": "many"})).message
    "BE_MAX_JOBS is 'many', expected a whole number above 0"
    """
    for names, kind in VARIABLES:
        name = next((name for name in names if environ.get(name, "").strip()), None)
        if name is not None and not kind.accepts(environ[name].strip(), environ):
            message = f"{name} is {environ[name].strip()!r}, expected {kind.expected}"
            yield PreferenceError(message, hints=(f"unset {name} to use the default",))
