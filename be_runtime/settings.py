"""Every setting of be_runtime that comes from the environment: one table, which also documents itself.

This module alone reads the environment, and only from the mapping it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


class _Parser(NamedTuple):
    """From a variable's text and the environment to a value; ValueError says what is expected."""

    type_name: str
    parse: Callable[[str, Mapping[str, str]], Any]


def _parse_path(text: str, environ: Mapping[str, str]) -> Path:
    if text == "~" or text.startswith("~/"):
        home = environ.get("HOME")
        if not home:
            raise ValueError("a path without ~, since HOME is not set")
        text = home + text[1:]
    return Path(text)


def _parse_bool(text: str, _: Mapping[str, str]) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError("1, true, yes, on, 0, false, no or off")


def _parse_count(text: str, _: Mapping[str, str]) -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise ValueError("a whole number above 0")


def _parse_seconds(text: str, _: Mapping[str, str]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 0.0 < value < float("inf"):
        return value
    raise ValueError("a number of seconds above 0")


def _parse_capabilities(text: str, _: Mapping[str, str]) -> str:
    from be_toolchain.arch import ACCEPTED_SPELLINGS, parse_archs
    from be_toolchain.errors import ArchError

    try:
        parse_archs(text)
    except ArchError:
        raise ValueError(f"{ACCEPTED_SPELLINGS}, or several with commas between") from None
    return text


def _parse_command(text: str, _: Mapping[str, str]) -> tuple[str, ...]:
    import shlex  # few set a launcher

    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"a command, quoted as for a shell ({error})") from None


_PATH = _Parser("path", _parse_path)
_BOOL = _Parser("flag", _parse_bool)
_COUNT = _Parser("count", _parse_count)
_SECONDS = _Parser("seconds", _parse_seconds)
_CAPABILITIES = _Parser("list", _parse_capabilities)
_COMMAND = _Parser("command", _parse_command)


class _Row(NamedTuple):
    """What a setting is called in the environment, how it is read, and what it does."""

    variables: tuple[str, ...]
    parser: _Parser
    meaning: str
    default_text: str | None = None


TABLE = {
    "cache_dir": _Row(
        variables=("BE_CACHE_DIR", "BRAINEVENT_CACHE_DIR"),
        parser=_PATH,
        meaning="Where compiled kernels are kept. It must be yours, writable, and not mounted noexec.",
        default_text="the user's cache folder",
    ),
    "cache_max_size_mib": _Row(
        variables=("BE_CACHE_MAX_SIZE_MIB",),
        parser=_COUNT,
        meaning="The longest unused entries are removed when the cache grows beyond this.",
    ),
    "cache_max_age_days": _Row(
        variables=("BE_CACHE_MAX_AGE_DAYS",),
        parser=_COUNT,
        meaning="Entries that were not used for this long are removed.",
    ),
    "prebuilt_dir": _Row(
        variables=("BE_PREBUILT_DIR",),
        parser=_PATH,
        meaning="Modules that `export_prebuilt` wrote, looked up before the cache; no compiler is needed for them.",
        default_text="none",
    ),
    "compute_capabilities": _Row(
        variables=("BE_COMPUTE_CAPABILITIES", "BRAINEVENT_COMPUTE_CAPABILITIES"),
        parser=_CAPABILITIES,
        meaning="GPU architectures to compile for, such as `8.6`, `sm_90a` or `8.6,9.0`.",
        default_text="the devices present",
    ),
    "compile_timeout_s": _Row(
        variables=("BE_COMPILE_TIMEOUT_S", "BRAINEVENT_COMPILE_TIMEOUT"),
        parser=_SECONDS,
        meaning="A build that runs longer is stopped.",
    ),
    "lock_timeout_s": _Row(
        variables=("BE_LOCK_TIMEOUT_S",),
        parser=_SECONDS,
        meaning="Longest wait for another process that builds the same kernel.",
        default_text="as long as that process lives",
    ),
    "max_jobs": _Row(
        variables=("BE_MAX_JOBS",),
        parser=_COUNT,
        meaning="Most compiler processes at once; `ninja_workers` can only lower it.",
        default_text="one a processor, as memory allows",
    ),
    "compiler_launcher": _Row(
        variables=("BE_COMPILER_LAUNCHER",),
        parser=_COMMAND,
        meaning="Put before every compiler command, such as `ccache` or `sccache`.",
        default_text="none",
    ),
    "verbose": _Row(
        variables=("BE_VERBOSE",),
        parser=_BOOL,
        meaning="Show the commands of every build, their output and why they ran.",
    ),
}
"""By field of `Settings`; of several variables the first that is set counts."""


class Settings(NamedTuple):
    """What the environment sets; `render_settings_docs` describes each field.

    Examples
    --------
    >>> Settings.from_environ({"BE_MAX_JOBS": "4"}).max_jobs
    4
    """

    cache_dir: Path | None = None
    cache_max_size_mib: int = 4096
    cache_max_age_days: int = 90
    prebuilt_dir: Path | None = None
    compute_capabilities: str | None = None
    compile_timeout_s: float = 1800.0
    lock_timeout_s: float | None = None
    max_jobs: int | None = None
    compiler_launcher: tuple[str, ...] = ()
    verbose: bool = False

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings; an empty variable counts as unset, and a variable wins over its aliases. Pure.

        Raises
        ------
        ArgumentError
            A value is malformed: the message names the variable, the value and what is expected.
        """
        values = {name: _read(row, environ) for name, row in TABLE.items()}
        return cls(**{name: value for name, value in values.items() if value is not None})


def render_settings_docs() -> str:
    """The table of settings in Markdown."""
    lines = ["| setting | variable | type | default | what it does |", "|---|---|---|---|---|"]
    for name, row in TABLE.items():
        variables = ", ".join(f"`{variable}`" for variable in row.variables)
        default = row.default_text or f"`{_spell(Settings._field_defaults[name])}`"
        lines.append(f"| `{name}` | {variables} | {row.parser.type_name} | {default} | {row.meaning} |")
    return "\n".join(lines) + "\n"


def _read(row: _Row, environ: Mapping[str, str]) -> Any:
    """One setting's value from the first of its variables that is set; None when none is."""
    for variable in row.variables:
        text = environ.get(variable, "").strip()
        if text:
            try:
                return row.parser.parse(text, environ)
            except ValueError as error:
                raise ArgumentError(
                    f"the environment variable {variable} is {text!r}, expected {error}",
                    hints=(f"unset {variable} to use the default",),
                ) from None
    return None


def _spell(value: object) -> str:
    """A default as it would be written in the environment."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return f"{value:g}" if isinstance(value, float) else str(value)
