"""Load many CUDA files at once, each in one of some processes: ``corpus.py JOBS ARCHS PATH...``."""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import be_runtime

ARCHS = sys.argv[2]


def load(path: str) -> int:
    """Load one file, and return the number of its functions."""
    module = be_runtime.load_cuda_file(path, compute_capability=ARCHS, auto_register=False)
    return len(module.function_names)


if __name__ == "__main__":
    with ProcessPoolExecutor(int(sys.argv[1]), mp_context=get_context("spawn")) as pool:
        print(sum(pool.map(load, sys.argv[3:])))
