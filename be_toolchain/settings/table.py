"""Every environment variable that sets something, in both packages: its name and how its text is read. Pure.

A setting of be_runtime is a row of `RUNTIME` and a field of `be_runtime.settings.Settings`; what steers the search for
compilers is a row of `SEARCH`. The page docs/settings.md says what each does.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from be_toolchain.arch import ACCEPTED_SPELLINGS, parse_archs
from be_toolchain.errors import ArchError, PreferenceError
from be_toolchain.known import catalog
from be_toolchain.machine.store_paths import ENV_STORE, STORE_VARIABLES
from be_toolchain.machine.trust.safe_folders import ENV_SAFE
from be_toolchain.terminal import shown_url

JIT_MODES = ("never", "missing", "always")
"""Values of `BE_JIT`."""

AUTOTUNE_MODES = ("off", "cached", "on")
"""Values of `BE_AUTOTUNE`."""

SANITIZERS = ("address", "undefined", "thread", "device")
"""Values of `BE_SANITIZE`."""

CACHE_LIMIT_MIB = 4096
"""The default of `BE_CACHE_MAX_SIZE_MIB`."""

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


class Setting(NamedTuple):
    """One setting.

    Parameters
    ----------
    variables : tuple of str
        Its variable and the aliases; the first that is set counts.
    parse : callable
        From the text and the environment to a value; a ValueError says what is expected.
    """

    variables: tuple[str, ...]
    parse: Callable[[str, Mapping[str, str]], Any]

    @property
    def variable(self) -> str:
        """The variable's name, without the aliases."""
        return self.variables[0]


