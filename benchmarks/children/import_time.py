"""Import a module and print the seconds that it took: ``import_time.py MODULE [MODULE_BEFORE]``."""

import sys
import time

# Nothing else is imported before the clock starts: a module that is there already would cost the measured one nothing.
_, module, *before = sys.argv
for name in before:
    __import__(name)
start = time.perf_counter()
__import__(module)
print(time.perf_counter() - start)
