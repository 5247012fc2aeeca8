"""`be_runtime` as a peer among the others: ``peer_ours.py JOB.json``."""

import be_runtime
from benchmarks.peers.child import Job, run


def load(job: Job) -> str:
    """Load the source."""
    if job.language == "cuda":
        be_runtime.load_cuda_inline(job.name, job.text, compute_capability=job.capability)
    else:
        be_runtime.load_cpp_inline(job.name, job.text)
    return f"{job.name}.vector_add"


if __name__ == "__main__":
    run(load)
