"""The ordered steps of the search for a CUDA toolkit. They yield candidates, and probes with reasons for misses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from be_toolchain import errors, settings
from be_toolchain.find.compilers import Candidate, Found, conda_prefixes
from be_toolchain.known import layouts
from be_toolchain.known.versions import parse_conda_meta, parse_dpkg_status, parse_version_json, version_key
from be_toolchain.machine.files import (
    CUDA_PREFIX,
    ENV_STORE,
    OTHER_STORE,
    SELECTED,
    distrust_managed,
    find_managed,
    find_store,
    misnamed_store,
)
from be_toolchain.machine.system import System

DPKG_STATUS = Path("/var/lib/dpkg/status")

Step = Callable[[System, settings.Preferences], Iterator[Found]]


def recorded_versions(system: System, root: Path, layout: layouts.Layout) -> dict[str, tuple[str, str]]:
    """Read the version of each component from the installers' records below a toolkit's root.

    Parameters
    ----------
    system : System
        The machine.
    root : Path
        The root of the toolkit.
    layout : Layout
        The layout of the toolkit, which determines the order of the records.

    Returns
    -------
    dict
        Component to (version, source); a component without a record is left out.
    """
    found: dict[str, tuple[str, str]] = {}
    for versions, packaging, source in _records(system, root, layout):
        for row in layouts.COMPONENTS:
            names = (row.pip,) if packaging == "pip" else getattr(row, packaging)
            version = next((versions[name] for name in names if name in versions), "")
            if version:
                found.setdefault(row.name, (version, source))
    return found


def _records(system: System, root: Path, layout: layouts.Layout) -> Iterator[tuple[dict[str, str], str, str]]:
    """Yield each record: its versions, the field of `ComponentRow` with its names, and its source in messages."""
    if layout.name == "pip":
        yield layouts.parse_dist_infos(system.list_dir(root.parent.parent)), "pip", "dist-info"
        return
    if layout.name == "conda":
        yield parse_conda_meta(system.list_dir(root / "conda-meta")), "conda", "conda-meta"
        return
    if layout.name == "debian":
        text = system.read_text(DPKG_STATUS, limit_bytes=64 << 20) or ""
        yield parse_dpkg_status(text), "debian", "dpkg"
    text = system.read_text(root / "version.json") or ""
    yield parse_version_json(text), "version_json", "version.json"
    # A toolkit that was put together from wheels keeps their records inside.
    yield layouts.parse_dist_infos(system.list_dir(root / "dist-info")), "pip", "dist-info"


def _in_root(system: System, found_via: str, root: Path) -> Found:
    """Return the nvcc below a root folder, or the reason why there is none."""
    nvcc = root / "bin" / "nvcc"
    if system.is_program(nvcc):
        return Candidate(nvcc, found_via)
    if system.is_file(nvcc):
        return errors.Probe(found_via, str(nvcc), "not executable")
    if system.is_dir(root):
        reason = "no bin/nvcc in it" if system.list_dir(root) else "it is empty, or can't be read"
    else:
        reason = "a file, not the folder of a toolkit" if system.is_file(root) else "no such folder"
    return errors.Probe(found_via, str(root), reason)


def _correction(system: System, name: str, place: Path) -> str:
    """Return the hint for a variable that does not name a toolkit; often it names a folder inside one."""
    above = {"bin": place.parent, "nvcc": place.parent.parent}.get(place.name)
    if above is not None and system.is_program(above / "bin" / "nvcc"):
        return f"set {name} to the folder of the toolkit: {above}"
    return errors.correct(name)


def _from_variable(system: System, name: str, value: str) -> Iterator[Found]:
    """Search the roots in a variable; a stray separator, as in ``:/usr/local/cuda``, is ignored."""
    for entry in dict.fromkeys(word.strip() for word in value.split(":")):
        if entry.startswith("/"):
            found = _in_root(system, name, Path(entry))
            hint = _correction(system, name, Path(entry))
            yield found._replace(hint=hint) if isinstance(found, errors.Probe) else found
        elif entry:
            yield errors.Probe(name, entry, "not an absolute path", errors.correct(name))


def from_homes(system: System, preferences: settings.Preferences) -> Iterator[Found]:
    """Search CUDA_HOME, then CUDA_PATH."""
    for name in settings.HOMES.variables:
        if name not in dict(preferences.homes):
            yield errors.Probe(name, "environment", "not set")
    for name, value in preferences.homes:
        yield from _from_variable(system, name, value)


def from_conda(system: System, preferences: settings.Preferences) -> Iterator[Found]:
    """Search the running Python's conda prefix, then an activated one."""
    activated = Path(preferences.conda_prefix) if preferences.conda_prefix.startswith("/") else None
    prefixes = dict.fromkeys((*conda_prefixes(system), *((activated,) if activated else ())))
    if not prefixes:
        yield errors.Probe("conda", str(system.prefixes[0]), "Python runs in no conda environment")
    for prefix in prefixes:
        yield _in_root(system, "conda", prefix)


def from_pip(system: System, _: settings.Preferences) -> Iterator[Found]:
    """Search NVIDIA's wheels on Python's path."""
    for folder in system.site_dirs:
        roots = [folder / below for below in layouts.PIP_ROOTS if system.is_dir(folder / below)]
        for root in roots:
            yield _in_root(system, "pip wheels", root)
        old = folder / layouts.PIP_NVCC_WITHOUT_COMPILER
        if system.is_dir(old):
            reason = "the CUDA 12 wheel nvidia-cuda-nvcc-cu12 holds ptxas and libdevice but no nvcc"
            yield errors.Probe("pip wheels", str(old), reason)
        elif not roots:
            yield errors.Probe("pip wheels", str(folder), "no CUDA compiler wheels in it")


