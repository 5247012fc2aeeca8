"""brainevent's inline functions: ``peer_brainevent.py JOB.json``.

As in its tutorials, https://brainx.chaobrain.com/brainevent/: a source with ``// @BE`` annotations.
"""

import brainevent

from benchmarks.peers.child import Job, run


def load(job: Job) -> str:
    """Load the source."""
    if job.language == "cuda":
        brainevent.load_cuda_inline(job.name, job.text, compute_capability=job.capability)
    else:
        brainevent.load_cpp_inline(job.name, job.text)
    return f"{job.name}.vector_add"


if __name__ == "__main__":
    run(load)
