"""Settings of both packages: environment variables, a project's settings file, and the preferences that they make."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from be_toolchain.arch import ACCEPTED_SPELLINGS, parse_archs
from be_toolchain.errors import ArchError, PreferenceError
from be_toolchain.known import layouts
from be_toolchain.machine import trust
from be_toolchain.machine.files import ENV_STORE, FILE, STORE_VARIABLES, parse_toml
from be_toolchain.machine.system import System
from be_toolchain.named import NamedTuple
from be_toolchain.terminal import printable_line, shown_url

JIT_MODES = ("never", "missing", "always")
"""Values of `BE_JIT`."""

AUTOTUNE_MODES = ("off", "cached", "on")
"""Values of `BE_AUTOTUNE`."""

SANITIZERS = ("address", "undefined", "thread", "device")
"""Values of `BE_SANITIZE`."""

ACTIVE_EVENTS = ("nonzero", "positive")
"""Values of `BE_ACTIVE`."""

CACHE_LIMIT_MIB = 4096
"""The default of `BE_CACHE_MAX_SIZE_MIB`."""

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


class Setting(NamedTuple):
    """One setting.

    Parameters
    ----------
    variables : tuple of str
        Its variable and the aliases; the first variable that is set counts.
    parse : callable
        The parser, which takes the text and the environment. Its ValueError names the expected form.
    """

    variables: tuple[str, ...]
    parse: Callable[[str, Mapping[str, str]], Any]

    @property
    def variable(self) -> str:
        """The variable's name, without the aliases."""
        return self.variables[0]


def set_variables(variables: tuple[str, ...], environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables that are set, each with its value; an empty or blank variable is not set.

    Examples
    --------
    >>> set_variables(("BE_CXX", "CXX"), {"BE_CXX": "", "CXX": "g++ "})
    (('CXX', 'g++'),)
    """
    found = ((name, environ.get(name, "").strip()) for name in variables)
    return tuple((name, text) for name, text in found if text)


def read_setting(setting: Setting, environ: Mapping[str, str]) -> Any:
    """Read the value of a setting; None if none of its variables is set.

    Raises
    ------
    PreferenceError
        The text is not valid for the setting.

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
            raise PreferenceError(f"{name} is {shown_url(text)!r}, expected {error}", hints=hints) from None
    return None


def _take_text(text: str, _: Mapping[str, str]) -> str:
    """Accept any text; its user parses it."""
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
    """Check that a text has the form of a remote cache's URL; raise ValueError with the expected form if not."""
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
    "active": Setting(("BE_ACTIVE",), _one_of(ACTIVE_EVENTS)),
    "debug": Setting(("BE_DEBUG",), _parse_checks),
    "autotune": Setting(("BE_AUTOTUNE",), _one_of(AUTOTUNE_MODES)),
    "sanitize": Setting(("BE_SANITIZE",), _parse_sanitizers),
    "verbose": Setting(("BE_VERBOSE",), _parse_flag),
    "trace": Setting(("BE_TRACE",), _parse_path),
}
"""The settings that be_runtime reads at each load, by field of its `Settings`, which has the defaults."""

NVCC = Setting(("BE_NVCC", "BRAINEVENT_NVCC_PATH"), _take_text)
PREFER = Setting(("BE_NVCC_PREFER", "BRAINEVENT_NVCC_PREFER"), _take_text)
STORE = Setting((ENV_STORE,), _take_text)
SAFE = Setting((trust.ENV_SAFE,), _take_text)
CXX = Setting(("BE_CXX",), _take_text)
ALLOW_UNSUPPORTED = Setting(("BE_ALLOW_UNSUPPORTED_COMPILER", "BRAINEVENT_ALLOW_UNSUPPORTED_COMPILER"), _parse_flag)
HOMES = Setting(("CUDA_HOME", "CUDA_PATH"), _take_text)
PLAIN_CXX = Setting(("CXX",), _take_text)
CUDA_HOSTS = Setting(("NVCC_CCBIN", "CUDAHOSTCXX"), _take_text)
HIPCC = Setting(("BE_HIPCC",), _take_text)

