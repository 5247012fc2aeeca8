"""Time calls of natively launched kernels in jitted programs, beside a hand-written handler: ``launches.py JOB.json``.

What is printed is, for each form of program and contestant, the seconds of one call in each round.
"""

import ctypes
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import be_runtime
from benchmarks.children.calls import fastest
from benchmarks.stats import alternating

Function = Callable[[jax.Array, jax.Array], Any]


def by_handler(library: str) -> Function:
    """The hand-written handler."""
    handler = jax.ffi.pycapsule(ctypes.CDLL(library).vector_add)
    jax.ffi.register_ffi_target("theirs", handler, platform="CUDA")
    return lambda x, y: jax.ffi.ffi_call("theirs", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, y)


def by_cuda_kernel(source: str, elements: int) -> Function:
    """`be_runtime.cuda_kernel`."""
    text = Path(source).read_text(encoding="utf-8")
    add = be_runtime.cuda_kernel(text, "add_kernel", lambda x, _: x, grid=(elements + 255) // 256, block=256)
    return lambda x, y: add(x, y, n=elements)


def by_numba(elements: int) -> Function:
    """`be_runtime.numba_cuda_kernel`."""
    from benchmarks.kernels.vector_add_numba import add_kernel

    outs = jax.ShapeDtypeStruct((elements,), jnp.float32)
    return be_runtime.numba_cuda_kernel(add_kernel, outs, launch_dims=elements)


def by_triton(elements: int) -> dict[str, Function]:
    """`be_runtime.triton_kernel`, and jax-triton."""
    from benchmarks.kernels.vector_add_triton import add_kernel

    grid = (-(-elements // 256),)
    add = be_runtime.triton_kernel(add_kernel, "arg[n] arg[n] ret[n]", grid="ceil(n/BLOCK)", BLOCK=256)
    calls: dict[str, Function] = {"triton_kernel": add}
    if importlib.util.find_spec("jax_triton"):
        import jax_triton

        def bridge(x: jax.Array, y: jax.Array) -> Any:
            out = jax.ShapeDtypeStruct(x.shape, x.dtype)
            return jax_triton.triton_call(x, y, elements, kernel=add_kernel, out_shape=out, grid=grid, BLOCK=256)

        calls["jax-triton"] = bridge
    return calls


def by_tvm_ffi(sources: list[str]) -> dict[str, Function]:
    """`be_runtime.load_tvm_ffi`, a hand-written handler that calls the same function, and jax-tvm-ffi."""
    import tvm_ffi.cpp

    texts = [Path(source).read_text(encoding="utf-8") for source in sources]
    includes = [jax.ffi.include_dir()]
    library = tvm_ffi.cpp.build_inline("launched", cuda_sources=texts, functions=["add"], extra_include_paths=includes)
    declared = {"add": "arg[n]:float32 arg[n]:float32 ret[n]:float32"}
    jax.ffi.register_ffi_target("of the function", jax.ffi.pycapsule(ctypes.CDLL(library).call_add), platform="CUDA")
    calls: dict[str, Function] = {
        "load_tvm_ffi": be_runtime.load_tvm_ffi(library, declared, platform="cuda").add,
        "handler of the function": lambda x, y: jax.ffi.ffi_call(
            "of the function", jax.ShapeDtypeStruct(x.shape, x.dtype)
        )(x, y),
    }
    if importlib.util.find_spec("jax_tvm_ffi"):
        import jax_tvm_ffi

        function = tvm_ffi.load_module(library).get_function("add")
        jax_tvm_ffi.register_ffi_target("bridge", function, ["args", "rets"], platform="gpu", allow_cuda_graph=True)
        calls["jax-tvm-ffi"] = lambda x, y: jax.ffi.ffi_call("bridge", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, y)
    return calls


def by_cute() -> dict[str, Function]:
    """`be_runtime.cute_kernel`, and cutlass.jax."""
    from cutlass.jax import cutlass_call

    from benchmarks.kernels.vector_add_cute import add, add_for_cutlass_jax

    def bridge(x: jax.Array, y: jax.Array) -> Any:
        return cutlass_call(add_for_cutlass_jax, output_shape_dtype=jax.ShapeDtypeStruct(x.shape, x.dtype))(x, y)

    return {"cute_kernel": be_runtime.cute_kernel(add, "arg[n] arg[n] ret[n]"), "cutlass.jax": bridge}


def by_cutile(elements: int) -> dict[str, Function]:
    """`be_runtime.cutile_kernel`, and cuda.tile.jax."""
    from cuda.tile.jax import OutputPlaceholder, cutile_call

    from benchmarks.kernels.vector_add_cutile import add_kernel

    def bridge(x: jax.Array, y: jax.Array) -> Any:
        return cutile_call((-(-elements // 256),), add_kernel, (x, y, OutputPlaceholder(x.shape, x.dtype), 256))

    ours = be_runtime.cutile_kernel(add_kernel, "arg[n] arg[n] ret[n]", grid="ceil(n/BLOCK)", BLOCK=256)
    return {"cutile_kernel": ours, "cuda.tile.jax": bridge}


def chain(call: Function, length: int) -> Function:
    """A program of so many calls, each on the result of the one before."""

    def run(x: jax.Array, y: jax.Array) -> Any:
        for _ in range(length):
            x = call(x, y)
        return x

    return jax.jit(run)


def loop(call: Function, length: int) -> Function:
    """The same as a loop that runs on the device."""
    return jax.jit(lambda x, y: jax.lax.fori_loop(0, length, lambda _, value: call(value, y), x))


def returned(program: Function, x: jax.Array, y: jax.Array, executions: int) -> float:
    """Seconds until the fastest of several executions returns, which is before its kernels have run."""
    best = float("inf")
    for _ in range(5 * executions):  # the launch of a CUDA graph varies by more than the difference of two lengths
        start = time.perf_counter()
        result = program(x, y)
        best = min(best, time.perf_counter() - start)
        result.block_until_ready()
        del result  # the next one takes its memory, so that a CUDA graph is launched as it is
    return best


FORMS = {"chain": (chain, fastest), "loop": (loop, fastest), "host": (chain, returned)}
"""The program of each form, and how it is timed."""


def measure(form: str, calls: dict[str, Function], job: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of one call, for each contestant and round: the difference of two lengths leaves the dispatch out."""
    short, long = job["lengths"]
    x, y = jnp.zeros(job["elements"], jnp.float32), jnp.ones(job["elements"], jnp.float32)
    make, timed = FORMS[form]
    programs = {name: (make(call, short), make(call, long)) for name, call in calls.items()}
    for pair in programs.values():
        for program, length in zip(pair, (short, long), strict=True):
            assert (program(x, y) == length).all(), "a kernel computes something else"
            fastest(program, x, y, 5)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for order in alternating(list(calls), job["rounds"]):
        for name in order:
            slow, fast = (timed(program, x, y, job["executions"]) for program in reversed(programs[name]))
            samples[name].append((slow - fast) / (long - short))
    return samples


def main() -> None:
    """Read the job, do it, print the samples."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    calls = {
        "handler on ffi.h": by_handler(job["handler"]),
        "cuda_kernel": by_cuda_kernel(job["source"], job["elements"]),
    }
    if job["with_numba"]:
        calls["numba_cuda_kernel"] = by_numba(job["elements"])
    if importlib.util.find_spec("triton"):
        calls |= by_triton(job["elements"])
    if importlib.util.find_spec("tvm_ffi"):
        calls |= by_tvm_ffi(job["tvm_sources"])
    if importlib.util.find_spec("cutlass"):
        calls |= by_cute()
    if importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.tile"):
        calls |= by_cutile(job["elements"])
    print(json.dumps({form: measure(form, calls, job) for form in FORMS}))


if __name__ == "__main__":
    main()
