"""RMS normalization in CUDA, Triton and CuTe DSL: compare each kernel and its gradient with plain JAX, and time it.

It needs a GPU. A kernel whose compiler is not installed is left out. The exit status is 1 if a kernel differs from
plain JAX.

Run it: ``python examples/norms/norms.py [--rows M] [--columns N] [--rounds R] [--out results.json]``.
``--table results.json`` prints such results as a Markdown table.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import be_runtime

HERE = Path(__file__).resolve().parent
FILES = {
    "CUDA": ("norm_cuda.py", "norm.cu"),
    "Triton": ("norm_triton.py",),
    "CuTe DSL": ("norm_cute.py",),
}
TOLERANCES = {"float32": 1e-5, "bfloat16": 2e-2}
THREADS = 256


def plain(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    """Normalize each row of x [m n], and scale its columns by weight [n]."""
    row = x.astype(jnp.float32)
    scale = jax.lax.rsqrt((row * row).mean(-1, keepdims=True) + eps)
    return (row * scale * weight).astype(x.dtype)


def backward(inputs: Any, slope: Any, eps: float) -> Any:
    """Return the cotangents of both inputs, given the cotangent of the result."""
    x, weight = inputs
    row, slope = x.astype(jnp.float32), slope.astype(jnp.float32)
    scale = jax.lax.rsqrt((row * row).mean(-1, keepdims=True) + eps)
    unit, scaled = row * scale, slope * weight
    of_x = scale * (scaled - unit * (scaled * unit).mean(-1, keepdims=True))
    return of_x.astype(x.dtype), (slope * unit).sum(0).astype(weight.dtype)


def load(name: str, columns: int, dtype: str) -> Any:
    """Make the function of a kernel, with its rule for derivatives."""
    module = importlib.import_module(FILES[name][0].removesuffix(".py"))
    function = module.make(columns, dtype, THREADS)
    function.defvjp(None, backward)
    return function


def largest_difference(function: Callable[..., Any], x: Any, weight: Any) -> float:
    """The largest difference of results, a batch and gradients from plain JAX in float32, over the largest number."""

    def results(function: Any, x: Any, weight: Any) -> Any:
        out, pullback = jax.vjp(function, x, weight)
        batch = jax.vmap(function, (0, None))(jnp.stack([x, -x]), weight)
        return [each.astype(jnp.float32) for each in (out, batch, *pullback(jnp.cos(x)))]

    run = jax.jit(results, static_argnums=0)
    expected_ones = run(plain, x.astype(jnp.float32), weight.astype(jnp.float32))
    pairs = zip(run(function, x, weight), expected_ones, strict=True)
    return max(float(jnp.abs(ours - expected).max() / jnp.abs(expected).max()) for ours, expected in pairs)


def time_each(functions: Mapping[str, Any], x: Any, weight: Any, rounds: int) -> be_runtime.BenchmarkResult:
    """The times of all functions, which take turns in one process."""
    kernel = be_runtime.XLACustomKernel("rms_norm")
    for name, function in functions.items():
        kernel.def_kernel(name, "gpu", lambda function=function, **_: function)
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    kernel.def_call(lambda x, weight, backend=None: kernel(x, weight, outs=out, backend=backend))
    kernel.def_benchmark_data(lambda **_: [be_runtime.BenchmarkConfig(str(x.dtype), (x, weight))])
    return kernel.benchmark("gpu", n_runs=rounds)


def count_lines(name: str) -> int:
    """Count the lines of a kernel's files, or of plain JAX, that are neither blank nor comments."""
    texts = [(HERE / each).read_text(encoding="utf-8") for each in FILES.get(name, ())] or [inspect.getsource(plain)]
    lines = (line.strip() for text in texts for line in text.splitlines())
    return sum(bool(line) and not line.startswith(("// ", "# ", '"""')) for line in lines)


def run(rows: int, columns: int, rounds: int) -> dict[str, Any]:
    """Compare and time all kernels whose compilers are installed."""
    found: dict[str, Any] = {"gpu": jax.devices()[0].device_kind, "rows": rows, "columns": columns, "kernels": {}}
    for dtype in TOLERANCES:
        x = jax.random.normal(jax.random.key(0), (rows, columns), dtype)
        weight = jax.random.normal(jax.random.key(1), (columns,), dtype)
        functions: dict[str, Any] = {}
        for name in FILES:
            try:
                functions[name] = load(name, columns, dtype)
            except ImportError as error:
                print(f"{name} is left out: {str(error).splitlines()[0]}", file=sys.stderr)
        functions["plain JAX"] = plain
        differences = {name: largest_difference(function, x, weight) for name, function in functions.items()}
        moved = (2 * x.size + weight.size) * x.dtype.itemsize
        for each in time_each(functions, x, weight, rounds).records:
            kernel = found["kernels"].setdefault(each.backend, {"lines": count_lines(each.backend)})
            kernel[dtype] = {"seconds": each.seconds, "bytes": moved, "difference": differences[each.backend]}
    return found


def table(found: Mapping[str, Any]) -> str:
    """The lines and the times of each kernel, as Markdown."""
    rows = [f"| kernel | lines of code | {' | '.join(TOLERANCES)} |", "|---|---|---|---|"]
    for name, kernel in found["kernels"].items():
        cells = [_cell(kernel[dtype]) for dtype in TOLERANCES]
        rows.append(f"| {name} | {kernel['lines']} | {' | '.join(cells)} |")
    size = f"{found['rows']:,} rows of {found['columns']:,} elements"
    count = len(found["kernels"]["CUDA"][next(iter(TOLERANCES))]["seconds"])
    notes = (
        f"A time is the median of {count} measurements of a call for {size}, on an {found['gpu']}.",
        "GB/s is the size of the inputs and the result, divided by the time.",
        "The line counts cover the kernel and its Python function, without blank lines and comments.",
    )
    return "\n".join([*rows, "", *notes, ""])


def _cell(record: Mapping[str, Any]) -> str:
    seconds = statistics.median(record["seconds"])
    return f"{seconds * 1e3:.3f} ms, {record['bytes'] / seconds / 1e9:,.0f} GB/s"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=16384, metavar="M", help="(default 16384)")
    parser.add_argument("--columns", type=int, default=4096, metavar="N", help="a multiple of 8 (default 4096)")
    parser.add_argument("--rounds", type=int, default=10, metavar="R", help="samples of each time (default 10)")
    parser.add_argument("--out", type=Path, metavar="RESULTS", help="write all samples as JSON")
    parser.add_argument("--table", type=Path, metavar="RESULTS", help="print results as a table, and run nothing")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text(encoding="utf-8"))), end="")
        return 0
    if jax.default_backend() != "gpu":
        print("the kernels are for GPUs, and JAX sees none here", file=sys.stderr)
        return 2
    found = run(options.rows, options.columns, options.rounds)
    print(table(found))
    if options.out:
        options.out.write_text(json.dumps(found) + "\n", encoding="utf-8")
    wrong = [
        f"{name} for {dtype}"
        for name, kernel in found["kernels"].items()
        for dtype, tolerance in TOLERANCES.items()
        if not kernel[dtype]["difference"] <= tolerance
    ]
    print(f"wrong: {', '.join(wrong)}" if wrong else "all kernels agree with plain JAX")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
