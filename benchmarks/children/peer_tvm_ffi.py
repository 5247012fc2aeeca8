"""apache-tvm-ffi's inline modules, registered with JAX by jax-tvm-ffi: ``peer_tvm_ffi.py JOB.json``.

As in https://tvm.apache.org/ffi/reference/python/cpp/generated/tvm_ffi.cpp.load_inline.html and in the docstring of
``jax_tvm_ffi.register_ffi_target``.
"""

import jax_tvm_ffi
import tvm_ffi.cpp

from benchmarks.peers.child import Job, run


def load(job: Job) -> str:
    """Load the source and register its function."""
    cpp, cuda = (None, job.text) if job.language == "cuda" else (job.text, None)
    module = tvm_ffi.cpp.load_inline(job.name, functions=["vector_add"], cpp_sources=cpp, cuda_sources=cuda)
    platform = "gpu" if job.language == "cuda" else "cpu"
    target = f"{job.name}.vector_add"
    jax_tvm_ffi.register_ffi_target(target, module.vector_add, platform=platform, allow_cuda_graph=True)
    return target


if __name__ == "__main__":
    run(load)
