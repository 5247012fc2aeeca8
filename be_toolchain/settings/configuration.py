"""A project's file: ``be-toolchain.toml``, or the table ``[tool.be-toolchain]`` of a ``pyproject.toml``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from be_toolchain.errors import PreferenceError
from be_toolchain.machine.store_paths import FILE
from be_toolchain.machine.system import System
from be_toolchain.machine.toml_text import parse_toml
from be_toolchain.machine.trust.safe_folders import are_safe, how_to_vouch
from be_toolchain.terminal import printable_line

PYPROJECT = "pyproject.toml"

_NAME = "be-toolchain"
_TABLE = re.compile(r"""^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*["']?be-toolchain["']?[ \t]*\]""", re.MULTILINE)

PATHS = ("nvcc", "cxx", "host-cxx", "cuda-home")
"""Keys whose value is a program or folder: a name for PATH, or a path, relative ones from the file's folder."""

KEYS = (*PATHS, "prefer", "allow-unsupported-compiler", "remote-cache")
"""All keys of the table."""


class ConfigurationFile(NamedTuple):
    """A project's file before it is parsed: its text is part of a record's key.

    Parameters
    ----------
    path : Path
        The path of the file.
    text : str
        The whole text.
    real : Path, optional
        The target when `path` is a link: relative paths in the file start there.
    """

    path: Path
    text: str
    real: Path | None = None


class PassedOver(NamedTuple):
    """A project's file that is ignored, with the reason.

    Parameters
    ----------
    reason : str
        One line that names the file and says why it is ignored.
    remedy : str
        How to make it count.
    """

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}"


class PassedOverWarning(UserWarning):
    """A project's file is ignored, since another user may have written it, or since it can't be read."""


class Configuration(NamedTuple):
    """The settings of a project's file; empty where the file does not set one.

    Parameters
    ----------
    path : Path, optional
        The file; None when there is none.
    nvcc, cxx, host_cxx, cuda_home : str
        Programs and a folder; see `PATHS`.
    prefer : tuple of str
        Groups of places for nvcc, see `preferences.GROUPS`.
    allow_unsupported_compiler : bool, optional
        None when the file does not say.
    remote_cache : str
        URL of a remote cache.
    """

    path: Path | None = None
    nvcc: str = ""
    cxx: str = ""
    host_cxx: str = ""
    cuda_home: str = ""
    prefer: tuple[str, ...] = ()
    allow_unsupported_compiler: bool | None = None
    remote_cache: str = ""

    def label(self, key: str) -> str:
        """Return the name of a key in messages.

        Examples
        --------
        >>> Configuration(path=Path("/project/pyproject.toml")).label("cxx")
        'cxx in /project/pyproject.toml'
        """
        return f"{key} in {self.path}"


def find_configuration(
    system: System, passed_over: Callable[[PassedOver], object] = lambda _: None
) -> ConfigurationFile | None:
    """Find the nearest project's file, from the working folder upwards, that no other user may have put there.

    In one folder ``be-toolchain.toml`` comes before ``pyproject.toml``. Files further up are not read.

    Parameters
    ----------
    system : System
        The machine.
    passed_over : callable, optional
        Called with each project's file that is ignored.

    Raises
    ------
    PreferenceError
        A ``be-toolchain.toml`` can't be read, so that its settings would be ignored silently.
    """
    if system.cwd is None:
        return None
    for folder in (system.cwd, *system.cwd.parents):
        for name in (FILE, PYPROJECT):
            found = system.stat(f"{folder}/{name}")  # usually there is none, and every load asks
            if found is None or found.is_dir:
                continue
            path = folder / name
            text = system.read_text(path, _LARGEST)
            if name == PYPROJECT and not (text and _has_table(text)):
                continue
            real = system.realpath(path)
            refused = _refuse_file(
                system, path, real, is_large=found.size_bytes > _LARGEST, is_readable=text is not None
            )
            if refused is None:
                # Read again: the text that was read before its owner was checked may be another user's.
                return ConfigurationFile(path, system.read_text(path) or "", None if real == path else real)
            passed_over(refused)
    return None


def warn_of(passed: PassedOver) -> None:
    """Warn in one line, without a line of source; Python shows each text once."""
    import warnings

    seen = globals().setdefault("__warningregistry__", {})
    warnings.warn_explicit(str(passed), PassedOverWarning, "<be_toolchain>", 1, __name__, seen)


_LARGEST = 1 << 20


