"""torch's inline extensions: ``peer_torch.py JOB.json``; they are called by torch, not by JAX.

As in https://docs.pytorch.org/docs/stable/cpp_extension.html#torch.utils.cpp_extension.load_inline.
"""

from torch.utils.cpp_extension import load_inline

from benchmarks.peers.child import Job, run

DECLARATION = "torch::Tensor vector_add(torch::Tensor a, torch::Tensor b);"


def load(job: Job) -> str:
    """Load the source."""
    sources = {"cpp_sources": job.text}
    if job.language == "cuda":
        sources = {"cpp_sources": DECLARATION, "cuda_sources": job.text}
    load_inline(job.name, functions=["vector_add"], **sources)
    return ""


if __name__ == "__main__":
    run(load)
