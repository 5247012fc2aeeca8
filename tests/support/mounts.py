"""Runs scripts where a shell has made mounts that nobody else sees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run_in_mounts(folder: Path, mount: str, script: str) -> str:
    """What a Python script prints in an empty folder, after a shell's commands; skips where mounts aren't permitted."""
    own = ("unshare", "--mount", "sh", "-ec")
    try:
        subprocess.run([*own, "mkdir try; mount -t tmpfs none try; umount try; rmdir try"], check=True, cwd=folder)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounts are not permitted: {error}")
    ran = subprocess.run(
        [*own, f'{mount}\nexec "$@"', "sh", sys.executable, "-c", script, repr(sys.path)],
        check=False,
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
