"""Load every module of the package in a folder and print the seconds of each: ``load_package.py FOLDER``.

The package is imported, and jax's backend is up, before the clock starts.
"""

import json
import sys
import time
from pathlib import Path

import jax

sys.path.insert(0, sys.argv[1])
from bench_package import ops  # type: ignore[import-not-found]

jax.jit(lambda x: x + 1)(1.0).block_until_ready()

names = sorted(path.stem for path in Path(sys.argv[1], "bench_package").glob("m*.c*"))
seconds = []
for name in names:
    start = time.perf_counter()
    ops[name].function_names  # noqa: B018 - the module is loaded
    seconds.append(time.perf_counter() - start)
print(json.dumps(seconds))