SEARCH = (NVCC, PREFER, STORE, SAFE, CXX, ALLOW_UNSUPPORTED, HOMES, PLAIN_CXX, CUDA_HOSTS, HIPCC)
"""The settings that steer the search for compilers."""

RECORD_VARIABLES = tuple(
    sorted(
        {
            *(name for row in SEARCH for name in row.variables),
            *STORE_VARIABLES,
            *layouts.PLACE_VARIABLES,
            *layouts.COMPILE_VARIABLES,
        }
    )
)
"""All variables that a recorded answer depends on: they steer the search, or the tools that answer it."""

PYPROJECT = "pyproject.toml"

_NAME = "be-toolchain"
_TABLE = r"""(?m)^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*["']?be-toolchain["']?[ \t]*\]"""

PATHS = ("nvcc", "cxx", "host-cxx", "cuda-home")
"""Keys whose value is a program or a folder: a name on PATH, or a path, which may be relative to the file's folder."""

KEYS = (*PATHS, "prefer", "allow-unsupported-compiler", "remote-cache")
"""All keys of the table."""


class ConfigurationFile(NamedTuple):
    """A project's settings file before it is parsed. Its text is part of a record's key.

    Parameters
    ----------
    path : Path
        The path of the file.
    text : str
        The whole text.
    real : Path, optional
        The target if `path` is a link. Relative paths in the file are relative to its folder.
    """

    path: Path
    text: str
    real: Path | None = None


class PassedOver(NamedTuple):
    """A project's settings file that is ignored, with the reason.

    Parameters
    ----------
    reason : str
        One line with the file and the reason why it is ignored.
    remedy : str
        The way to make the file count.
    """

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}"


class PassedOverWarning(UserWarning):
    """A project's settings file is ignored because another user may have written it or because it can't be read."""


class Configuration(NamedTuple):
    """The settings of a project's settings file; empty if the file does not set them.

    Parameters
    ----------
    path : Path, optional
        The file; None without one.
    nvcc, cxx, host_cxx, cuda_home : str
        Programs and a folder; see `PATHS`.
    prefer : tuple of str
        Groups of places for nvcc, see `GROUPS`.
    allow_unsupported_compiler : bool, optional
        The value in the file; None without one.
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
    """Find the nearest trusted project's settings file, from the working folder upwards.

    In a folder, ``be-toolchain.toml`` comes before ``pyproject.toml``. Files further up are not read.

    Parameters
    ----------
    system : System
        The machine.
    passed_over : callable, optional
        Called with each project's settings file that is ignored.

    Raises
    ------
    PreferenceError
        A ``be-toolchain.toml`` can't be read.
    """
    if system.cwd is None:
        return None
    for folder in (system.cwd, *system.cwd.parents):
        for name in (FILE, PYPROJECT):
            found = system.stat(f"{folder}/{name}")  # first, since every load asks, and usually there is no file
            if found is None or found.is_dir:
                continue
            path = folder / name
            text = system.read_text(path, _LARGEST)
            if name == PYPROJECT and not (text and _has_table(text)):
                continue
            real = system.realpath(path)
            refused = _refuse_file(system, path, real, found.size_bytes, text)
            if refused is None:
                # Read again, since another user may have written the text that was read before the owner was checked.
                return ConfigurationFile(path, system.read_text(path) or "", None if real == path else real)
            passed_over(refused)
    return None


def warn_of(passed: PassedOver) -> None:
    """Warn in one line, without a line of source; Python shows each text once."""
    import warnings

    seen = globals().setdefault("__warningregistry__", {})
    warnings.warn_explicit(str(passed), PassedOverWarning, "<be_toolchain>", 1, __name__, seen)


_LARGEST = 1 << 20


def _refuse_file(system: System, path: Path, real: Path, size_bytes: int, text: str | None) -> PassedOver | None:
    """Return the reason why a project's settings file is ignored; None if it is used."""
    problem = system.distrust(path)
    folders = (path.parent, real.parent)
    if problem and not trust.are_safe(system, folders):
        remedy = trust.how_to_vouch(system, folders)
    elif size_bytes > _LARGEST:
        problem, remedy = f"it is larger than {_LARGEST >> 20} MiB", "make it smaller"
    elif text is not None:
        return None
    elif real == path:
        raise PreferenceError(f"{path} can't be read", hints=(f"chmod +r {path}, or move it away",))
    else:
        problem, remedy = f"it leads to {real}, which can't be read", f"remove {path}"
    return PassedOver(printable_line(f"{path} is ignored: {problem}"), printable_line(remedy))