def _in_store(system: System, found_via: str, name: str) -> Iterator[Found]:
    """Find one managed toolchain; an unfinished folder has no manifest."""
    store = find_store(system).path
    assert store is not None
    reason = distrust_managed(system, store / name)
    if reason:
        hint = "python -m be_toolchain use none" if found_via == _USE else ""
        yield errors.Probe(found_via, str(store / name), reason, hint)
        return
    roots = [store / name / below for below in layouts.PIP_ROOTS if system.is_dir(store / name / below)]
    for root in roots:
        yield _in_root(system, found_via, root)
    joined = store / name / layouts.CLANG_ROOT
    if system.is_dir(joined):
        yield Candidate(joined, found_via, is_joined=True)


_MANAGED, _USE = layouts.MANAGED_STEPS


def from_selected(system: System, preferences: settings.Preferences) -> Iterator[Found]:
    """Find the managed toolchain that ``use`` selected, unless a setting changes the order of the groups."""
    store = find_store(system)
    name = (system.read_text(store.path / SELECTED) or "").strip() if store.path and not store.problem else ""
    if preferences.groups == settings.GROUPS and name.startswith(CUDA_PREFIX) and "/" not in name:
        yield from _in_store(system, _USE, name)


def from_managed(system: System, _: settings.Preferences) -> Iterator[Found]:
    """Find the managed toolchains of this user, newest first."""
    misnamed = misnamed_store(system.environ)
    if misnamed:
        yield errors.Probe("managed", ENV_STORE, misnamed, errors.correct(ENV_STORE))
    store = find_store(system)
    names = find_managed(system, CUDA_PREFIX)
    if store.problem:
        yield errors.Probe("managed", str(store.path), store.problem, OTHER_STORE)
    elif not names:
        yield errors.Probe("managed", str(store.path or "store"), "no managed CUDA toolkit")
    for name in names:
        yield from _in_store(system, _MANAGED, name)


def from_path(system: System, _: settings.Preferences) -> Iterator[Found]:
    """Find every nvcc on PATH, since the first one may lack its headers."""
    found = [folder / "nvcc" for folder in system.path_dirs if system.is_program(folder / "nvcc")]
    if not found:
        yield errors.Probe("PATH", "nvcc", "not on PATH")
    for nvcc in found:
        yield Candidate(nvcc, "PATH")


def from_modules(system: System, preferences: settings.Preferences) -> Iterator[Found]:
    """Search the variables of environment modules."""
    for name, value in preferences.modules:
        yield from _from_variable(system, name, value)


def from_well_known(system: System, _: settings.Preferences) -> Iterator[Found]:
    """Search the folders in which installers and distributions put toolkits, newest first."""
    for text in layouts.SYSTEM_ROOTS:
        yield _in_root(system, "well-known folder", Path(text))
    for parent, prefix in layouts.VERSIONED_ROOTS:
        names = [name for name in system.list_dir(Path(parent)) if name.startswith(prefix)]
        for name in sorted(names, key=version_key, reverse=True):
            yield _in_root(system, "well-known folder", Path(parent) / name)


def from_hpc_sdk(system: System, _: settings.Preferences) -> Iterator[Found]:
    """Search the toolkits inside NVIDIA's HPC SDK, newest first."""
    base = Path(layouts.HPC_SDK_ROOT)
    archs = [base / name for name in system.list_dir(base) if name.startswith("Linux_")]
    folders = [arch / name / "cuda" for arch in archs for name in system.list_dir(arch) if name[:1].isdigit()]
    roots = [folder / name for folder in folders for name in system.list_dir(folder) if name[:1].isdigit()]
    for root in sorted(roots, key=lambda root: (version_key(root.name), str(root)), reverse=True):
        yield _in_root(system, "HPC SDK", root)


STEPS: dict[str, tuple[Step, ...]] = {
    "env": (from_homes,),
    "conda": (from_conda,),
    "pip": (from_pip,),
    "managed": (from_managed,),
    "path": (from_path,),
    "system": (from_modules, from_well_known, from_hpc_sdk),
}
"""The steps of each group of `settings.GROUPS`."""

_JOINED = Path(layouts.CLANG_ROOT).parts


def who_named(requested: Path | None, preferred: tuple[str, str] | None, label: str) -> tuple[str, str] | None:
    """Return the argument or setting that names the only allowed program, and the program; None without one."""
    return (label, str(requested)) if requested is not None else preferred


def toolkit_candidates(system: System, preferences: settings.Preferences, requested: Path | None) -> Iterator[Found]:
    """Yield every place for a CUDA toolkit, best first; only the named nvcc if the caller or ``BE_NVCC`` names one."""
    named = who_named(requested, preferences.nvcc, "argument nvcc")
    if named is None:
        yield from from_selected(system, preferences)
        for group in preferences.groups:
            for step in STEPS[group]:
                yield from step(system, preferences)
        return
    found_via, value = named
    place = system.which(value)
    root = Path(value)
    if place is None and root.is_absolute() and system.is_program(root / "bin" / "nvcc"):
        place = root / "bin" / "nvcc"
    if place is not None:
        yield Candidate(place, found_via)
    elif root.is_absolute() and root.parts[-2:] == _JOINED and system.is_program(root / "bin" / "ptxas"):
        yield Candidate(root, found_via, is_joined=True)
    else:
        reason = "no bin/nvcc in this folder" if root.is_absolute() and system.is_dir(root) else "no such program"
        yield errors.Probe(found_via, value, reason)
