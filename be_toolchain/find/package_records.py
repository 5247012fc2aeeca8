"""The records that installers keep of a toolkit's components, with their versions: dist-info, conda-meta, dpkg."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from be_toolchain.known import catalog
from be_toolchain.known.catalog import ComponentRow, Layout
from be_toolchain.known.distributions import parse_dist_infos
from be_toolchain.known.versions import parse_conda_meta, parse_dpkg_status, parse_version_json
from be_toolchain.machine.system import System

DPKG_STATUS = Path("/var/lib/dpkg/status")

Versions = dict[str, str]
Names = Callable[[ComponentRow], tuple[str, ...]]


def recorded_versions(system: System, root: Path, layout: Layout) -> dict[str, tuple[str, str]]:
    """The version of each component that some record below a toolkit's root tells, and which record that is.

    Parameters
    ----------
    system : System
        The machine.
    root : Path
        The toolkit's.
    layout : Layout
        That of the toolkit: it says which installer's records come first.

    Returns
    -------
    dict
        Component to (version, source); a component that no record knows is not in it.
    """
    found: dict[str, tuple[str, str]] = {}
    for versions, names, source in _records(system, root, layout):
        for row in catalog.COMPONENTS:
            version = next((versions[name] for name in names(row) if name in versions), "")
            if version:
                found.setdefault(row.name, (version, source))
    return found


def _records(system: System, root: Path, layout: Layout) -> Iterator[tuple[Versions, Names, str]]:
    """Each record's versions, the names that it has for a component, and how it is called."""
    if layout.name == "pip":
        yield parse_dist_infos(system.list_dir(root.parent.parent)), _pip, "dist-info"
        return
    if layout.name == "conda":
        yield parse_conda_meta(system.list_dir(root / "conda-meta")), lambda row: row.conda, "conda-meta"
        return
    if layout.name == "debian":
        text = system.read_text(DPKG_STATUS, limit_bytes=64 << 20) or ""
        yield parse_dpkg_status(text), lambda row: row.debian, "dpkg"
    text = system.read_text(root / "version.json") or ""
    yield parse_version_json(text), lambda row: row.version_json, "version.json"
    # A toolkit that was put together from wheels keeps their records inside.
    yield parse_dist_infos(system.list_dir(root / "dist-info")), _pip, "dist-info"


def _pip(row: ComponentRow) -> tuple[str, ...]:
    """The wheel of a component."""
    return (row.pip,)
