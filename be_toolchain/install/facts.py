"""The facts that an installation depends on, gathered from the machine into one value."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from be_toolchain.find.clang import find_clang
from be_toolchain.find.compilers import Compilers
from be_toolchain.find.devices import probe_devices
from be_toolchain.install.managed import ManagedStore
from be_toolchain.install.plan import Situation
from be_toolchain.known import layouts
from be_toolchain.known.layouts import JAX_PLUGIN, normalize, parse_dist_info, parse_requirement
from be_toolchain.machine.files import INTERRUPTED, find_store
from be_toolchain.machine.system import System, distribution_of
from be_toolchain.settings import parse_preferences

_CUDA_WHEELS = frozenset(row.pip for row in layouts.COMPONENTS)


def gather_situation(system: System, *, site: Path | None = None) -> Situation:
    """Gather the facts about the environment, the store, the driver and jax.

    Parameters
    ----------
    system : System
        The machine.
    site : Path, optional
        The site-packages folder; the running Python's unless given.

    Returns
    -------
    Situation
    """
    site = site or Path(sysconfig.get_path("purelib"))
    devices = probe_devices(system)
    store = find_store(system).path
    names = system.list_dir(site)
    jax_cuda, metadata = _jax_plugin(system, site, names)
    marker = system.read_text(site / INTERRUPTED)
    version = re.search(r'"version": "([0-9.]+)"', marker or "")
    interrupted = version[1] if version else "" if marker is None else "unknown"
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
        jax_cuda=jax_cuda,
        minimums=parse_minimums(metadata),
        present=parse_present(names),
        interrupted=interrupted,
        stored=tuple(row.name for row in ManagedStore(store).list()) if store is not None else (),
        clang=str(clang.compiler.path) if clang else "",
        clang_version=clang.compiler.version if clang else "",
        clang_problem=next((probe.reason for probe in probes if probe.reason.startswith("clang ")), "")
        if clang is None
        else "",
        distribution=distribution_of(system),
    )


def _jax_plugin(system: System, site: Path, names: tuple[str, ...]) -> tuple[str, str]:
    """Return the CUDA major version of jax's newest plugin, and its METADATA; both empty without one."""
    rows = ((name, parse_dist_info(name)) for name in names)
    matches = ((name, JAX_PLUGIN.fullmatch(row[0])) for name, row in rows if row is not None)
    cuda, name = max(((int(match[1]), name) for name, match in matches if match is not None), default=(0, ""))
    return (str(cuda), system.read_text(site / name / "METADATA") or "") if name else ("", "")


def parse_minimums(metadata: str) -> tuple[tuple[str, str], ...]:
    """Read the minimum versions of CUDA wheels that the METADATA of jax's CUDA plugin requires.

    Examples
    --------
    >>> parse_minimums('Requires-Dist: nvidia-cuda-nvcc>=13.0.48; sys_platform == "linux" and extra == "with-cuda"')
    (('nvidia-cuda-nvcc', '13.0.48'),)
    """
    from packaging.metadata import parse_email

    written = parse_email(metadata)[0].get("requires_dist", [])
    found = [requirement for requirement in map(parse_requirement, written) if requirement is not None]
    rows = [(each.name, bound) for each in found for bound in each.specifier if bound.operator == ">="]
    return _of_cuda(normalize(name, bound.version) for name, bound in rows)


def parse_present(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Find the CUDA wheels among the names in a site-packages folder.

    Examples
    --------
    >>> parse_present(("nvidia_nvvm-13.0.88.dist-info", "numpy-2.3.0.dist-info"))
    (('nvidia-nvvm', '13.0.88'),)
    """
    return _of_cuda(normalize(*row) for row in map(parse_dist_info, names) if row is not None)


def _of_cuda(rows: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Keep the CUDA wheels that a toolkit is made of."""
    return tuple(row for row in rows if row[0] in _CUDA_WHEELS)
