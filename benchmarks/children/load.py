"""Load one module and print the seconds: ``load.py LANGUAGE NAME SOURCE_FILE ARCH STATE``.

ARCH is ``-`` for that of the devices; STATE is ``imported`` or ``backend``: what jax is before the clock starts.
"""

import json
import sys
import time
from pathlib import Path

import jax

language, name, file, arch, state = sys.argv[1:]
source = Path(file).read_text(encoding="utf-8")
if state == "backend":
    jax.jit(lambda x: x + 1)(1.0).block_until_ready()

start = time.perf_counter()
import be_runtime  # noqa: E402 - its import is a part of what is measured

imported = time.perf_counter()
if language == "cuda":
    be_runtime.load_cuda_inline(name, source, compute_capability=None if arch == "-" else arch)
else:
    be_runtime.load_cpp_inline(name, source)
loaded = time.perf_counter()
print(json.dumps({"import": imported - start, "load": loaded - imported}))
