"""Every setting of be_runtime that comes from the environment: one table, which also documents itself.

This module alone reads the environment, and only from the mapping it is given.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from be_runtime.errors import ArgumentError

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class _Parser:
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


def _setting(
    variable: str, *aliases: str, of: _Parser, default: object, meaning: str, default_text: str | None = None
) -> Any:
    """A row of the table; typed Any so that it can stand where a default does."""
    metadata = {
        "variable": variable,
        "aliases": aliases,
        "parser": of,
        "meaning": meaning,
        "default_text": default_text,
    }
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment sets; `render_settings_docs` describes each field.

    Examples
    --------
    >>> Settings.from_environ({"BE_MAX_JOBS": "4"}).max_jobs
    4
    """

    cache_dir: Path | None = _setting(  # noqa: RUF009 - it makes a field
        "BE_CACHE_DIR",
        "BRAINEVENT_CACHE_DIR",
        of=_PATH,
        default=None,
        default_text="the user's cache folder",
        meaning="Where compiled kernels are kept. It must be yours, writable, and not mounted noexec.",
    )
    cache_max_size_mib: int = _setting(
        "BE_CACHE_MAX_SIZE_MIB",
        of=_COUNT,
        default=4096,
        meaning="The longest unused entries are removed when the cache grows beyond this.",
    )
    cache_max_age_days: int = _setting(
        "BE_CACHE_MAX_AGE_DAYS",
        of=_COUNT,
        default=90,
        meaning="Entries that were not used for this long are removed.",
    )
    compute_capabilities: str | None = _setting(
        "BE_COMPUTE_CAPABILITIES",
        "BRAINEVENT_COMPUTE_CAPABILITIES",
        of=_CAPABILITIES,
        default=None,
        default_text="the devices present",
        meaning="GPU architectures to compile for, such as `8.6`, `sm_90a` or `8.6,9.0`.",
    )
    compile_timeout_s: float = _setting(
        "BE_COMPILE_TIMEOUT_S",
        "BRAINEVENT_COMPILE_TIMEOUT",
        of=_SECONDS,
        default=1800.0,
        meaning="A build that runs longer is stopped.",
    )
    lock_timeout_s: float | None = _setting(
        "BE_LOCK_TIMEOUT_S",
        of=_SECONDS,
        default=None,
        default_text="as long as that process lives",
        meaning="Longest wait for another process that builds the same kernel.",
    )
    max_jobs: int | None = _setting(
        "BE_MAX_JOBS",
        of=_COUNT,
        default=None,
        default_text="one a processor",
        meaning="Most compiler processes at once; `ninja_workers` can only lower it.",
    )
    compiler_launcher: tuple[str, ...] = _setting(
        "BE_COMPILER_LAUNCHER",
        of=_COMMAND,
        default=(),
        default_text="none",
        meaning="Put before every compiler command, such as `ccache` or `sccache`.",
    )
    verbose: bool = _setting(
        "BE_VERBOSE",
        of=_BOOL,
        default=False,
        meaning="Show the commands of every build, their output and why they ran.",
    )

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings; an empty variable counts as unset, and a variable wins over its aliases. Pure.

        Raises
        ------
        ArgumentError
            A value is malformed: the message names the variable, the value and what is expected.
        """
        values = {row.name: _read(row.metadata, environ) for row in fields(cls)}
        return cls(**{name: value for name, value in values.items() if value is not None})


def render_settings_docs() -> str:
    """The table of settings in Markdown."""
    lines = ["| setting | variable | type | default | what it does |", "|---|---|---|---|---|"]
    for row in fields(Settings):
        variables = ", ".join(f"`{name}`" for name in (row.metadata["variable"], *row.metadata["aliases"]))
        default = row.metadata["default_text"] or f"`{_spell(row.default)}`"
        kind = row.metadata["parser"].type_name
        lines.append(f"| `{row.name}` | {variables} | {kind} | {default} | {row.metadata['meaning']} |")
    return "\n".join(lines) + "\n"


def _read(metadata: Mapping[str, Any], environ: Mapping[str, str]) -> Any:
    """One setting's value from the first of its variables that is set; None when none is."""
    for variable in (metadata["variable"], *metadata["aliases"]):
        text = environ.get(variable, "").strip()
        if text:
            try:
                return metadata["parser"].parse(text, environ)
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
