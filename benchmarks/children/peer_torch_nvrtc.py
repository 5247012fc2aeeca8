"""torch's kernels by NVRTC: ``peer_torch_nvrtc.py JOB.json``; they are launched by torch, not by JAX, and not cached.

As in the docstring of ``torch.cuda._compile_kernel``.
"""

import torch

from benchmarks.peers.child import Job, run

torch.zeros(1, device="cuda")  # the device's context is no part of a load


def load(job: Job) -> str:
    """Compile the kernel."""
    torch.cuda._compile_kernel(f'extern "C" {job.text}', "add_kernel")  # noqa: SLF001 - its only name
    return ""


if __name__ == "__main__":
    run(load)
