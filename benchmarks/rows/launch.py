"""Kernels of each source against a hand-written handler and other bridges; and how soon the first launch is."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from be_runtime.jax.port import ffi_include_dir

from ..bench import KERNELS, Bench
from ..figure import Figure, Row, Unavailable
from ..toolkit import nvcc_command

BASELINES = {
    "cuda_kernel": {"handler on ffi.h": 1.05},
    "numba_cuda_kernel": {"handler on ffi.h": 1.05},
    "triton_kernel": {"cuda_kernel": 1.05, "jax-triton": 1.05},
    "load_tvm_ffi": {"handler of the function": 1.05, "handler on ffi.h": 1.05, "jax-tvm-ffi": 1.05},
    "cute_kernel": {"handler on ffi.h": 1.05, "cutlass.jax": 1.05},
    "cutile_kernel": {"cuda_kernel": 1.05, "cuda.tile.jax": 1.05},
}
"""Goals of each function, over what it is compared with."""
HOST = {"triton_kernel": {"jax-triton": 0.2}}
"""Goals of a call's time on the host, from a program's start to its return."""
COLD_GOAL_S, WARM_GOAL_S = 0.060, 0.030
FORMS = {
    "chain": ("unrolled", BASELINES),
    "loop": ("in fori_loop", BASELINES),
    "host": ("unrolled, time on the host", HOST),
}
"""What each form of a program is called, and its goals."""
GRAPHS = {"on": {}, "off": {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}}
ELEMENTS, LENGTHS = 1024, (200, 600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How often to measure."""

    rounds: int
    executions: int
    processes: int


def measure(bench: Bench) -> tuple[Figure, ...]:
    """Every figure; those of Numba where it works."""
    if bench.device is None or bench.cuda is None:
        raise Unavailable("a GPU and nvcc")
    cache = bench.folder("cache")
    with_numba = has_numba()
    figures = [*_calls(bench, cache, with_numba=with_numba), _cold(bench, cache)]
    if with_numba:
        figures.append(_warm(bench, cache))
    return tuple(figures)


def has_numba() -> bool:
    """Whether Numba compiles for CUDA here."""
    if importlib.util.find_spec("numba_cuda") is None:
        return False
    try:
        import numba.cuda.np.arrayobj  # noqa: F401 - fails beside a numpy that it does not know
    except (ImportError, AttributeError):
        return False
    return True


def _calls(bench: Bench, cache: Path, *, with_numba: bool) -> Iterator[Figure]:
    """A call inside a jitted program, with CUDA graphs and without."""
    library = bench.folder("handler") / "handler.so"
    bench.timed(nvcc_command(bench, KERNELS / "handler_ffi_h.cu", library, f"-I{ffi_include_dir()}"))
    counts = Counts(rounds=bench.rounds(30, quick=5), executions=10, processes=2 if bench.quick else 3)
    job = bench.folder("job") / "job.json"
    job.write_text(json.dumps(_job(library, counts, with_numba=with_numba)), encoding="utf-8")
    for state, variables in GRAPHS.items():
        runs = [bench.child("launches.py", str(job), cache=cache, **variables) for _ in range(counts.processes)]
        for form, (shown, baselines) in FORMS.items():
            samples = {name: tuple(value for run in runs for value in run[form][name]) for name in runs[0][form]}
            if form == "host" and state == "off":
                continue
            pairs = [(name, *pair) for name, goals in baselines.items() for pair in goals.items()]
            for name, baseline, goal in pairs:
                if name in samples and baseline in samples:
                    yield Figure(
                        label=f"{name}, graphs {state}, {shown}",
                        ours=samples[name],
                        baseline=baseline,
                        theirs=samples[baseline],
                        goal=goal,
                        block=counts.rounds,
                    )


def _job(library: Path, counts: Counts, *, with_numba: bool) -> dict[str, object]:
    """What `children/launches.py` is told."""
    return {
        "handler": str(library),
        "source": str(KERNELS / "vector_add_raw.cu"),
        "tvm_sources": [str(KERNELS / "vector_add_tvm.cu"), str(KERNELS / "handler_tvm.cu")],
        "with_numba": with_numba,
        "elements": ELEMENTS,
        "lengths": LENGTHS,
        "rounds": counts.rounds,
        "executions": counts.executions,
    }


def _cold(bench: Bench, cache: Path) -> Figure:
    """A new raw kernel in a process that has compiled one."""
    source = str(KERNELS / "vector_add_raw.cu")
    seconds = [bench.child("first_launch.py", "nvrtc", source, cache=cache) for _ in range(bench.rounds(7) + 1)]
    return Figure(label="second cuda_kernel of a process, compiled by NVRTC", ours=tuple(seconds[1:]), goal=COLD_GOAL_S)


def _warm(bench: Bench, cache: Path) -> Figure:
    """A Numba kernel from the cache, in a new process."""
    seconds = [bench.child("first_launch.py", "numba", cache=cache) for _ in range(bench.rounds(7) + 1)]
    return Figure(
        label="numba_cuda_kernel from the cache, after import numba.cuda", ours=tuple(seconds[1:]), goal=WARM_GOAL_S
    )


ROW = Row(measure=measure)
