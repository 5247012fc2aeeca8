"""The surroundings of a toolchain: jax's own CUDA, the C library, the cache folder and the temporary folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from be_toolchain.errors import PreferenceError
from be_toolchain.known import catalog
from be_toolchain.known.distributions import JAX_PLUGIN, parse_dist_infos
from be_toolchain.machine.store_paths import usual_cache
from be_toolchain.machine.system import FolderFacts, System
from be_toolchain.settings.table import RUNTIME, read_setting, set_variables

TEMPORARY_VARIABLES = ("TMPDIR", "TEMP", "TMP")

_CUDA12 = frozenset((*catalog.CUDA12_WHEELS, "nvidia-cuda-nvrtc-cu12"))


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
    """

    jaxlib: str
    jax_plugins: tuple[tuple[str, str], ...]
    cuda12_wheels: tuple[tuple[str, str], ...]
    libc: str
    cache_variable: str
    cache: FolderFacts
    temporary: FolderFacts


def probe_surroundings(system: System) -> Surroundings:
    """Examine installed distributions by the names of their records, and two folders; nothing is imported."""
    cache_variable, cache = find_cache(system.environ)
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
        cache=system.folder_facts(cache),
        temporary=system.folder_facts(temporary_dir(system.environ)),
    )


def find_cache(environ: Mapping[str, str]) -> tuple[str, Path]:
    """Return the variable that names the runtime's cache folder, empty if none does, and the folder.

    A variable with an invalid value is ignored here: it is reported with the other settings.

    Examples
    --------
    >>> find_cache({"HOME": "/home/ada", "BE_CACHE_DIR": "~/kernels"})
    ('BE_CACHE_DIR', PosixPath('/home/ada/kernels'))
    """
    setting = RUNTIME["cache_dir"]
    try:
        named = read_setting(setting, environ)
    except PreferenceError:
        named = None
    if named is None:
        return "", usual_cache(environ)
    return set_variables(setting.variables, environ)[0][0], named


def temporary_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder in which gcc and nvcc put their intermediate files."""
    return Path(next((environ[name] for name in TEMPORARY_VARIABLES if environ.get(name)), "/tmp"))  # noqa: S108 - looked at, not written
