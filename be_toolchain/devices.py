"""The NVIDIA driver and its GPUs, asked without JAX: libcuda first, then nvidia-smi."""

from __future__ import annotations

import ctypes
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from be_toolchain.arch import Arch, parse_archs, render_archs
from be_toolchain.errors import ArchError
from be_toolchain.record import write_private
from be_toolchain.system import System

LIBCUDA = "libcuda.so.1"
MAJOR_ATTRIBUTE, MINOR_ATTRIBUTE = 75, 76
"""``CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`` and ``_MINOR`` of cuda.h."""

NO_DEVICE = 100
"""``CUDA_ERROR_NO_DEVICE`` of cuda.h: the driver works, no GPU is there or visible."""

PROC_DRIVER = Path("/proc/driver/nvidia")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU.

    Parameters
    ----------
    index : int
        Its number among those visible.
    name : str
        Such as ``"NVIDIA H200"``.
    arch : Arch
        Its compute capability.
    """

    index: int
    name: str
    arch: Arch


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """What the driver says.

    Parameters
    ----------
    driver_version : str or None
        The CUDA version that the driver speaks, ``"13.0"``.
    driver_release : str or None
        The driver's own number, ``"580.82"``.
    devices : tuple of Device
        Those that are visible; ``CUDA_VISIBLE_DEVICES`` hides and reorders.
    found_via : str
        ``"libcuda"``, ``"nvidia-smi"`` or empty.
    problem : str or None
        Why there are no devices.
    """

    driver_version: str | None = None
    driver_release: str | None = None
    devices: tuple[Device, ...] = ()
    found_via: str = ""
    problem: str | None = None


def probe_devices(system: System) -> DeviceReport:
    """Ask the driver for its version and its GPUs.

    Parameters
    ----------
    system : System
        The machine.

    Returns
    -------
    DeviceReport
        Never raises: a machine without a GPU is a machine that compiles for others.
    """
    release = parse_driver_release(system.read_text(PROC_DRIVER / "version") or "")
    report = _ask_libcuda(system, release)
    if report.devices or report.driver_version is not None:
        return report
    asked = _ask_nvidia_smi(system)
    return asked if asked is not None else report


def parse_driver_release(text: str) -> str | None:
    """The driver's number in ``/proc/driver/nvidia/version``.

    Examples
    --------
    >>> parse_driver_release("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed Aug 27")
    '580.82.07'
    """
    match = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)", text)
    return match[1] if match else None


class _DriverError(Exception):
    """A call to libcuda failed; `status` is its CUresult."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(f"{call} failed with CUDA error {status}")
        self.status = status


def _check(call: str, status: int) -> None:
    """Turn a CUresult into an exception."""
    if status != 0:
        raise _DriverError(call, status)


def _ask_libcuda(system: System, release: str | None) -> DeviceReport:
    """Ask libcuda; a missing or failing one is the report's problem."""
    try:
        cuda = system.open_library(LIBCUDA)
    except OSError:
        return DeviceReport(driver_release=release, problem=f"{LIBCUDA} is not there: no NVIDIA driver is installed")
    version = None
    try:
        version = _driver_version(cuda)
        _check("cuInit", cuda.cuInit(0))
        devices = _list_devices(cuda)
    except _DriverError as error:
        hidden = system.environ.get("CUDA_VISIBLE_DEVICES")
        none = "no GPU is there" if hidden is None else f"no GPU is visible with CUDA_VISIBLE_DEVICES={hidden!r}"
        problem = none if error.status == NO_DEVICE else str(error)
        return DeviceReport(driver_version=version, driver_release=release, found_via="libcuda", problem=problem)
    except AttributeError as error:
        return DeviceReport(driver_release=release, problem=f"{LIBCUDA} is not a CUDA driver: {error}")
    return DeviceReport(driver_version=version, driver_release=release, devices=devices, found_via="libcuda")


def _driver_version(cuda: Any) -> str:
    """The CUDA version that the driver speaks; it answers before cuInit."""
    number = ctypes.c_int()
    _check("cuDriverGetVersion", cuda.cuDriverGetVersion(ctypes.byref(number)))
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _list_devices(cuda: Any) -> tuple[Device, ...]:
    """Every visible GPU."""
    count = ctypes.c_int()
    _check("cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)))
    return tuple(_describe(cuda, index) for index in range(count.value))


def _describe(cuda: Any, index: int) -> Device:
    """One GPU."""
    handle = ctypes.c_int()
    _check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(handle), index))
    name = ctypes.create_string_buffer(256)
    _check("cuDeviceGetName", cuda.cuDeviceGetName(name, len(name), handle))
    numbers = []
    for attribute in (MAJOR_ATTRIBUTE, MINOR_ATTRIBUTE):
        number = ctypes.c_int()
        _check("cuDeviceGetAttribute", cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, handle))
        numbers.append(number.value)
    return Device(index=index, name=name.value.decode("utf-8", "replace"), arch=Arch(numbers[0], numbers[1]))


