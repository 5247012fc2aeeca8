"""The architectures of the GPUs here, remembered while the driver, the GPUs and their visibility are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from be_toolchain.arch import Arch, parse_archs, render_archs
from be_toolchain.find.record import write_private
from be_toolchain.known.catalog import PROC_DRIVER
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import System
from be_toolchain.machine.trust.regular_file import SMALL, read_regular

if TYPE_CHECKING:
    from be_toolchain.find.devices import DeviceReport

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def device_archs(system: System | None = None, record_dir: Path | None = None) -> tuple[Arch, ...]:
    """Return the architectures of the visible GPUs, remembered because initialising the driver takes 100 ms or more.

    Parameters
    ----------
    system : System, optional
        The machine; this one unless another is given.
    record_dir : Path, optional
        The folder that keeps the answer. The answer is reused while the driver, the GPUs, their visibility and the
        boot are the same. Where the kernel does not show them (WSL, gVisor), libcuda is asked each time.

    Returns
    -------
    tuple of Arch
        The architectures, sorted, without repeats; empty when there is no GPU.

    Examples
    --------
    >>> from be_toolchain import probe_devices
    >>> set(device_archs()) == {device.arch for device in probe_devices().devices}
    True
    """
    system = system or LocalSystem()
    facts = _cheap_facts(system) if record_dir is not None else None
    if record_dir is None or facts is None:
        return _distinct(_probe(system))
    path = record_dir / "devices.json"
    known = _remembered(path, facts)
    if known is not None:
        return known
    archs = _distinct(_probe(system))
    if archs:
        write_private(path, json.dumps({"facts": facts, "archs": render_archs(archs)}))
    return archs


def _probe(system: System) -> DeviceReport:
    """Ask the driver; its module is imported only here."""
    from be_toolchain.find.devices import probe_devices

    return probe_devices(system)


def _distinct(report: DeviceReport) -> tuple[Arch, ...]:
    """Return each architecture once."""
    return tuple(sorted({device.arch for device in report.devices}))


def _cheap_facts(system: System) -> list[str] | None:
    """Return what the kernel shows of driver and GPUs, and the variables that hide GPUs; None if it shows nothing.

    A GPU is identified by its bus address: exchanging it takes another boot. Its ``information`` file would name it,
    but the driver takes a millisecond to write that.
    """
    version = system.read_text(PROC_DRIVER / "version")
    gpus = system.list_dir(PROC_DRIVER / "gpus")
    if not version or not gpus:
        return None
    facts = [version, system.read_text(BOOT_ID) or ""]
    facts.append(" ".join(gpus))
    facts.append(" ".join(name for name in system.list_dir(Path("/dev")) if name.startswith("nvidia")))
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
    facts.extend(f"{name}={system.environ.get(name, ' (not set)')}" for name in names)
    return facts


def _remembered(path: Path, facts: list[str]) -> tuple[Arch, ...] | None:
    """Read the kept answer, if it belongs to these facts."""
    try:
        data: Any = json.loads(read_regular(path, SMALL))
        return parse_archs(data["archs"]) if data["facts"] == facts else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
