"""Time the tuned product of `examples/csr.py` beside its default: ``tuned.py JOB.json``.

What is printed is how many sizes were tuned in this process, and for each number of entries in a row the configuration
that is used and the seconds of both in each round, with a GPU's last cache flushed before each call.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import jax

from be_runtime.jax import transforms
from be_runtime.kernels.benchmark import sample_runners
from be_runtime.tune.timing import flush_bytes


def time_size(example: Any, tuned: Any, given: list[Any], job: dict[str, Any]) -> dict[str, Any]:
    """Samples of both, without those of the flush."""
    device = jax.devices()[0]
    size = flush_bytes(device)
    is_gpu = device.platform != "cpu"
    default = (example.gpu_product if is_gpu else example.cpu_product)(**tuned.configs[0])
    ways = {"tuned": tuned, "default": default, "flush": lambda *_arrays: ()}
    runners = {name: transforms.repeated(way, given, device, size) for name, way in ways.items()}
    samples = sample_runners(runners, 2, job["rounds"], job["calls"])
    flush = samples.pop("flush") if size else [0.0] * job["rounds"]
    found = {name: [s - f for s, f in zip(samples[name], flush, strict=True)] for name in ("tuned", "default")}
    return {"config": tuned.config(*given), **found}


def main() -> None:
    """Read the job, do it, print the samples."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.path.insert(0, job["examples"])
    example = importlib.import_module("csr")
    x = jax.random.normal(jax.random.key(0), (job["rows"],))
    sizes = {
        entries: [*map(jax.numpy.asarray, example.make_matrix(job["rows"], entries)), x] for entries in job["entries"]
    }
    tuned = example.tune(list(sizes.values()))
    timed = (
        {entries: time_size(example, tuned, given, job) for entries, given in sizes.items()} if job["rounds"] else {}
    )
    print(json.dumps({"tunings": len(tuned.results), "sizes": timed}))


if __name__ == "__main__":
    main()
