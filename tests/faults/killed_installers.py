"""Installers that are killed, and what a search finds of their work afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.errors import CudaNotFoundError
from be_toolchain.install.plan import PARTS
from be_toolchain.install.wheel_files import check_wheel
from tests.support.fresh_environments import Environment


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def kill(process: subprocess.Popen[str], *, whole_tree: bool) -> None:
    """``kill -9`` the installer, with its pip or before it; that one is then waited for."""
    below = descendants(process.pid)
    for pid in (process.pid, *(below if whole_tree else ())):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}/exe").exists() for pid in below) and time.monotonic() < deadline:
        time.sleep(0.05)


def resolved_site(environment: Environment) -> Path | None:
    """The folder of packages that a search takes a toolkit from; every file in it is what its wheel holds."""
    try:
        toolkit = resolve(ToolchainRequest(need_cuda=True), system=environment.system).cuda
    except CudaNotFoundError:
        return None
    assert toolkit is not None
    site = toolkit.root.parent.parent
    versions = {part: path for path in site.glob("*.dist-info") for part in PARTS if _is(part, path)}
    assert set(versions) == set(PARTS)
    wrong = [text for part, path in versions.items() for text in check_wheel(site, part, path.stem.rpartition("-")[2])]
    assert not wrong, "a half toolchain resolves"
    return site


def _is(part: str, path: Path) -> bool:
    return path.stem.rpartition("-")[0].replace("_", "-") == part
