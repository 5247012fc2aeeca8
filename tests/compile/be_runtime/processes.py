"""The processes of Python that tests of this tier start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.runtime import environment


def python(folder: Path, *argv: str, code: int = 0, **environ: str | None) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, and compare its exit status."""
    command, env = (sys.executable, *argv), environment(**environ)
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == code, done.stdout + done.stderr
    return done
