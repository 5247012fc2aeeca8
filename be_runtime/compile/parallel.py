"""Parallel calls in threads that an interrupt ends."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from be_runtime.compile.execute import stop_running

T = TypeVar("T")
R = TypeVar("R")

_POLL_S = 0.1
"""Longest wait for a lock, in seconds, since a signal right before an unlimited wait is never handled."""

_THREADS = "be-parallel"
"""Prefix of the threads' names."""


def run_parallel(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Call a function for each item, several calls at once.

    After an exception, no further call starts, and the exception is raised when the running calls have returned. An
    interrupt, which only the main thread receives, also stops the builds of all threads.

    Returns
    -------
    list
        The results, in the order of the items.
    """
    results: list[R] = []
    jobs = max(1, min(len(items), os.cpu_count() or 1))
    with ThreadPoolExecutor(max_workers=jobs, thread_name_prefix=_THREADS) as pool:
        try:
            for future in [pool.submit(function, item) for item in items]:
                while wait([future], _POLL_S).not_done:
                    pass
                results.append(future.result())
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            # Check the threads, not the futures, since an interrupted `submit` may have started a call.
            while isinstance(error, KeyboardInterrupt) and any(
                thread.name.startswith(_THREADS) for thread in threading.enumerate()
            ):
                stop_running()
                time.sleep(_POLL_S / 2)
            raise
    return results
