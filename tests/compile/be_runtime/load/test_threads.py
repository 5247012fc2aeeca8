"""Threads that load, call, forget and remove modules at once, with turns of a microsecond."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

import be_runtime
from be_runtime.store.cache import Cache
from tests.compile.be_runtime.load.sources import VALUE, source, value

THREADS, MODULES, ROUNDS = 16, 4, 3


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """A cache of the test's own, and threads that take turns after each microsecond."""
    before = sys.getswitchinterval()
    be_runtime.set_cache_dir(tmp_path)
    sys.setswitchinterval(1e-6)
    yield tmp_path
    sys.setswitchinterval(before)
    be_runtime.set_cache_dir(None)


def test_threads_load_call_prune_and_unload(cache: Path):
    barrier = Barrier(THREADS)

    def work(number: int) -> int:
        barrier.wait(60)
        for each in range(number, number + ROUNDS):
            kind = each % MODULES
            name = f"threads_{kind}"
            module = be_runtime.load_cpp_inline(name, source(f=kind, g=-kind), auto_register=number % 2 == 0)
            assert (int(module.f(outs=VALUE)), int(module.g(outs=VALUE))) == (kind, -kind)
            if number % 2 == 0:
                assert value(f"{name}.f") == kind
                assert f"{name}.g" in be_runtime.list_registered_targets("cpu")
            match each % 6:
                case 0:
                    be_runtime.clear_cache(name)
                case 3:
                    Cache(cache).prune(max_size_bytes=0)
            assert int(module.f(outs=VALUE)) == kind, "a loaded module needs no entry"
            del module
            gc.collect(0)
        return number

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == list(range(THREADS))
