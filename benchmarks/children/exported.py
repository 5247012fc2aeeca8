"""Programs that carry their kernels: ``exported.py save|load|call JOB.json``; the job is that of `calls.py`.

``save`` writes the job's programs beside it. ``load`` prints the seconds of each of two loads, and of JAX's part of it,
after all is imported and the backend is up. ``call`` prints for each form of program the seconds of one call in each
round, of the exported programs and of the same with registered targets.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp

import be_runtime
from be_runtime.store.artifact import unpack
from benchmarks.children import calls

PAD = '__asm__(".section .rodata\\n.globl be_pad\\nbe_pad: .fill 16777216, 1, 7\\n.text");\n'


def save(job: dict[str, Any], folder: Path) -> None:
    """Export everything that the other modes load."""
    source = Path(job["source"]).read_text(encoding="utf-8")
    be_runtime.load_cpp_inline("ours", source)
    be_runtime.load_cpp_inline("padded", source.replace("\n\n", f"\n{PAD}\n", 1))
    x = jax.ShapeDtypeStruct((job["elements"],), jnp.float32)
    be_runtime.export(calls.chain("ours.vector_add", 100), x, x).save(folder / "sites.be")
    be_runtime.export(calls.chain("padded.vector_add", 1), x, x).save(folder / "padded.be")
    for form, make in calls.FORMS.items():
        for length in job["lengths"]:
            be_runtime.export(make("ours.vector_add", length), x, x).save(folder / f"{form}{length}.be")


def load(folder: Path) -> dict[str, dict[str, float]]:
    """Seconds of loads."""
    jax.jit(lambda x: x + 1)(1.0).block_until_ready()
    importlib.import_module("be_runtime.ship.programs")
    importlib.import_module("flatbuffers")

    def timed(run: Callable[[], object]) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    found = {}
    for name in ("sites", "padded"):
        path = folder / f"{name}.be"
        artifact = unpack(path.read_bytes(), str(path))
        program = bytearray(artifact.image(artifact.table.program["image"]))
        jax.export.deserialize(program)
        found[name] = {
            "jax": timed(lambda program=program: jax.export.deserialize(program)),  # type: ignore[misc]
            "load": timed(lambda path=path: be_runtime.load_exported(path)),  # type: ignore[misc]
        }
    return found


def call(job: dict[str, Any], folder: Path) -> dict[str, dict[str, list[float]]]:
    """Seconds of one call."""
    source = Path(job["source"]).read_text(encoding="utf-8")
    be_runtime.load_cpp_inline("ours", source, extra_cflags=["-march=x86-64-v3"])

    found = {}
    for form, make in calls.FORMS.items():
        loaded = [be_runtime.load_exported(folder / f"{form}{length}.be").call for length in job["lengths"]]
        exported, registered = map(jax.jit, loaded), (make("ours.vector_add", length) for length in job["lengths"])
        pairs: list[tuple[str, Any]] = [("exported", tuple(exported)), ("registered", tuple(registered))]
        found[form] = calls.compare(dict(pairs[:: -1 if job["first"] else 1]), job)
    return found


def main() -> None:
    """Do what the arguments say."""
    path = Path(sys.argv[2])
    job = json.loads(path.read_text(encoding="utf-8"))
    modes = {"save": lambda: save(job, path.parent), "load": lambda: load(path.parent)}
    print(json.dumps(modes.get(sys.argv[1], lambda: call(job, path.parent))()))


if __name__ == "__main__":
    main()
