"""Resolve a toolchain and print the seconds: ``toolchain.py MODE RECORDS SITE PREFIX ROUNDS``.

MODE is ``record`` or ``scratch``.
"""

import json
import os
import sys
import time
from pathlib import Path

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.find.survey import survey
from be_toolchain.machine.local_system import LocalSystem

mode, records, site, prefix, rounds = sys.argv[1:]
REQUEST = ToolchainRequest(need_cuda=True)


class Machine(LocalSystem):
    """The machine with one more site-packages folder and a conda-like prefix."""

    def __init__(self) -> None:
        super().__init__({name: os.environ[name] for name in ("PATH", "HOME", "CONDA_PREFIX") if name in os.environ})
        self.site_dirs = (Path(site), *self.site_dirs)


os.environ["CONDA_PREFIX"] = prefix
taken = []
for _ in range(int(rounds)):
    start = time.perf_counter()
    toolchain = resolve(REQUEST, system=Machine(), record_dir=Path(records) if mode == "record" else None)
    taken.append(time.perf_counter() - start)
mixed = sum("parts of different releases" in probe.reason for probe in survey(REQUEST, Machine()).cuda_probes)
print(json.dumps({"taken": taken, "via": toolchain.cuda.found_via if toolchain.cuda else "", "mixed": mixed}))
