"""Calls of a function of a TVM-FFI library from JAX, and of our functions from PyTorch by TVM-FFI."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from typing import Any

from ..bench import KERNELS, Bench
from ..figure import Figure, Row, Unavailable
from .calls import CPU, FORMS

GOALS = {"jax-tvm-ffi": 0.82, "load_cpp_inline": 1.3}
"""A handler of its own for the function took 0.78 of jax-tvm-ffi's call, and the library's own work is in all calls."""


def measure(bench: Bench) -> tuple[Figure, ...]:
    """What can be measured with the packages here."""
    figures: list[Figure] = []
    if importlib.util.find_spec("jax_tvm_ffi"):
        figures += _from_jax(bench)
    if importlib.util.find_spec("torch") and importlib.util.find_spec("tvm_ffi"):
        figures += _from_torch(bench)
    if not figures:
        raise Unavailable("jax-tvm-ffi, or torch and apache-tvm-ffi")
    return tuple(figures)


def _from_jax(bench: Bench) -> tuple[Figure, ...]:
    """A call in a jitted program, against jax-tvm-ffi's and against the same kernel in C++."""
    from tvm_ffi import libinfo

    library = bench.folder("library") / "libvector_add.so"
    includes = {libinfo.find_include_path(), libinfo.find_dlpack_include_path()}
    compiler = os.environ.get("CC", "gcc")
    source = str(KERNELS / "vector_add_tvm.c")
    bench.timed((compiler, "-shared", "-fPIC", "-O3", *(f"-I{path}" for path in includes), source, "-o", str(library)))
    rounds = bench.rounds(CPU.rounds, quick=5)
    job = bench.folder("job") / "job.json"
    told = {
        "language": "cpp",
        "source": str(KERNELS / "vector_add.cc"),
        "library": str(library),
        "elements": CPU.elements,
        "lengths": CPU.lengths,
        "rounds": rounds,
        "executions": CPU.executions,
    }
    job.write_text(json.dumps(told), encoding="utf-8")
    cache = bench.folder("cache")
    processes = 2 if bench.quick else CPU.processes
    runs = [bench.child("tvm_ffi_calls.py", str(job), cache=cache, **dict(CPU.variables)) for _ in range(processes)]
    return tuple(_figures(runs, rounds))


def _figures(runs: list[Any], rounds: int) -> Iterator[Figure]:
    for form, shown in FORMS.items():
        samples = {name: tuple(value for run in runs for value in run[form][name]) for name in ("ours", *GOALS)}
        for baseline, goal in GOALS.items():
            yield Figure(
                label=f"call of load_tvm_ffi, CPU, {shown}",
                ours=samples["ours"],
                baseline=baseline,
                theirs=samples[baseline],
                goal=goal,
                block=rounds,
            )


def _from_torch(bench: Bench) -> tuple[Figure, ...]:
    """A call of ``__tvm_ffi_vector_add`` with tensors of PyTorch, against a function that tvm-ffi built."""
    rounds = bench.rounds(CPU.rounds, quick=5)
    job = bench.folder("job") / "torch.json"
    told = {"source": str(KERNELS / "vector_add.cc"), "elements": CPU.elements, "rounds": rounds, "executions": 20_000}
    job.write_text(json.dumps(told), encoding="utf-8")
    cache = bench.folder("cache")
    runs = [bench.child("torch_calls.py", str(job), cache=cache) for _ in range(2 if bench.quick else CPU.processes)]
    samples = {name: tuple(value for run in runs for value in run[name]) for name in runs[0]}
    rows = (("exported function", "exported", "tvm-ffi", 1.1), ("be_runtime.torch", "functions", "torch.add", None))
    return tuple(
        Figure(
            label=f"{label} called from PyTorch",
            ours=samples[name],
            baseline=baseline,
            theirs=samples[baseline],
            goal=goal,
            block=rounds,
        )
        for label, name, baseline, goal in rows
    )


ROW = Row(measure=measure)
