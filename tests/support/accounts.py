"""A second account: code that runs as another user, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.requirements import OPTIONAL

ME, STRANGER = 54321, 54322
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason=f"{OPTIONAL}root, to act as two users")

_PREFIX = """
import os, sys, warnings
sys.path[:] = {path!r}
import ctypes, importlib, json, pkgutil, platform, pwd, subprocess, tempfile, time, tomllib, traceback
import be_toolchain
for module in pkgutil.walk_packages(be_toolchain.__path__, "be_toolchain."):  # which may lie where the user can't read
    module.name == "be_toolchain.__main__" or importlib.import_module(module.name)
from be_toolchain.cli import main as cli
from be_toolchain.find import record as resolver
from be_toolchain.machine import local_system
from be_toolchain import settings as configuration
from be_toolchain.install.managed import ManagedStore
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
os.environ["HOME"] = "/nonexistent"
os.chdir({cwd!r})
"""


def run_as(uid: int, code: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run code as a user, in a folder; a minute is a hang."""
    prefix = _PREFIX.format(path=[entry for entry in sys.path if entry], uid=uid, cwd=str(cwd))
    argv = [sys.executable, "-c", prefix + code]
    environ = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"} | environ
    return subprocess.run(argv, cwd="/", env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that every user can reach; pytest closes the one above its own at each start."""
    with tempfile.TemporaryDirectory(prefix="be-two-users-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def make(path: Path, text: str | None = None, *, uid: int = ME, mode: int = 0o755) -> Path:
    """A folder, or with a text a file, of a user."""
    if text is None:
        path.mkdir()
    else:
        path.write_text(text)
    os.chown(path, uid, uid)
    path.chmod(mode)
    return path
