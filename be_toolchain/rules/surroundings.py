"""The surroundings of a toolchain: jax's own CUDA, the C library, the cache folder and the temporary folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from be_toolchain.errors import PreferenceError
from be_toolchain.known import catalog
from be_toolchain.known.distributions import JAX_PLUGIN, parse_dist_infos
from be_toolchain.machine.store_paths import KERNELS, usual_cache
from be_toolchain.machine.system import FolderFacts, System
from be_toolchain.settings.table import CACHE_LIMIT_MIB, RUNTIME, read_setting, set_variables

TEMPORARY_VARIABLES = ("TMPDIR", "TEMP", "TMP")

_FAN_DIGITS = 2

_CUDA12 = frozenset((*catalog.CUDA12_WHEELS, "nvidia-cuda-nvrtc-cu12"))


class Cached(NamedTuple):
    """The contents of the cache.

    Parameters
    ----------
    entries, size_bytes : int
        Number of entries, and bytes of their files.
    limit_mib : int
        Size to which builds prune it.
    """

    entries: int
    size_bytes: int
    limit_mib: int


class Surroundings(NamedTuple):
    """The facts about the surroundings that `coherence` judges.

    Parameters
    ----------
    jaxlib : str
        The version of jaxlib; empty when jax is not installed.
    jax_plugins : tuple of (name, version)
        jax's CUDA plugins.
    cuda12_wheels : tuple of (name, version)
        The CUDA 12 wheels with compilers or their parts.
    libc : str
        The C library, as in `System.libc`.
    cache_variable : str
        The variable that names the cache folder; empty if none does. The runtime replaces an unusable default folder
        by a temporary one, but never a folder that was named.
    cache, temporary : FolderFacts
        The folder of built modules, and the folder of the compilers' intermediate files.
    cached : Cached
        What is in the cache.
    """

    jaxlib: str
    jax_plugins: tuple[tuple[str, str], ...]
    cuda12_wheels: tuple[tuple[str, str], ...]
    libc: str
    cache_variable: str
    cache: FolderFacts
    temporary: FolderFacts
    cached: Cached


def probe_surroundings(system: System) -> Surroundings:
    """Examine installed distributions by the names of their records, and folders; nothing is imported."""
    cache_variable, named = find_cache(system.environ)
    cache = system.folder_facts(named)
    kernels = system.folder_facts((cache.own_part or cache.path) / KERNELS)
    cache = cache._replace(readable=cache.readable and kernels.readable)
    installed: dict[str, str] = {}
    for folder in system.site_dirs:
        for name, version in parse_dist_infos(system.list_dir(folder)).items():
            installed.setdefault(name, version)
    return Surroundings(
        jaxlib=installed.get("jaxlib", ""),
        jax_plugins=tuple(sorted(item for item in installed.items() if JAX_PLUGIN.fullmatch(item[0]))),
        cuda12_wheels=tuple(sorted(item for item in installed.items() if item[0] in _CUDA12)),
        libc=system.libc,
        cache_variable=cache_variable,
        cache=cache,
        temporary=system.folder_facts(temporary_dir(system.environ)),
        cached=count_entries(system, cache.own_part or cache.path),
    )


def count_entries(system: System, cache: Path) -> Cached:
    """Count the entries of a cache and their bytes, by names and sizes."""
    count = size = 0
    folder = cache / KERNELS
    for fan in system.list_dir(folder):
        for digest in system.list_dir(folder / fan) if len(fan) == _FAN_DIGITS else ():
            for variant in system.list_dir(folder / fan / digest):
                files = folder / fan / digest / variant
                stamps = [system.stat(files / name) for name in system.list_dir(files)]
                count += 1
                size += sum(stamp.size_bytes for stamp in stamps if stamp is not None and not stamp.is_dir)
    limit_mib = _valid_setting("cache_max_size_mib", system.environ)
    return Cached(count, size, limit_mib or CACHE_LIMIT_MIB)


def _valid_setting(name: str, environ: Mapping[str, str]) -> Any:
    """Read a setting; None where it is not set or not valid."""
    try:
        return read_setting(RUNTIME[name], environ)
    except PreferenceError:
        return None


def find_cache(environ: Mapping[str, str]) -> tuple[str, Path]:
    """Return the variable that names the runtime's cache folder, empty if none does, and the folder.

    A variable with an invalid value is ignored here: it is reported with the other settings.

    Examples
    --------
    >>> find_cache({"HOME": "/home/ada", "BE_CACHE_DIR": "~/kernels"})
    ('BE_CACHE_DIR', PosixPath('/home/ada/kernels'))
    """
    named = _valid_setting("cache_dir", environ)
    if named is None:
        return "", usual_cache(environ)
    return set_variables(RUNTIME["cache_dir"].variables, environ)[0][0], named


def temporary_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder in which gcc and nvcc put their intermediate files."""
    return Path(next((environ[name] for name in TEMPORARY_VARIABLES if environ.get(name)), "/tmp"))  # noqa: S108 - looked at, not written
