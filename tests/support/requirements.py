"""What each tier needs, found without the packages under test."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import shutil
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import pytest

OPTIONAL = "needs, which is optional here: "
"""Begins the reason of a skip that is no failure even where its tier is promised."""


def in_full(*values: Any) -> Any:
    """A case of a parametrized test that runs with `BE_FULL=1` alone."""
    return pytest.param(*values, marks=pytest.mark.full)


@cache
def missing(tier: str) -> str | None:
    """What a tier needs and this machine lacks, or None."""
    match tier:
        case "compile" | "faults":
            return None if host_compiler() else "no C++ compiler: neither CXX nor g++, clang++ or c++ is on PATH"
        case "cuda":
            return missing("compile") or (None if nvcc() else "no nvcc: pip install 'brainevent-toolchain[cuda13]'")
        case "gpu":
            return missing("cuda") or _missing_device()
        case "packaging":
            return missing("compile") or _missing_build()
        case _:
            return None


def host_compiler() -> str | None:
    """A C++ compiler, as the shell would find it."""
    named = os.environ.get("CXX", "").split(maxsplit=1)[:1]
    return next((found for name in (*named, "g++", "clang++", "c++") if (found := shutil.which(name))), None)


def nvcc() -> str | None:
    """A full nvcc: of the CUDA 13 wheels, CUDA_HOME, PATH or the usual folder."""
    wheels = Path(sysconfig.get_path("purelib"), "nvidia", "cu13", "bin")
    homes = [Path(home, "bin") for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    search = os.pathsep.join(map(str, (wheels, *homes, os.environ.get("PATH", ""))))
    return shutil.which("nvcc", path=search)


def device_count() -> int:
    """NVIDIA devices that the driver sees, without JAX."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def _missing_device() -> str | None:
    if device_count() == 0:
        return "no NVIDIA device: the driver is absent or sees none"
    plugins = ("jax_cuda13_plugin", "jax_cuda12_plugin")
    if not any(importlib.util.find_spec(name) for name in plugins):
        return "JAX has no CUDA plugin: pip install 'jax[cuda13]'"
    return None


def missing_conda_tools() -> str | None:
    """Which of the packages that build and solve for conda is not installed, or None."""
    absent = [name for name in ("rattler", "rattler_build") if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(absent)}; they come with the extra packaging" if absent else None


def _missing_build() -> str | None:
    if importlib.util.find_spec("build") is None:
        return "the package `build` is not installed"
    major = int(importlib.metadata.version("setuptools").split(".")[0])
    return None if major >= 77 else f"setuptools >= 77 is needed, {major} is installed"


def has_matplotlib() -> bool:
    """Whether pictures can be drawn."""
    return importlib.util.find_spec("matplotlib") is not None
