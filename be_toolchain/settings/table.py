"""Every environment variable that sets something, in both packages: its name, how its text is read, what it does. Pure.

A setting of be_runtime is a row of `RUNTIME` and a field of `be_runtime.settings.Settings`; what steers the search for
compilers is a row of `SEARCH`. The page docs/settings.md shows both tables.
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
from be_toolchain.terminal import without_credentials

JIT_MODES = ("never", "missing", "always")
"""Values of `BE_JIT`."""

AUTOTUNE_MODES = ("off", "cached", "on")
"""Values of `BE_AUTOTUNE`."""

SANITIZERS = ("address", "undefined", "device")
"""Values of `BE_SANITIZE`."""

CACHE_LIMIT_MIB = 4096
"""The default of `BE_CACHE_MAX_SIZE_MIB`."""

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


class SettingKind(NamedTuple):
    """A kind of text.

    Parameters
    ----------
    name : str
        Its name in the documentation.
    parse : callable
        From the text and the environment to a value; a ValueError says what is expected.
    """

    name: str
    parse: Callable[[str, Mapping[str, str]], Any]


class Setting(NamedTuple):
    """One setting.

    Parameters
    ----------
    variables : tuple of str
        Its variable and the aliases; the first that is set counts.
    kind : SettingKind
    meaning : str
        What it does, in Markdown.
    default_text : str
        The default, where the value itself doesn't say it.
    """

    variables: tuple[str, ...]
    kind: SettingKind
    meaning: str
    default_text: str = ""

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
            return setting.kind.parse(text, environ)
        except ValueError as error:
            hints = (f"unset {name} to use the default",)
            shown = without_credentials(text)
            raise PreferenceError(f"{name} is {shown!r}, expected {error}", hints=hints) from None
    return None


def render_table(heads: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> str:
    """Render a table in Markdown."""
    head, *lines = (f"| {' | '.join(row)} |\n" for row in (heads, *rows))
    return "".join((head, "|---" * len(heads), "|\n", *lines))


def render_variables(setting: Setting) -> str:
    """Render the cell with a setting's variables."""
    return ", ".join(f"`{name}`" for name in setting.variables)


def render_search_docs() -> str:
    """Render the table of `SEARCH` in Markdown."""
    rows = tuple((render_variables(row), row.kind.name, row.meaning) for row in SEARCH)
    return render_table(("variable", "type", "what it does"), rows)


def _parse_text(text: str, _: Mapping[str, str]) -> str:
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


def _one_of(words: tuple[str, ...]) -> SettingKind:
    def parse(text: str, _: Mapping[str, str]) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text

    return SettingKind("mode", parse)


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


_URL = SettingKind("URL", parse_url)
_PATH = SettingKind("path", _parse_path)
_SANITIZERS = SettingKind("list", _parse_sanitizers)
_FLAG = SettingKind("flag", _parse_flag)
_COUNT = SettingKind("count", _parse_count)
_SECONDS = SettingKind("seconds", _parse_seconds)
_CAPABILITIES = SettingKind("list", _parse_capabilities)
_COMMAND = SettingKind("command", _parse_command)
_CHECKS = SettingKind("checks", _parse_checks)
_PROGRAM, _FOLDER, _LIST, _KEYS = (SettingKind(name, _parse_text) for name in ("program", "folder", "list", "keys"))
"""Kinds of texts that are understood where they are used."""

