"""The Python that has the peers, and how their scripts are run there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .bench import HERE, Bench
from .figure import Unavailable
from .toolkit import nvcc_path

VARIABLE = "BE_BENCH_PEERS"
OWN = HERE.parent / ".bench-peers" / "bin" / "python"
CACHES = (
    *("BRAINEVENT_CACHE_DIR", "TVM_FFI_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "FLASHINFER_WORKSPACE_BASE"),
    *("WARP_CACHE_PATH", "CUPY_CACHE_DIR", "CUTE_DSL_CACHE_DIR", "CUDA_CACHE_PATH"),
)
NEEDED = ("jax", "packaging", "rich")
"""What this checkout itself runs with, apart from ninja, which may be a program on PATH."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerPython:
    """An environment that has the peers.

    Parameters
    ----------
    python : str
        Its interpreter.
    versions : dict of str to (str or None)
        Of the packages asked for; None for one that is not installed.
    ffi_include : str
        XLA's headers there: a handler has to be compiled with those of the jax that calls it.
    variables : dict of str to str
        Make every peer use the compilers and the architecture that ours uses.
    """

    python: str
    versions: dict[str, str | None]
    ffi_include: str
    variables: dict[str, str]

    def run(self, bench: Bench, script: str, *arguments: str, cache: Path, **variables: str) -> Any:
        """Run a child's script there; every peer keeps in the one cache folder what it compiles."""
        caches = dict.fromkeys(CACHES, str(cache))
        chosen = {**self.variables, **caches, **variables}
        return bench.child(script, *arguments, cache=cache, python=self.python, **chosen)


def find_peers(bench: Bench, packages: Sequence[str]) -> PeerPython:
    """The environment, and the version of each package that it has.

    Raises
    ------
    Unavailable
        There is none, or it lacks what this checkout needs.
    """
    python = os.environ.get(VARIABLE) or str(OWN)
    if not Path(python).exists():
        hint = f"make bench-peers installs them; {VARIABLE}=/path/to/python names another Python that has them"
        raise Unavailable(f"the peers are not installed: {hint}")
    facts = bench.child("peer_facts.py", *NEEDED, *packages, cache=bench.scratch, python=python)
    versions: dict[str, str | None] = facts["versions"]
    missing = [package for package in NEEDED if versions[package] is None]
    if missing:
        raise Unavailable(f"{python} lacks {', '.join(missing)}, which this checkout runs with")
    variables = _variables(bench, python)
    return PeerPython(python=python, versions=versions, ffi_include=facts["ffi_include"], variables=variables)


def _variables(bench: Bench, python: str) -> dict[str, str]:
    """Ninja on PATH, the compilers, and the architecture."""
    found = {
        "PATH": os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", os.defpath))),
        "CXX": str(bench.cxx.path),
        "BE_CXX": str(bench.cxx.path),
    }
    if bench.cuda is None:
        return found
    nvcc, capability = nvcc_path(bench), f"{bench.arch[3:-1]}.{bench.arch[-1]}"
    return {
        **found,
        **_cudart_variables(bench),
        "CUDA_HOME": str(nvcc.parent.parent),
        "BE_NVCC": str(nvcc),
        "BRAINEVENT_NVCC_PATH": str(nvcc),
        "TVM_FFI_CUDA_ARCH_LIST": capability,
        "TORCH_CUDA_ARCH_LIST": capability,
    }


def _cudart_variables(bench: Bench) -> dict[str, str]:
    """Let ``-lcudart`` find the toolkit's library: NVIDIA's wheels hold it without the name that a linker looks for."""
    assert bench.cuda is not None
    shared = bench.cuda.cudart_shared
    if shared is None:
        return {}
    folder = bench.folder("cudart")
    for name in {"libcudart.so", shared.name}:
        (folder / name).symlink_to(shared)
    return {"LIBRARY_PATH": str(folder), "LD_LIBRARY_PATH": str(folder)}
