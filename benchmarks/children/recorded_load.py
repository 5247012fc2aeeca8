"""Load a module and print the seconds: ``recorded_load.py FUNCTION NAME PATH ARCHS RECORDS``.

The arguments are those of ``load.py``, but RECORDS is ``on`` or ``off``: whether the files that programs look at are
recorded. Both import the compiler modules before the clock starts.
"""

import json
import sys
import time
from pathlib import Path

import jax

import be_runtime
from be_runtime.compile import inputs, make  # noqa: F401 - imported before the clock starts

function, name, path, archs, records = sys.argv[1:]
if records == "off":
    inputs._find_library = lambda _: ""  # noqa: SLF001 - there is no switch for it
options = {} if archs == "-" else {"compute_capability": archs}
jax.jit(lambda x: x + 1)(1.0).block_until_ready()
source = Path(path).read_text(encoding="utf-8")
start = time.perf_counter()
getattr(be_runtime, function)(name, source, **options)
print(json.dumps(time.perf_counter() - start))