def set_variables(variables: tuple[str, ...], environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return those of some variables that are set, each with its value; an empty or blank one is not set.

    Examples
    --------
    >>> set_variables(("BE_CXX", "CXX"), {"BE_CXX": "", "CXX": "g++ "})
    (('CXX', 'g++'),)
    """
    found = ((name, environ.get(name, "").strip()) for name in variables)
    return tuple((name, text) for name, text in found if text)


def read_setting(setting: Setting, environ: Mapping[str, str]) -> Any:
    """Read the value of a setting; None when none of its variables is set.

    Raises
    ------
    PreferenceError
        The text is not of the setting's kind.

    Examples
    --------
    >>> read_setting(RUNTIME["max_jobs"], {"BE_MAX_JOBS": "4"})
    4
    """
    for name, text in set_variables(setting.variables, environ)[:1]:
        try:
            return setting.parse(text, environ)
        except ValueError as error:
            hints = (f"unset {name} to use the default",)
            shown = shown_url(text)
            raise PreferenceError(f"{name} is {shown!r}, expected {error}", hints=hints) from None
    return None


def _take_text(text: str, _: Mapping[str, str]) -> str:
    """Take any text; it is understood where it is used."""
    return text


def _parse_path(text: str, environ: Mapping[str, str]) -> Path:
    if text == "~" or text.startswith("~/"):
        home = environ.get("HOME")
        if not home:
            raise ValueError("a path without ~, since HOME is not set")
        text = home + text[1:]
    return Path(text)


def _parse_flag(text: str, _: Mapping[str, str]) -> bool:
    if text.lower() in (*_TRUE, *_FALSE):
        return text.lower() in _TRUE
    raise ValueError("1, true, yes, on, 0, false, no or off")


def _parse_count(text: str, _: Mapping[str, str]) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0:
        return int(text)
    raise ValueError("a whole number above 0")


def _parse_checks(text: str, _: Mapping[str, str]) -> str:
    return "all" if text.lower() in _TRUE else "" if text.lower() in _FALSE else text


def _parse_seconds(text: str, _: Mapping[str, str]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 0.0 < value < float("inf"):
        return value
    raise ValueError("a number of seconds above 0")


def _parse_capabilities(text: str, _: Mapping[str, str]) -> str:
    try:
        parse_archs(text)
    except ArchError:
        raise ValueError(f"{ACCEPTED_SPELLINGS}, or several with commas between") from None
    return text


def _parse_command(text: str, _: Mapping[str, str]) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"a command, quoted as for a shell ({error})") from None


def _one_of(words: tuple[str, ...]) -> Callable[[str, Mapping[str, str]], str]:
    def parse(text: str, _: Mapping[str, str]) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text

    return parse


def _parse_sanitizers(text: str, _: Mapping[str, str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not {*names} <= {*SANITIZERS}:
        raise ValueError(f"some of {', '.join(SANITIZERS)}, with commas between")
    return names


def parse_url(text: str, _: Mapping[str, str] | None = None) -> str:
    """Check that a text looks like the URL of a remote cache; a ValueError says what is expected."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        is_web = parts.scheme in ("http", "https")
        is_one = bool(parts.hostname and parts.port != 0 if is_web else parts.netloc + parts.path)
    except ValueError:
        is_one = False
    if not is_one or not text.startswith(f"{parts.scheme}://") or set(text) & set(" ?#"):
        raise ValueError("a URL such as https://cache.example.org/kernels or s3://bucket/kernels")
    return text


RUNTIME = {
    "cache_dir": Setting(("BE_CACHE_DIR", "BRAINEVENT_CACHE_DIR"), _parse_path),
    "cache_max_size_mib": Setting(("BE_CACHE_MAX_SIZE_MIB",), _parse_count),
    "cache_max_age_days": Setting(("BE_CACHE_MAX_AGE_DAYS",), _parse_count),
    "prebuilt_dir": Setting(("BE_PREBUILT_DIR",), _parse_path),
    "jit": Setting(("BE_JIT",), _one_of(JIT_MODES)),
    "compute_capabilities": Setting(
        ("BE_COMPUTE_CAPABILITIES", "BRAINEVENT_COMPUTE_CAPABILITIES"), _parse_capabilities
    ),
    "compile_timeout_s": Setting(("BE_COMPILE_TIMEOUT_S", "BRAINEVENT_COMPILE_TIMEOUT"), _parse_seconds),
    "lock_timeout_s": Setting(("BE_LOCK_TIMEOUT_S",), _parse_seconds),
    "max_jobs": Setting(("BE_MAX_JOBS",), _parse_count),
    "compiler_launcher": Setting(("BE_COMPILER_LAUNCHER",), _parse_command),
    "cluster": Setting(("BE_CLUSTER",), _parse_flag),
    "remote_cache": Setting(("BE_REMOTE_CACHE",), parse_url),
    "remote_cache_write": Setting(("BE_REMOTE_CACHE_WRITE",), _parse_flag),
    "remote_cache_timeout_s": Setting(("BE_REMOTE_CACHE_TIMEOUT",), _parse_seconds),
    "remote_cache_public_key": Setting(("BE_REMOTE_CACHE_PUBLIC_KEY",), _take_text),
    "remote_cache_private_key": Setting(("BE_REMOTE_CACHE_PRIVATE_KEY",), _parse_path),
    "debug": Setting(("BE_DEBUG",), _parse_checks),
    "autotune": Setting(("BE_AUTOTUNE",), _one_of(AUTOTUNE_MODES)),
    "sanitize": Setting(("BE_SANITIZE",), _parse_sanitizers),
    "verbose": Setting(("BE_VERBOSE",), _parse_flag),
}
"""What be_runtime reads at each load, by field of its `Settings`, which has the defaults."""

NVCC = Setting(("BE_NVCC", "BRAINEVENT_NVCC_PATH"), _take_text)
PREFER = Setting(("BE_NVCC_PREFER", "BRAINEVENT_NVCC_PREFER"), _take_text)
STORE = Setting((ENV_STORE,), _take_text)
SAFE = Setting((ENV_SAFE,), _take_text)
CXX = Setting(("BE_CXX",), _take_text)
ALLOW_UNSUPPORTED = Setting(("BE_ALLOW_UNSUPPORTED_COMPILER", "BRAINEVENT_ALLOW_UNSUPPORTED_COMPILER"), _parse_flag)
HOMES = Setting(("CUDA_HOME", "CUDA_PATH"), _take_text)
PLAIN_CXX = Setting(("CXX",), _take_text)
CUDA_HOSTS = Setting(("NVCC_CCBIN", "CUDAHOSTCXX"), _take_text)

SEARCH = (NVCC, PREFER, STORE, SAFE, CXX, ALLOW_UNSUPPORTED, HOMES, PLAIN_CXX, CUDA_HOSTS)
"""What steers the search for compilers."""

RECORD_VARIABLES = tuple(
    sorted(
        {
            *(name for row in SEARCH for name in row.variables),
            *STORE_VARIABLES,
            *catalog.PLACE_VARIABLES,
            *catalog.COMPILE_VARIABLES,
        }
    )
)
"""All that a recorded answer depends on: what steers the search, or the tools while they are asked."""
