"""One process of a job that loads kernels: ``NUMBER COUNT PORT PLAN``; it prints hash and seconds for each load.

PLAN is a JSON list of loads: name of the function of be_runtime, its arguments, its keyword arguments. The function
``sleep`` is that of time, and has no row.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time

import jax

import be_runtime
from be_runtime.jax.coordination import find_job_store


def main(number: int, count: int, port: int, plan: str) -> None:
    jax.distributed.initialize(f"localhost:{port}", count, number)
    store = find_job_store()
    if store is not None:
        store.client.wait_at_barrier("all are connected", 100_000)
    rows = []
    for function, arguments, options in json.loads(plan):
        began = time.monotonic()
        module = getattr(be_runtime, function)(*arguments, **options)
        rows.append([hashlib.sha256(module.path.read_bytes()).hexdigest(), time.monotonic() - began])
    sys.stdout.write(json.dumps({"rows": rows}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    own, every, at, loads = sys.argv[1:]
    main(int(own), int(every), int(at), loads)
