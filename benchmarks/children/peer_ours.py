"""`be_runtime` as a peer among the others: ``peer_ours.py JOB.json``."""

import jax

import be_runtime
from benchmarks.peers.child import Job, run


def load(job: Job) -> str:
    """Load the source."""
    if job.language == "nvrtc":
        add = be_runtime.cuda_kernel(job.text, "add_kernel", lambda x, _: x, grid=4, block=256)
        x = jax.ShapeDtypeStruct((1024,), "float32")
        jax.eval_shape(lambda x, y: add(x, y, n=1024), x, x)
        return ""
    if job.language == "cuda":
        be_runtime.load_cuda_inline(job.name, job.text, compute_capability=job.capability)
    else:
        be_runtime.load_cpp_inline(job.name, job.text)
    return f"{job.name}.vector_add"


if __name__ == "__main__":
    run(load)
