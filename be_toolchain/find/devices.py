"""Ask the NVIDIA driver for its version and its GPUs without JAX: libcuda first, then nvidia-smi."""

from __future__ import annotations

import contextlib
import ctypes
import re
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from be_toolchain.arch import Arch
from be_toolchain.errors import ArchError
from be_toolchain.known.layouts import PROC_DRIVER
from be_toolchain.known.versions import render_cuda_number
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import System

LIBCUDA = "libcuda.so.1"
MAJOR_ATTRIBUTE, MINOR_ATTRIBUTE = 75, 76
"""``CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`` and ``_MINOR`` of cuda.h."""

NO_DEVICE = 100
"""``CUDA_ERROR_NO_DEVICE`` of cuda.h: the driver works, but there is no GPU, or none is visible."""


class Device(NamedTuple):
    """A GPU.

    Attributes
    ----------
    index : int
        Number among the visible GPUs, from 0.
    name : str
        Name, such as ``"NVIDIA H200"``.
    arch : Arch
        Compute capability.

    See Also
    --------
    - `probe_devices`: return the GPUs of this machine.
    - :doc:`/toolchain`: the search order, and the settings that change the order.
    """

    index: int  # type: ignore[assignment]  # a tuple has a method of this name, which nobody calls here
    name: str
    arch: Arch


class DeviceReport(NamedTuple):
    """The visible GPUs and the versions of the driver, from `probe_devices`.

    Attributes
    ----------
    driver_version : str or None
        Newest CUDA version that the driver supports, such as ``"13.0"``; None if the version is unknown.
    driver_release : str or None
        Release of the driver, such as ``"580.82.07"``; None if the release is unknown.
    devices : tuple of Device
        Visible GPUs. The variable ``CUDA_VISIBLE_DEVICES`` hides and reorders GPUs.
    found_via : str
        Source of the report, ``"libcuda"`` or ``"nvidia-smi"``; empty if neither answered.
    problem : str or None
        Reason why no GPU was found; None if a GPU was found.

    See Also
    --------
    - :doc:`/toolchain`: the search order, and the settings that change the order.
    """

    driver_version: str | None = None
    driver_release: str | None = None
    devices: tuple[Device, ...] = ()
    found_via: str = ""
    problem: str | None = None


def probe_devices(system: System | None = None) -> DeviceReport:
    """Return the visible GPUs, and the versions of the NVIDIA driver.

    If the machine has no driver or no GPU, `probe_devices` raises no error.

    Parameters
    ----------
    system : System, optional
        Machine to search, for tests. The default is this machine.

    Returns
    -------
    DeviceReport
        Versions and GPUs, or the reason why there are no GPUs.

    See Also
    --------
    - `device_archs`: return only the architectures, and keep the answer in a folder.
    - :doc:`/toolchain`: the search order, and the settings that change the order.

    Examples
    --------
    >>> from be_toolchain import probe_devices
    >>> report = probe_devices()
    >>> bool(report.devices) == (report.problem is None)
    True
    """
    system = system or LocalSystem()
    release = parse_driver_release(system.read_text(PROC_DRIVER / "version") or "")
    report = _ask_libcuda(system, release)
    if report.devices or report.driver_version is not None:
        return report
    asked = _ask_nvidia_smi(system)
    return asked if asked is not None else report


def ask_aside(system: System) -> Callable[[], DeviceReport]:
    """Start `probe_devices` in a thread, since the driver takes 200 ms to answer.

    Parameters
    ----------
    system : System
        The machine.

    Returns
    -------
    callable
        Function that waits for the answer and returns it.
    """
    answers: list[DeviceReport] = []
    name = "be_toolchain-driver"
    thread = threading.Thread(target=lambda: answers.append(probe_devices(system)), name=name, daemon=True)
    thread.start()

    def answer() -> DeviceReport:
        thread.join()
        return answers[0]

    return answer


def parse_driver_release(text: str) -> str | None:
    """Read the driver's number from the text of ``/proc/driver/nvidia/version``.

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
    """Ask libcuda; the report's `problem` has the reason if it is missing or fails."""
    try:
        cuda = system.open_library(LIBCUDA)
    except OSError:
        return DeviceReport(driver_release=release, problem=f"{LIBCUDA} was not found: no NVIDIA driver is installed")
    version, number = None, ctypes.c_int()
    try:
        _check("cuDriverGetVersion", cuda.cuDriverGetVersion(ctypes.byref(number)))  # works without cuInit
        version = render_cuda_number(number.value)
        _check("cuInit", cuda.cuInit(0))
        _check("cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(number)))
        devices = tuple(_describe(cuda, index) for index in range(number.value))
    except _DriverError as error:
        hidden = system.environ.get("CUDA_VISIBLE_DEVICES")
        none = "there is no GPU" if hidden is None else f"no GPU is visible with CUDA_VISIBLE_DEVICES={hidden!r}"
        problem = none if error.status == NO_DEVICE else str(error)
        return DeviceReport(version, release, (), "libcuda", problem)
    except AttributeError as error:
        return DeviceReport(driver_release=release, problem=f"{LIBCUDA} is not a CUDA driver: {error}")
    return DeviceReport(version, release, devices, "libcuda")


def _describe(cuda: Any, index: int) -> Device:
    """Describe one GPU."""
    handle = ctypes.c_int()
    _check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(handle), index))
    name = ctypes.create_string_buffer(256)
    _check("cuDeviceGetName", cuda.cuDeviceGetName(name, len(name), handle))
    numbers = []
    for attribute in (MAJOR_ATTRIBUTE, MINOR_ATTRIBUTE):
        number = ctypes.c_int()
        _check("cuDeviceGetAttribute", cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, handle))
        numbers.append(number.value)
    return Device(index, name.value.decode("utf-8", "replace"), Arch(numbers[0], numbers[1]))


def _ask_nvidia_smi(system: System) -> DeviceReport | None:
    """Ask nvidia-smi, which ignores CUDA_VISIBLE_DEVICES; return None when it is missing or fails."""
    program = system.which("nvidia-smi")
    if program is None:
        return None
    query = (str(program), "--query-gpu=index,uuid,name,compute_cap,driver_version", "--format=csv,noheader")
    listed, summary = system.run_all((query, (str(program),)))
    if listed.returncode != 0:
        return None
    devices, release = parse_smi(listed.stdout, system.environ.get("CUDA_VISIBLE_DEVICES"))
    version = re.search(r"CUDA Version:\s*(\d+\.\d+)", summary.stdout)
    problem = None if devices else "nvidia-smi lists no visible GPU"
    return DeviceReport(version[1] if version else None, release, devices, "nvidia-smi", problem)


def parse_smi(text: str, visible: str | None) -> tuple[tuple[Device, ...], str | None]:
    """Read nvidia-smi's list of index, uuid, name, capability and driver.

    Parameters
    ----------
    text : str
        The list, one line per GPU.
    visible : str or None
        ``CUDA_VISIBLE_DEVICES``: indices or prefixes of UUIDs; the first unknown one ends the list, as for CUDA.

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
    chosen = rows if visible is None else []
    for word in map(str.strip, visible.split(",")) if visible is not None else ():
        matching = (row for row in rows if word == row[0] or (word.startswith("GPU-") and row[1].startswith(word)))
        row = next(matching, None)
        if row is None:
            break
        chosen.append(row)
    devices = []
    for index, (_, _, name, capability, _) in enumerate(chosen):
        with contextlib.suppress(ArchError):
            devices.append(Device(index, name, Arch.parse(capability)))
    return tuple(devices), rows[0][4].strip() if rows else None
