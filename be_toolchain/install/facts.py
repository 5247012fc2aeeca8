"""What an installation depends on, gathered from the machine into one value."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

from be_toolchain.find.clang_toolkit import find_clang
from be_toolchain.find.compilers import Compilers
from be_toolchain.find.devices import probe_devices
from be_toolchain.install.managed import Store
from be_toolchain.install.model import Situation
from be_toolchain.install.wheel_files import canonical_name
from be_toolchain.known import catalog
from be_toolchain.machine.own_store import find_store
from be_toolchain.machine.store_paths import INTERRUPTED
from be_toolchain.machine.system import System
from be_toolchain.machine.system_packages import distribution_of
from be_toolchain.settings.preferences import parse_preferences

_CUDA_WHEELS = frozenset(row.pip for row in catalog.COMPONENTS)
_PLUGIN = re.compile(r"jax[-_]cuda(\d+)[-_]plugin-.+\.dist-info")


def gather_situation(system: System, *, site: Path | None = None) -> Situation:
    """Look at the environment, the store, the driver and jax.

    Parameters
    ----------
    system : System
        The machine.
    site : Path, optional
        The folder of packages; the running Python's unless given.

    Returns
    -------
    Situation
    """
    site = site or Path(sysconfig.get_path("purelib"))
    devices = probe_devices(system)
    store = find_store(system).path
    names = system.list_dir(site)
    plugin = next((name for name in sorted(names, reverse=True) if _PLUGIN.fullmatch(name)), "")
    metadata = system.read_text(site / plugin / "METADATA") or "" if plugin else ""
    match = _PLUGIN.fullmatch(plugin)
    probes, clang = find_clang(system, Compilers(system, parse_preferences(system.environ), None).each(for_cuda=True))
    return Situation(
        machine=system.machine,
        site=site,
        store=store,
        is_virtual=len(system.prefixes) > 1,
        is_conda=any(system.is_dir(prefix / "conda-meta") for prefix in system.prefixes[:1]),
        is_external=len(system.prefixes) == 1
        and system.is_file(Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"),
        writable=system.folder_facts(site).writable,
        driver_version=devices.driver_version or "",
        driver_release=devices.driver_release or "",
        jax_cuda=match[1] if match else "",
        minimums=parse_minimums(metadata),
        present=parse_present(names),
        interrupted=_interrupted(system.read_text(site / INTERRUPTED)),
        stored=tuple(row.name for row in Store(store).list()) if store is not None else (),
        clang=str(clang.compiler.path) if clang else "",
        clang_version=clang.compiler.version if clang else "",
        clang_problem=next((probe.reason for probe in probes if probe.reason.startswith("clang ")), "")
        if clang is None
        else "",
        distribution=distribution_of(system),
    )


def parse_minimums(metadata: str) -> tuple[tuple[str, str], ...]:
    """What the METADATA of jax's CUDA plugin asks of CUDA wheels.

    Examples
    --------
    >>> parse_minimums('Requires-Dist: nvidia-cuda-nvcc>=13.0.48; sys_platform == "linux" and extra == "with-cuda"')
    (('nvidia-cuda-nvcc', '13.0.48'),)
    """
    rows = re.findall(r"^Requires-Dist: ([A-Za-z0-9_.-]+) *\(?[^;\n]*>= *([0-9.]+)", metadata, re.MULTILINE)
    return tuple((canonical_name(name), version) for name, version in rows if canonical_name(name) in _CUDA_WHEELS)


def parse_present(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The CUDA wheels among the names in a site-packages folder.

    Examples
    --------
    >>> parse_present(("nvidia_nvvm-13.0.88.dist-info", "numpy-2.3.0.dist-info"))
    (('nvidia-nvvm', '13.0.88'),)
    """
    found = (name.removesuffix(".dist-info").rpartition("-") for name in names if name.endswith(".dist-info"))
    rows = ((canonical_name(name), version) for name, _, version in found)
    return tuple(row for row in rows if row[0] in _CUDA_WHEELS)


def _interrupted(text: str | None) -> str:
    """The version in an interrupted exchange's marker; any other text means that one was interrupted all the same."""
    if text is None:
        return ""
    match = re.search(r'"version": "([0-9.]+)"', text)
    return match[1] if match else "unknown"
