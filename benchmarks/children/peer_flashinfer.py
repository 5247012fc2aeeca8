"""FlashInfer's JIT, registered with JAX by jax-tvm-ffi: ``peer_flashinfer.py JOB.json``.

As in https://docs.flashinfer.ai/tutorials/adding_new_op.html, without FlashInfer's own kernels.
"""

import jax_tvm_ffi
from flashinfer.jit import gen_jit_spec

from benchmarks.peers.child import Job, run


def load(job: Job) -> str:
    """Compile the source, or find its library, and register its function."""
    module = gen_jit_spec(job.name, [job.source]).build_and_load()
    target = f"{job.name}.vector_add"
    jax_tvm_ffi.register_ffi_target(target, module.vector_add, platform="gpu", allow_cuda_graph=True)
    return target


if __name__ == "__main__":
    run(load)
