"""Time calls of one function of a TVM-FFI library by `load_tvm_ffi` and by jax-tvm-ffi: ``tvm_ffi_calls.py JOB.json``.

The job is that of `calls.py`, and names the library. What is printed is, for each form of program, the seconds of one
call for each contestant in each round.
"""

import json
import sys
from pathlib import Path

import jax_tvm_ffi
import tvm_ffi

import be_runtime
from benchmarks.children import calls


def main() -> None:
    """Read the job, do it, print the samples."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    declared = {"vector_add": "arg[n]:float32 arg[n]:float32 ret[n]:float32"}
    be_runtime.load_tvm_ffi(job["library"], declared, name="ours")
    be_runtime.load_cpp_inline("compiled", Path(job["source"]).read_text(encoding="utf-8"))
    function = tvm_ffi.load_module(job["library"]).get_function("vector_add")
    jax_tvm_ffi.register_ffi_target("theirs", function, ["args", "rets"], platform="cpu")
    targets = {"ours.vector_add": "ours", "theirs": "jax-tvm-ffi", "compiled.vector_add": "load_cpp_inline"}
    measured = {form: calls.measure(form, list(targets), job) for form in calls.FORMS}
    print(
        json.dumps(
            {form: {targets[name]: samples for name, samples in each.items()} for form, each in measured.items()}
        )
    )


if __name__ == "__main__":
    main()
