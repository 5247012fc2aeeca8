"""The device that a kernel is tuned for, by the names that decide whether a choice holds."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

from be_runtime.request.native_cpu import identify_cpu
from be_runtime.tune.winners import TunedDevice
from be_runtime.xla import jax_primitive
from be_toolchain import probe_devices
from be_toolchain.machine.local_system import LocalSystem

_L2_CACHE_SIZE = 38
"""CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE of the driver's cuda.h."""

_FLUSHED = 256 << 20
"""Twice the largest last cache of today, for a device whose driver doesn't tell."""


def describe_device(device: Any) -> TunedDevice:
    """Describe one of JAX's devices."""
    if device.platform == "cpu":
        return TunedDevice(f"cpu {identify_cpu()}", "", "")
    sm = str(getattr(device, "compute_capability", ""))
    return TunedDevice(device.device_kind, sm, probe_devices(LocalSystem()).driver_version or "")


def flush_bytes(device: Any) -> int:
    """Return the size of an array that displaces everything from a GPU's last cache: twice that cache.

    It is 0 for a CPU: to flush its caches takes thousands of times as long as a small kernel, and hides it.
    """
    if device.platform == "cpu":
        return 0
    with contextlib.suppress(OSError, AttributeError):
        driver, size = LocalSystem().open_library("libcuda.so.1"), ctypes.c_int()
        if driver.cuDeviceGetAttribute(ctypes.byref(size), _L2_CACHE_SIZE, jax_primitive.ordinal(device)) == 0:
            return 2 * size.value
    return _FLUSHED
