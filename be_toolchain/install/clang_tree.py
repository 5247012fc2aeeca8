"""The CUDA 12 wheels as one folder that clang takes for a CUDA installation (``--cuda-path``)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from be_toolchain.known import catalog, fatbin
from be_toolchain.machine.system import System

_NO_CURAND = """\
/* clang includes this header of cuRAND before every CUDA source, for the types of blockDim and threadIdx in it. It
   comes with the wheel nvidia-curand-cu12, whose headers, where they are searched, come before this one. */
"""

_PROBE = """\
#include <cuda_fp16.h>
#include <nv/target>

__global__ void twice(const __half* x, float* out) { out[threadIdx.x] = 2.0f * __half2float(x[threadIdx.x]); }
void launch(const __half* x, float* out) { twice<<<1, 32>>>(x, out); }
"""

_FOLDERS = ("bin", "include", "lib", "nvvm")
_PROBE_ARCH = "sm_80"
_PROBE_S = 120.0


def join_wheels(tree: Path, versions: dict[str, str]) -> Path:
    """Join the CUDA 12 wheels below a folder by relative links; the wheels' own files stay as they are.

    Parameters
    ----------
    tree : Path
        Where the wheels were installed, as in a site-packages folder.
    versions : dict of str to str
        Those of the wheels.

    Returns
    -------
    Path
        The joined folder: ``bin``, ``include``, ``lib``, ``nvvm``, a ``fatbinary`` of ours, ``version.json``.
    """
    root = tree / catalog.CLANG_ROOT
    for folder in _FOLDERS:
        parts = (tree / part / folder for part in catalog.CUDA12_PARTS)
        _join(root / folder, [part for part in parts if part.is_dir()])
    (root / "lib64").symlink_to("lib")
    packer = root / "bin" / "fatbinary"
    packer.write_text(f"#!/usr/bin/env python3\n{Path(fatbin.__file__).read_text(encoding='utf-8')}", encoding="utf-8")
    packer.chmod(0o755)
    curand = root / "include" / "curand_mtgp32_kernel.h"
    if not curand.exists():
        curand.write_text(_NO_CURAND, encoding="utf-8")
    rows = {name: {"name": name, "version": version} for name, version in versions.items()}
    (root / "version.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return root


def _join(target: Path, sources: Sequence[Path]) -> None:
    """Link what several folders hold into one; a folder that is in several of them is joined in turn."""
    found: dict[str, list[Path]] = {}
    for source in sources:
        for entry in sorted(source.iterdir()):
            if entry.name not in {"__init__.py", "__pycache__"}:
                found.setdefault(entry.name, []).append(entry)
    target.mkdir(parents=True)
    for name, entries in found.items():
        if len(entries) > 1 and entries[0].is_dir():
            _join(target / name, entries)
        else:
            (target / name).symlink_to(os.path.relpath(entries[0], target))


def try_clang(clang: str, root: Path, work: Path, system: System) -> str:
    """Compile a kernel and its launcher with a joined folder; what went wrong, or nothing.

    Parameters
    ----------
    clang : str
        The program.
    root : Path
        From `join_wheels`.
    work : Path
        For files.
    system : System
        The machine.
    """
    source = work / "probe.cu"
    source.write_text(_PROBE, encoding="utf-8")
    argv = (clang, "-x", "cuda", f"--cuda-path={root}", f"--cuda-gpu-arch={_PROBE_ARCH}", "-std=c++17", "-O1")
    files = ("-Wno-unknown-cuda-version", "-c", str(source), "-o", str(work / "probe.o"))
    done = system.run((*argv, *files), unset=catalog.OUTPUT_VARIABLES, timeout_s=_PROBE_S)
    return done.why_failed and "\n".join((done.why_failed, *done.text.strip().splitlines()[:6]))