def _refuse_file(system: System, path: Path, real: Path, *, is_large: bool, is_readable: bool) -> PassedOver | None:
    """Return the reason why a project's file is ignored; None when it is not."""
    problem = system.distrust(path)
    folders = (path.parent, real.parent)
    if problem and not are_safe(system, folders):
        reason = f"{path} is passed over: {problem}"
        return PassedOver(printable_line(reason), printable_line(how_to_vouch(system, folders)))
    if is_large:
        reason, remedy = f"{path} is passed over: it is larger than {_LARGEST >> 20} MiB", "make it smaller"
    elif is_readable:
        return None
    elif real == path:
        raise PreferenceError(f"{path} can't be read", hints=(f"chmod +r {path}, or move it away",))
    else:
        reason, remedy = f"{path} is passed over: it leads to {real}, which can't be read", f"remove {path}"
    return PassedOver(printable_line(reason), printable_line(remedy))


def _has_table(text: str) -> bool:
    """Return whether a ``pyproject.toml`` has the table; a header inside a string is not one."""
    if _NAME not in text or _TABLE.search(text) is None:
        return False
    if '"""' not in text and "'''" not in text:  # without multi-line strings the header is real: it is not parsed
        return True
    try:
        return isinstance(_table_of(parse_toml(text)), dict)
    except ValueError:
        return True


def _table_of(data: dict[str, Any]) -> Any:
    """Return the table in a ``pyproject.toml``, or whatever has its name."""
    tool = data.get("tool")
    return tool.get(_NAME) if isinstance(tool, dict) else None


def parse_configuration(file: ConfigurationFile | None) -> Configuration:
    """Parse the settings in a project's file.

    Raises
    ------
    PreferenceError
        The text is not TOML, a key is unknown, or a value has the wrong type.

    Examples
    --------
    >>> file = ConfigurationFile(path=Path("/project/be-toolchain.toml"), text='nvcc = "cuda/bin/nvcc"')
    >>> parse_configuration(file).nvcc
    '/project/cuda/bin/nvcc'
    """
    if file is None:
        return Configuration()
    try:
        data: Any = parse_toml(file.text)
    except ValueError as error:
        raise PreferenceError(f"{file.path} is no TOML: {error}", hints=("correct the file",)) from None
    table = (_table_of(data) or {}) if file.path.name == PYPROJECT else data
    unknown = [key for key in table if key not in KEYS]
    if unknown:
        raise PreferenceError(
            f"{file.path} has unknown keys for be-toolchain: {', '.join(unknown)}",
            hints=(f"the keys are {', '.join(KEYS)}",),
        )
    return Configuration(
        path=file.path,
        nvcc=_place(file, table, "nvcc"),
        cxx=_place(file, table, "cxx"),
        host_cxx=_place(file, table, "host-cxx"),
        cuda_home=_place(file, table, "cuda-home"),
        prefer=_words(file, table),
        allow_unsupported_compiler=_switch(file, table),
        remote_cache=_text(file, table, "remote-cache").strip(),
    )


def _refuse(file: ConfigurationFile, key: str, value: object, wanted: str) -> PreferenceError:
    """Make the error for a value of the wrong type."""
    return PreferenceError(f"{key} in {file.path} is {value!r}", hints=(f"it has to be {wanted}",))


def _text(file: ConfigurationFile, table: dict[str, Any], key: str) -> str:
    """Read a text; empty without one."""
    value = table.get(key, "")
    if not isinstance(value, str):
        raise _refuse(file, key, value, "a text")
    return value


def _place(file: ConfigurationFile, table: dict[str, Any], key: str) -> str:
    """Read a program or folder, made absolute where it is a path."""
    value = _text(file, table, key)
    relative = ("/" in value and not value.startswith("/")) or (key == "cuda-home" and value and value[0] != "/")
    return str((file.real or file.path).parent / value) if relative else value


def _words(file: ConfigurationFile, table: dict[str, Any]) -> tuple[str, ...]:
    """Read the groups in ``prefer``, a text or a list of texts."""
    value = table.get("prefer", [])
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise _refuse(file, "prefer", value, "a list of texts")
    return tuple(words)


def _switch(file: ConfigurationFile, table: dict[str, Any]) -> bool | None:
    """Read ``allow-unsupported-compiler``."""
    value = table.get("allow-unsupported-compiler")
    if value is not None and not isinstance(value, bool):
        raise _refuse(file, "allow-unsupported-compiler", value, "true or false")
    return value
