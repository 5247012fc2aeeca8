"""Mounts of `tests.faults.bad_folder` that end with the test, and a skip with its reason where there is no FUSE."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime import environment

_STARTS_WITHIN_S = 10.0
_UNMOUNTS = (("umount", "-l"), ("fusermount3", "-uz"), ("fusermount", "-uz"))
"""Lazily, as a failed test may hold files; fusermount serves users other than root."""


class Mount:
    """One machine's view of a backing folder.

    Parameters
    ----------
    backing : Path
        The real folder.
    path : Path
        Where it is seen.
    rules : dict
        Fields of `tests.faults.bad_folder.Rules`.
    """

    def __init__(self, backing: Path, path: Path, rules: dict[str, Any]) -> None:
        self.backing, self.path, self._first = backing, path, rules
        self._file = path.with_suffix(".json")
        backing.mkdir(exist_ok=True)
        path.mkdir()
        self.change()
        argv = (sys.executable, "-m", "tests.faults.bad_folder", str(backing), str(path), str(self._file))
        said = path.with_suffix(".said")
        with said.open("w") as stderr:
            self._server = subprocess.Popen(argv, env=environment(), stderr=stderr)
        give_up = time.monotonic() + _STARTS_WITHIN_S
        while not os.path.ismount(path):
            if self._server.poll() is not None or time.monotonic() > give_up:
                self.close()
                pytest.skip(f"FUSE can't be used: {' '.join(said.read_text().split())[-300:]}")
            time.sleep(0.02)

    def change(self, **rules: Any) -> None:
        """Do other things wrong from now on, besides those that it was made with."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(self._first | rules))
        fresh.rename(self._file)

    def close(self) -> None:
        """Unmount it, and end its server."""
        for argv in _UNMOUNTS:
            with contextlib.suppress(FileNotFoundError):
                if subprocess.run([*argv, str(self.path)], capture_output=True, check=False).returncode == 0:
                    break
        try:
            self._server.wait(0.5)
        except subprocess.TimeoutExpired:  # it serves as long as a file is open
            self._server.kill()
            self._server.wait()


MakeMount = Callable[..., Mount]


@pytest.fixture
def bad_mount(tmp_path: Path) -> Iterator[MakeMount]:
    """A function that mounts the test's shared folder once more, with rules of the mount's own."""
    try:
        import mfusepy  # noqa: F401
    except (ImportError, OSError) as error:  # OSError: there is no libfuse
        pytest.skip(f"FUSE can't be used: {error}")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse can't be opened: docker run --device /dev/fuse --cap-add SYS_ADMIN")
    numbers = itertools.count()
    with contextlib.ExitStack() as mounts:

        def mount(**rules: Any) -> Mount:
            made = Mount(tmp_path / "share", tmp_path / f"mount{next(numbers)}", rules)
            mounts.callback(made.close)
            return made

        yield mount
