"""Three published CUDA kernels in JAX: compile each, compare it with plain JAX, and time both with their gradients.

The kernels' sources are fetched from their repositories; a port is a `.cu` file of declarations and a Python file with
the rules for the gradient. It needs a GPU, git, and for mamba's nine files some minutes of compilation.

Run it: ``python examples/ports [PORT ...] [--rounds N] [--out results.json]``. ``--table results.json`` prints such
results as a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import hash_grid
import jax
import jax.numpy as jnp
import numpy as np
import scatter
import selective_scan
from upstream import UPSTREAMS, count_lines, torch_lines

import be_runtime

PORTS = {port.__name__: port for port in (hash_grid, selective_scan, scatter)}


def with_gradient(function: Any) -> Any:
    """The function's result, and the gradient for each of its float arguments."""

    def run(*arguments: Any) -> Any:
        floats = [jnp.issubdtype(each.dtype, jnp.floating) for each in arguments]

        def of_floats(*given: Any) -> Any:
            rest = iter(given)
            return function(*(next(rest) if float_ else each for float_, each in zip(floats, arguments, strict=True)))

        inputs = [each for float_, each in zip(floats, arguments, strict=True) if float_]
        out, pullback = jax.vjp(of_floats, *inputs)
        return out, *pullback(jnp.cos(out))

    return run


def compare(port: ModuleType, arguments: tuple[Any, ...]) -> float:
    """The largest difference of a result or a gradient, over the largest number of it."""
    ours, plain = (jax.jit(with_gradient(each))(*arguments) for each in (port.ported, port.plain))
    return max(
        float(np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(np.asarray(b)).max())
        for a, b in zip(ours, plain, strict=True)
    )


def time_both(port: ModuleType, arguments: tuple[Any, ...], rounds: int) -> Any:
    """The times of the port and of plain JAX, with the gradient, in one process by turns."""
    kernel = be_runtime.XLACustomKernel(port.__name__)
    for name, function in (("cuda", port.ported), ("jax", port.plain)):
        kernel.def_kernel(name, jax.default_backend(), lambda function=function, **_: with_gradient(function))
    shapes = jax.eval_shape(with_gradient(port.plain), *arguments)
    outs = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in shapes]

    @cache
    def jitted(backend: str | None) -> Any:
        return jax.jit(lambda *given: kernel(*given, outs=outs, backend=backend))

    kernel.def_call(lambda *given, backend=None: jitted(backend)(*given))
    kernel.def_benchmark_data(lambda **_: [be_runtime.BenchmarkConfig(port.TITLE, arguments)])
    return kernel.benchmark(jax.default_backend(), n_warmup=1, n_runs=rounds, calls=3)


def main() -> int:
    """Run the command line; the status is 1 if a port differs from plain JAX."""
    parser = argparse.ArgumentParser(prog="python examples/ports", description=__doc__.partition("\n")[0])
    parser.add_argument("ports", nargs="*", metavar="PORT", help=f"of {', '.join(PORTS)}")
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="samples of each time (default 10)")
    parser.add_argument("--out", type=Path, help="write all samples as JSON")
    parser.add_argument("--table", type=Path, metavar="RESULTS", help="print results as a table, and run nothing")
    options = parser.parse_args()
    if unknown := set(options.ports) - set(PORTS):
        parser.error(f"no port {', '.join(sorted(unknown))}; there are {', '.join(PORTS)}")
    if options.table:
        print(table(json.loads(options.table.read_text(encoding="utf-8"))))
        return 0
    if jax.default_backend() != "gpu":
        print("the ports are CUDA kernels, and JAX sees no GPU here", file=sys.stderr)
        return 2
    jax.config.update("jax_enable_x64", True)  # pytorch_scatter's indices are int64
    found: dict[str, Any] = {}
    for name in options.ports or PORTS:
        port, start = PORTS[name], time.perf_counter()
        port.load()
        seconds = time.perf_counter() - start
        arguments = port.arrays(jax.random.key(0))
        difference = compare(port, arguments)
        result = time_both(port, arguments, options.rounds)
        print(
            f"{port.TITLE}: {seconds:.1f} s to load, largest relative difference {difference:.1e}\n{result}", flush=True
        )
        ours = [Path(port.__file__ or "").with_suffix(".cu").read_text(encoding="utf-8"), _glue(port)]
        found[name] = {
            "title": port.TITLE,
            "upstream": UPSTREAMS[port.UPSTREAM].url,
            "commit": UPSTREAMS[port.UPSTREAM].commit,
            "load_seconds": seconds,
            "difference": difference,
            "tolerance": port.TOLERANCE,
            "lines": sum(map(count_lines, ours)),
            "torch_lines": torch_lines(port.UPSTREAM),
            "records": [record._asdict() for record in result.records],
        }
        if options.out:
            options.out.write_text(json.dumps(found) + "\n", encoding="utf-8")
    wrong = [name for name, each in found.items() if not each["difference"] <= each["tolerance"]]
    print(f"wrong: {', '.join(wrong)}" if wrong else "all ports agree with plain JAX")
    return 1 if wrong else 0


def table(found: Mapping[str, Any]) -> str:
    """The lines and the times of each port, as Markdown."""
    rows = [
        (
            "| kernel | upstream | lines of the port | lines for PyTorch "
            "| port and gradient | plain JAX and gradient | plain JAX / port |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for each in found.values():
        ours, plain = (statistics.median(record["seconds"]) for record in each["records"])
        name = f"[{each['upstream'].rpartition('/')[2]}]({each['upstream']}/tree/{each['commit']})"
        times = f"{ours * 1e3:.2f} ms | {plain * 1e3:.2f} ms | {plain / ours:.2f}"
        rows.append(f"| {each['title']} | {name} | {each['lines']} | {each['torch_lines']} | {times} |")
    return "\n".join(rows)


def _glue(port: ModuleType) -> str:
    """The Python of a port that is not its comparison: from `load` up to plain JAX."""
    text = Path(port.__file__ or "").read_text(encoding="utf-8")
    return text[text.index("@cache\ndef load") : text.index("def plain")]


if __name__ == "__main__":
    sys.exit(main())
