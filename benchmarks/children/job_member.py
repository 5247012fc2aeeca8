"""Load one module as a process of a job and print the seconds: ``job_member.py PATH NUMBER COUNT PORT``.

The clock runs from the moment when all processes of the job are there. A COUNT of 1 is no job.
"""

import json
import sys
import time
from pathlib import Path

import jax

import be_runtime
from be_runtime.jax.coordination import find_job_store

path, number, count, port = Path(sys.argv[1]), *map(int, sys.argv[2:])
if count > 1:
    jax.distributed.initialize(f"localhost:{port}", count, number)
    store = find_job_store()
    assert store is not None
    store.client.wait_at_barrier("all are here", 300_000)
start = time.perf_counter()
be_runtime.load_cpp_file(path)
seconds = time.perf_counter() - start
if count > 1:
    jax.distributed.shutdown()
print(json.dumps(seconds))
