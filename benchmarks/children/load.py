"""Load one module and print the seconds: ``load.py FUNCTION NAME PATH ARCHS STATE``.

FUNCTION is one of `be_runtime`'s load functions; one for inline sources gets the text of the file. ARCHS is ``-`` for
those of the devices; STATE is ``imported`` or ``backend``: what jax is before the clock starts.
"""

import json
import sys
import time
from pathlib import Path

import jax

function, name, path, archs, state = sys.argv[1:]
source = Path(path).read_text(encoding="utf-8") if function.endswith("_inline") else path
options = {} if archs == "-" else {"compute_capability": archs}
if state == "backend":
    jax.jit(lambda x: x + 1)(1.0).block_until_ready()

start = time.perf_counter()
import be_runtime  # noqa: E402 - its import is a part of what is measured

imported = time.perf_counter()
load = getattr(be_runtime, function)
module = load(name, source, **options) if function.endswith("_inline") else load(source, name=name, **options)
loaded = time.perf_counter()
print(json.dumps({"import": imported - start, "load": loaded - imported, "library": str(module.path)}))