def _has_table(text: str) -> bool:
    """Return whether a ``pyproject.toml`` has the table; a header inside of a string does not count."""
    if _NAME not in text or re.search(_TABLE, text) is None:
        return False
    if '"""' not in text and "'''" not in text:  # without multi-line strings the header is real: it is not parsed
        return True
    try:
        return isinstance(_table_of(parse_toml(text)), dict)
    except ValueError:
        return True


def _table_of(data: dict[str, Any]) -> Any:
    """Return the value of the table's name in a ``pyproject.toml``."""
    tool = data.get("tool")
    return tool.get(_NAME) if isinstance(tool, dict) else None


def parse_configuration(file: ConfigurationFile | None) -> Configuration:
    """Parse the settings in a project's settings file.

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
        raise PreferenceError(f"{file.path} is not TOML: {error}", hints=("correct the file",)) from None
    table = (_table_of(data) or {}) if file.path.name == PYPROJECT else data
    unknown = [key for key in table if key not in KEYS]
    if unknown:
        hints = (f"the keys are {', '.join(KEYS)}",)
        raise PreferenceError(f"{file.path} has unknown keys for be-toolchain: {', '.join(unknown)}", hints=hints)
    fields = {key.replace("-", "_"): _read_value(file, key, value) for key, value in table.items()}
    return Configuration(path=file.path, **fields)


def _read_value(file: ConfigurationFile, key: str, value: Any) -> Any:
    """Check the type of a key's value, and make a path in it absolute."""
    if key == "prefer":
        words = [value] if isinstance(value, str) else value
        is_valid = isinstance(words, list) and all(isinstance(word, str) for word in words)
        wanted = "a list of strings"
    elif key == "allow-unsupported-compiler":
        is_valid, wanted = isinstance(value, bool), "true or false"
    else:
        is_valid, wanted = isinstance(value, str), "a text"
    if not is_valid:
        raise PreferenceError(f"{key} in {file.path} is {value!r}", hints=(f"it must be {wanted}",))
    if key in PATHS and value and value[0] != "/" and ("/" in value or key == "cuda-home"):
        return str((file.real or file.path).parent / value)
    return tuple(words) if key == "prefer" else value.strip() if key == "remote-cache" else value


GROUPS = ("env", "conda", "pip", "managed", "path", "system")
"""The groups of places for a CUDA toolkit, in the default order of the search.

``env`` is CUDA_HOME and CUDA_PATH, ``conda`` the conda prefix, ``pip`` NVIDIA's wheels,
``managed`` the toolchains that `install` keeps side by side, ``path`` PATH, and ``system``
the variables of environment modules and the well-known folders.
"""


class Preferences(NamedTuple):
    """The settings that steer the search, each with its name. A variable takes precedence over a file.

    Parameters
    ----------
    nvcc, cxx : (variable, value), optional
        The only program that may be used.
    homes : tuple of (variable, value)
        Roots of CUDA toolkits.
    modules : tuple of (variable, value)
        Roots set by environment modules.
    groups : tuple of str
        All of `GROUPS`, preferred ones first.
    cuda_hosts : tuple of (variable, value)
        C++ compilers for nvcc, highest precedence first.
    plain_cxx : (variable, value), optional
        The value of ``CXX``.
    conda_prefix : str
        ``CONDA_PREFIX``, or empty.
    allow_unsupported_compiler : bool
        Let nvcc use a host compiler that it does not know.
    """

    nvcc: tuple[str, str] | None = None
    cxx: tuple[str, str] | None = None
    homes: tuple[tuple[str, str], ...] = ()
    modules: tuple[tuple[str, str], ...] = ()
    groups: tuple[str, ...] = GROUPS
    cuda_hosts: tuple[tuple[str, str], ...] = ()
    plain_cxx: tuple[str, str] | None = None
    conda_prefix: str = ""
    allow_unsupported_compiler: bool = False

    @property
    def compiler_names(self) -> frozenset[str]:
        """The variables, and keys of a file, that name a C++ compiler."""
        return frozenset(name for name, _ in filter(None, (*self.cuda_hosts, self.plain_cxx, self.cxx)))


