"""Time calls of our module's ``__tvm_ffi_vector_add`` from PyTorch: ``torch_calls.py JOB.json``.

Beside it is tvm-ffi's own function from the same loop, and the function of `be_runtime.torch`, which makes its result.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import tvm_ffi
import tvm_ffi.cpp

import be_runtime
import be_runtime.torch
from benchmarks.stats import alternating

DECLARED = ["arg[n]:float32", "arg[n]:float32", "ret[n]:float32"]
OWN = """void add(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView z) {
  for (int64_t i = 0; i < z.numel(); ++i)
    static_cast<float*>(z.data_ptr())[i] =
        static_cast<const float*>(x.data_ptr())[i] + static_cast<const float*>(y.data_ptr())[i];
}"""


def main() -> None:
    """Read the job, do it, print the samples."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    module: Any = be_runtime.load_cpp_file(job["source"], {"vector_add": DECLARED}, auto_register=False)
    exported = tvm_ffi.load_module(str(module.path)).get_function("vector_add")
    own = tvm_ffi.load_module(tvm_ffi.cpp.build_inline("own", cpp_sources=OWN, functions=["add"])).get_function("add")
    made = be_runtime.torch.functions(module).vector_add
    x, y, z = (torch.ones(job["elements"]) for _ in range(3))
    calls: dict[str, Callable[[], Any]] = {
        "exported": lambda: exported(x, y, z),
        "tvm-ffi": lambda: own(x, y, z),
        "functions": lambda: made(x, y),
        "torch.add": lambda: torch.add(x, y),
    }
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for order in alternating(list(calls), job["rounds"]):
        for name in order:
            call, count = calls[name], job["executions"]
            start = time.perf_counter()
            for _ in range(count):
                call()
            samples[name].append((time.perf_counter() - start) / count)
    assert (z == 2).all()
    print(json.dumps(samples))


if __name__ == "__main__":
    main()
