"""Forks beside builds: nobody waits for ever; see also `tests/faults/test_crowds.py`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from be_runtime.cache import BuildOutput, CacheKey, Store
from be_runtime.cache.folder.layout import lock_file
from be_runtime.cache.folder.lock import key_lock


def _run(*argv: str, timeout_s: float = 100.0) -> str:
    """A program's output; nothing of it is left, whatever happens."""
    ignored = (sys.executable, "-W", "ignore::DeprecationWarning")
    with subprocess.Popen([*ignored, *argv], text=True, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            out, _ = process.communicate(timeout=timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, out
    return out


def test_a_child_does_not_keep_the_lock_of_a_parent_that_is_killed(tmp_path: Path):
    lock = tmp_path / "x.lock"
    out = _run(
        "-c",
        "import os, sys, time\n"
        "from be_runtime.cache.folder.lock import key_lock\n"
        "parent = os.fork()\n"
        "if parent == 0:\n"
        "    with key_lock(sys.argv[1]):\n"
        "        child = os.fork()\n"
        "        if child == 0:\n"
        "            os.close(1)\n"
        "            time.sleep(60)\n"
        "        os.kill(os.getpid(), 9)\n"
        "os.waitpid(parent, 0)\n"
        "with key_lock(sys.argv[1], timeout_s=5): print('free')\n",
        str(lock),
    )
    assert out == "free\n"


def test_a_child_that_leaves_the_block_does_not_unlock_it(tmp_path: Path):
    out = _run(
        "-c",
        "import os, sys\n"
        "from be_runtime.cache.folder.lock import key_lock\n"
        "from be_runtime.errors import CacheError\n"
        "with key_lock(sys.argv[1]):\n"
        "    child = os.fork()\n"
        "    if child:\n"
        "        os.waitpid(child, 0)\n"
        "        try:\n"
        "            with key_lock(sys.argv[1], timeout_s=0): pass\n"
        "        except CacheError: print('held', flush=True)\n"
        "os._exit(0)\n",
        str(tmp_path / "x.lock"),
    )
    assert out == "held\n"


def test_locks_between_threads_are_free_in_a_child():
    """But for those that the forking thread holds itself."""
    out = _run(
        "-c",
        "import os, threading\n"
        "from be_toolchain.machine.forks import ThreadLock\n"
        "from be_runtime.load.process import Process\n"
        "process, ours, inside, end = Process(), ThreadLock(), threading.Event(), threading.Event()\n"
        "def make():\n"
        "    inside.set()\n"
        "    end.wait()\n"
        "    return 'slow'\n"
        "thread = threading.Thread(target=process.only, args=(str, make))\n"
        "thread.start()\n"
        "inside.wait()\n"
        "with ours:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        with ours: print(process.only(str, lambda: 'quick'), flush=True)\n"
        "if child == 0: os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "end.set()\n"
        "thread.join()\n"
        "print(process.only(str, make))\n",
    )
    assert out == "quick\nslow\n"


def test_who_waits_finds_the_entry_though_the_lock_is_held(
    store: Store, key: CacheKey, header: Path, build: Callable[[Path], BuildOutput]
):
    """A program that forked without Python's knowledge may hold the lock for hours."""

    def without_locks(_descriptor: int, _operation: int) -> None:
        raise OSError(37, "no locks available")

    found = []
    base = store.root / "kernels-v1"
    base.mkdir(parents=True)
    with key_lock(lock_file(str(base), key.digest)):
        waiting = threading.Thread(target=lambda: found.append(store.get_or_build(key, build, lock_timeout_s=20)))
        waiting.start()
        made = store._replace(flock=without_locks).get_or_build(key, build)
        waiting.join(10)
        assert [(entry.path, entry.built) for entry in found] == [(made.path, False)]


def test_a_fork_waits_for_what_another_thread_imports(tmp_path: Path):
    """In a child the import would never end."""
    out = _run(
        "-c",
        "import os, signal, sys, threading, time\n"
        "from pathlib import Path\n"
        "from be_runtime.cache import BuildOutput, Store, make_key\n"
        "importing = threading.Event()\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'be_runtime.cache.builder':\n"
        "            importing.set()\n"
        "            time.sleep(0.3)\n"
        "sys.meta_path.insert(0, Slow())\n"
        "def build(staging):\n"
        "    (staging / 'm.so').write_bytes(b'x')\n"
        "    return BuildOutput(outputs=('m.so',))\n"
        "def ask(): return Store(Path(sys.argv[1])).get_or_build(make_key('module'), build)\n"
        "thread = threading.Thread(target=ask)\n"
        "thread.start()\n"
        "importing.wait()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.alarm(10)\n"
        "    ask()\n"
        "    os._exit(0)\n"
        "print(os.waitpid(child, 0)[1])\n",
        str(tmp_path / "cache"),
    )
    assert out == "0\n"