def parse_preferences(environ: Mapping[str, str], configuration: Configuration | None = None) -> Preferences:
    """Read the variables that steer the search, and below them a project's settings file.

    Parameters
    ----------
    environ : Mapping of str to str
        Environment variables; empty ones count as unset.
    configuration : Configuration, optional
        The settings of a project's settings file.

    Returns
    -------
    Preferences

    Raises
    ------
    PreferenceError
        ``BE_NVCC_PREFER``, ``BE_ALLOW_UNSUPPORTED_COMPILER`` or ``prefer`` has an invalid value.

    Examples
    --------
    >>> parse_preferences({"BE_NVCC_PREFER": "system,pip"}).groups
    ('path', 'system', 'pip', 'env', 'conda', 'managed')
    """
    file = configuration or Configuration()
    # Appended flags override the command line of nvcc, prepended ones don't.
    flags = ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")
    flagged = tuple((name, path) for name in flags if (path := parse_ccbin(environ.get(name, ""))))
    allowed = read_setting(ALLOW_UNSUPPORTED, environ)
    return Preferences(
        nvcc=next(iter(_named(NVCC, environ, file, "nvcc", file.nvcc)), None),
        cxx=next(iter(_named(CXX, environ, file, "cxx", file.cxx)), None),
        homes=_named(HOMES, environ, file, "cuda-home", file.cuda_home),
        modules=set_variables(layouts.MODULE_VARIABLES, environ),
        groups=_ordered_groups(_named(PREFER, environ, file, "prefer", ",".join(file.prefer))),
        cuda_hosts=flagged + _named(CUDA_HOSTS, environ, file, "host-cxx", file.host_cxx),
        plain_cxx=next(iter(set_variables(PLAIN_CXX.variables, environ)), None),
        conda_prefix=environ.get("CONDA_PREFIX", "").strip(),
        allow_unsupported_compiler=(file.allow_unsupported_compiler or False) if allowed is None else allowed,
    )


def _named(
    setting: Setting, environ: Mapping[str, str], file: Configuration, key: str, value: str
) -> tuple[tuple[str, str], ...]:
    """Return the variables of a setting that are set, then the key of the settings file, each with its value."""
    return set_variables(setting.variables, environ) + (((file.label(key), value),) if value else ())


def _ordered_groups(preferred: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Order all groups, preferred ones first; ``system`` is everything outside Python's environment but CUDA_HOME."""
    named: list[str] = []
    for name, value in preferred[:1]:
        for word in value.lower().replace(",", " ").split():
            if word not in GROUPS:
                hints = (f"write some of these, with commas between: {', '.join(GROUPS)}",)
                raise PreferenceError(f"{name} is {value!r}: {word!r} is not a place to search for nvcc", hints=hints)
            named.extend(("path", "system") if word == "system" else (word,))
    return tuple(dict.fromkeys((*named, *GROUPS)))


def parse_ccbin(flags: str) -> str:
    """Return the last host compiler named in a text of nvcc flags; empty when there is none.

    Examples
    --------
    >>> parse_ccbin("-O2 -ccbin=/usr/bin/g++-12")
    '/usr/bin/g++-12'
    >>> parse_ccbin("--compiler-bindir '/opt/my gcc/bin/g++' -O2")
    '/opt/my gcc/bin/g++'
    """
    try:
        words = shlex.split(flags)
    except ValueError:  # a quote without its end
        words = flags.split()
    found = ""
    for word, after in zip(words, [*words[1:], ""], strict=False):
        for flag in ("-ccbin", "--compiler-bindir"):
            if word == flag:
                found = after
            elif word.startswith(f"{flag}="):
                found = word.removeprefix(f"{flag}=")
    return found