RUNTIME = {
    "cache_dir": Setting(
        variables=("BE_CACHE_DIR", "BRAINEVENT_CACHE_DIR"),
        kind=_PATH,
        meaning="Where compiled kernels are kept. It must be yours, writable, and not mounted noexec.",
        default_text="the user's cache folder",
    ),
    "cache_max_size_mib": Setting(
        variables=("BE_CACHE_MAX_SIZE_MIB",),
        kind=_COUNT,
        meaning="The longest unused entries are removed when the cache grows beyond this.",
    ),
    "cache_max_age_days": Setting(
        variables=("BE_CACHE_MAX_AGE_DAYS",),
        kind=_COUNT,
        meaning="Entries that were not used for this long are removed.",
    ),
    "prebuilt_dir": Setting(
        variables=("BE_PREBUILT_DIR",),
        kind=_PATH,
        meaning="Modules built ahead of time, looked up before the cache; no compiler is needed for them.",
        default_text="none",
    ),
    "jit": Setting(
        variables=("BE_JIT",),
        kind=_one_of(JIT_MODES),
        meaning="Whether kernels are compiled: `never`, those `missing` from what was built before, or `always`.",
    ),
    "compute_capabilities": Setting(
        variables=("BE_COMPUTE_CAPABILITIES", "BRAINEVENT_COMPUTE_CAPABILITIES"),
        kind=_CAPABILITIES,
        meaning="GPU architectures to compile for, such as `8.6`, `sm_90a` or `8.6,9.0`.",
        default_text="the devices present",
    ),
    "compile_timeout_s": Setting(
        variables=("BE_COMPILE_TIMEOUT_S", "BRAINEVENT_COMPILE_TIMEOUT"),
        kind=_SECONDS,
        meaning="A build that runs longer is stopped.",
    ),
    "lock_timeout_s": Setting(
        variables=("BE_LOCK_TIMEOUT_S",),
        kind=_SECONDS,
        meaning="Longest wait for another process that builds the same kernel.",
        default_text="as long as that process lives",
    ),
    "max_jobs": Setting(
        variables=("BE_MAX_JOBS",),
        kind=_COUNT,
        meaning="Most compiler processes at once; `ninja_workers` can only lower it.",
        default_text="one a processor, as memory allows",
    ),
    "compiler_launcher": Setting(
        variables=("BE_COMPILER_LAUNCHER",),
        kind=_COMMAND,
        meaning="Put before every compiler command, such as `ccache` or `sccache`.",
        default_text="none",
    ),
    "cluster": Setting(
        variables=("BE_CLUSTER",),
        kind=_FLAG,
        meaning="Let one process of a `jax.distributed` job [build for all](cluster.md).",
    ),
    "remote_cache": Setting(
        variables=("BE_REMOTE_CACHE",),
        kind=_URL,
        meaning="A [remote cache](remote-cache.md) that is asked before a kernel is compiled.",
        default_text="none",
    ),
    "remote_cache_write": Setting(
        variables=("BE_REMOTE_CACHE_WRITE",),
        kind=_FLAG,
        meaning="Also put into the remote cache what is compiled here.",
    ),
    "remote_cache_timeout_s": Setting(
        variables=("BE_REMOTE_CACHE_TIMEOUT",),
        kind=_SECONDS,
        meaning="Longest time for one exchange with the remote cache, which also has to answer within a second.",
    ),
    "remote_cache_public_key": Setting(
        variables=("BE_REMOTE_CACHE_PUBLIC_KEY",),
        kind=_KEYS,
        meaning="Only entries signed by one of these keys are used: keys, or full paths of files of keys, with commas.",
        default_text="none",
    ),
    "remote_cache_private_key": Setting(
        variables=("BE_REMOTE_CACHE_PRIVATE_KEY",),
        kind=_PATH,
        meaning="The file with the key by which entries that are compiled here are signed.",
        default_text="none",
    ),
    "debug": Setting(
        variables=("BE_DEBUG",),
        kind=_CHECKS,
        meaning="[Check every call of a kernel](debugging.md): 1, or names of checks, such as `guards,inputs`.",
        default_text="0",
    ),
    "autotune": Setting(
        variables=("BE_AUTOTUNE",),
        kind=_one_of(AUTOTUNE_MODES),
        meaning="[Tuning](tuning.md): `on` times what is not known, `cached` uses what is kept, `off` uses nothing.",
    ),
    "sanitize": Setting(
        variables=("BE_SANITIZE",),
        kind=_SANITIZERS,
        meaning="Compile C++ modules with the sanitizers `address` or `undefined`, and CUDA modules with lines for "
        "those of the `device`; `python -m be_runtime check` [sets it](debugging.md) for a program under them.",
        default_text="none",
    ),
    "verbose": Setting(
        variables=("BE_VERBOSE",),
        kind=_FLAG,
        meaning="Show the commands of every build, their output and why they ran.",
    ),
}
"""What be_runtime reads at each load, by field of its `Settings`, which has the defaults."""

NVCC = Setting(("BE_NVCC", "BRAINEVENT_NVCC_PATH"), _PROGRAM, "This nvcc and no other.")
PREFER = Setting(
    ("BE_NVCC_PREFER", "BRAINEVENT_NVCC_PREFER"),
    _LIST,
    "Places to look at first, of `env`, `conda`, `pip`, `managed`, `path`, `system`.",
)
STORE = Setting(
    (ENV_STORE,),
    _FOLDER,
    "The folder of [managed toolchains](toolchain-install.md), instead of one in the user's data folder.",
)
SAFE = Setting(
    (ENV_SAFE,),
    _LIST,
    "Folders of other users in which a [project's file](toolchain.md#other-peoples-files) counts, with `:` between.",
)
CXX = Setting(("BE_CXX",), _PROGRAM, "This C++ compiler and no other.")
ALLOW_UNSUPPORTED = Setting(
    ("BE_ALLOW_UNSUPPORTED_COMPILER", "BRAINEVENT_ALLOW_UNSUPPORTED_COMPILER"),
    _FLAG,
    "Let nvcc use a host compiler that it does not know.",
)
HOMES = Setting(("CUDA_HOME", "CUDA_PATH"), _FOLDER, "A CUDA toolkit's root.")
PLAIN_CXX = Setting(("CXX",), _PROGRAM, "The C++ compiler, unless nvcc refuses it.")
CUDA_HOSTS = Setting(("NVCC_CCBIN", "CUDAHOSTCXX"), _PROGRAM, "The C++ compiler for nvcc.")

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
