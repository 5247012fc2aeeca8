"""A call of a function of a TVM-FFI library, against jax-tvm-ffi's call of it and against the same kernel in C++."""

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
    """Both figures, from the same processes."""
    if importlib.util.find_spec("jax_tvm_ffi") is None:
        raise Unavailable("jax-tvm-ffi is not installed")
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


ROW = Row(measure=measure)
