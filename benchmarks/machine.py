"""What a result depends on: the machine and the software, without names of hosts, users or folders."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from be_toolchain import __version__, probe_devices
from be_toolchain.machine.local_system import LocalSystem

from .bench import HERE, Bench

_PACKAGES = ("jax", "jaxlib", "numpy")


def machine_facts(bench: Bench) -> dict[str, str | int | None]:
    """Labelled facts for the report; None for what is not there."""
    report = probe_devices(LocalSystem())
    cuda = bench.cuda
    return {
        "cpu": cpu_model(_read(Path("/proc/cpuinfo"))) or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": f"{os.getloadavg()[0]:.1f}",
        "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30,
        "system": f"{platform.system()} {platform.machine()}",
        "gpu": ", ".join(device.name for device in report.devices) or None,
        "driver": report.driver_release,
        "driver_cuda": report.driver_version,
        "cuda": cuda.nvcc_version if cuda is not None else None,
        "cxx": f"{bench.cxx.family} {bench.cxx.version}",
        "nvcc_host_compiler": f"{cuda.host_compiler.family} {cuda.host_compiler.version}" if cuda is not None else None,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
        "brainevent_toolchain": __version__,
    }


def cpu_model(cpuinfo: str) -> str:
    r"""The model in the text of ``/proc/cpuinfo``; empty where it names none.

    Examples
    --------
    >>> cpu_model("processor : 0\nmodel name\t: Some CPU @ 2.0GHz\n")
    'Some CPU @ 2.0GHz'
    """
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return ""


def git_commit() -> str:
    """The checkout's commit, marked when files differ from it; ``unknown`` outside a checkout."""
    try:
        commit = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit} with changes" if changed else commit


def _git(*arguments: str) -> str:
    command = ("git", "-C", str(HERE), *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
