"""How fast this machine is now: a limit in seconds is one of a usual machine, and others take longer."""

from __future__ import annotations

import time

_STEPS = 1_000_000
_USUAL_S = 0.025
"""Processor time of the steps on a usual machine."""


def usual_seconds(took_s: float) -> float:
    """The processor time that something would have taken on a usual machine; never more than it took here."""
    began = time.thread_time()
    total = 0
    for number in range(_STEPS):
        total += number
    return took_s / max(1.0, (time.thread_time() - began) / _USUAL_S)
