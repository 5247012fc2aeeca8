"""Load several sources in one process and print the seconds of each: ``load_many.py FUNCTION ARCHS PATH...``.

FUNCTION is one of `be_runtime`'s load functions for a file. jax's backend is up before the clock starts.
"""

import json
import sys
import time

import jax

import be_runtime

_, function, archs, *paths = sys.argv
options = {} if archs == "-" else {"compute_capability": archs}
load = getattr(be_runtime, function)
jax.jit(lambda x: x + 1)(1.0).block_until_ready()

seconds = []
for path in paths:
    start = time.perf_counter()
    load(path, **options)
    seconds.append(time.perf_counter() - start)
print(json.dumps(seconds))
