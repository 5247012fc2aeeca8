"""A process that dies at a line drawn by lot."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def die_at(line: int, traced: re.Pattern[str]) -> Callable[[], int]:
    """Kill this process at that line of the files that are traced; return a function that says how many were run."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "call":
            return trace if traced.search(frame.f_code.co_filename) else None
        count += 1
        if count == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    return lambda: count