def _ask_nvidia_smi(system: System) -> DeviceReport | None:
    """Ask nvidia-smi, which ignores CUDA_VISIBLE_DEVICES; None when it is not there or fails."""
    program = system.which("nvidia-smi")
    if program is None:
        return None
    query = (str(program), "--query-gpu=index,uuid,name,compute_cap,driver_version", "--format=csv,noheader")
    listed, summary = system.run_all((query, (str(program),)))
    if listed.returncode != 0:
        return None
    devices, release = parse_smi(listed.stdout, system.environ.get("CUDA_VISIBLE_DEVICES"))
    version = re.search(r"CUDA Version:\s*(\d+\.\d+)", summary.stdout)
    return DeviceReport(
        driver_version=version[1] if version else None,
        driver_release=release,
        devices=devices,
        found_via="nvidia-smi",
        problem=None if devices else "nvidia-smi lists no visible GPU",
    )


def parse_smi(text: str, visible: str | None) -> tuple[tuple[Device, ...], str | None]:
    """Read nvidia-smi's list of index, uuid, name, capability and driver.

    Parameters
    ----------
    text : str
        One line a GPU.
    visible : str or None
        ``CUDA_VISIBLE_DEVICES``: indices or the beginnings of UUIDs; the first unknown one ends the list, as for CUDA.

    Returns
    -------
    tuple of Device, str or None
        The visible GPUs in their visible order, and the driver's number.

    Examples
    --------
    >>> devices, driver = parse_smi("0, GPU-1, NVIDIA H200, 9.0, 580.82.07", None)
    >>> devices[0].arch.sm, driver
    ('sm_90', '580.82.07')
    """
    rows = [row for row in (line.split(", ") for line in text.splitlines()) if len(row) == 5]
    chosen = rows
    if visible is not None:
        chosen = []
        for word in (word.strip() for word in visible.split(",")):
            row = next(
                (row for row in rows if word == row[0] or (word.startswith("GPU-") and row[1].startswith(word))), None
            )
            if row is None:
                break
            chosen.append(row)
    devices = []
    for index, row in enumerate(chosen):
        try:
            devices.append(Device(index=index, name=row[2], arch=Arch.parse(row[3])))
        except ArchError:
            continue
    return tuple(devices), rows[0][4].strip() if rows else None


def device_archs(system: System, record_dir: Path | None = None) -> tuple[Arch, ...]:
    """The architectures of the visible GPUs, remembered: initialising the driver takes 100 ms and more.

    Parameters
    ----------
    system : System
        The machine.
    record_dir : Path, optional
        Where the answer is kept. It is given again while the driver, the GPUs, their visibility and the boot are the
        same; where the kernel does not show them (WSL, gVisor), libcuda is asked each time.

    Returns
    -------
    tuple of Arch
        Sorted, without repeats; empty when there is no GPU.
    """
    facts = _cheap_facts(system) if record_dir is not None else None
    if record_dir is None or facts is None:
        return _distinct(probe_devices(system))
    path = record_dir / "devices.json"
    known = _remembered(path, facts)
    if known is not None:
        return known
    archs = _distinct(probe_devices(system))
    if archs:
        write_private(path, json.dumps({"facts": facts, "archs": render_archs(archs)}))
    return archs


def _distinct(report: DeviceReport) -> tuple[Arch, ...]:
    """Each architecture once."""
    return tuple(sorted({device.arch for device in report.devices}))


def _cheap_facts(system: System) -> list[str] | None:
    """What the kernel shows of driver and GPUs, and what hides GPUs; None when it shows nothing.

    A GPU is known by its bus address: another one at the same address comes with another boot. Its ``information``
    would name it, but the driver takes a millisecond to write that.
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
    """The kept answer if it belongs to these facts."""
    try:
        data: Any = json.loads(path.read_bytes())
        return parse_archs(data["archs"]) if data["facts"] == facts else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
