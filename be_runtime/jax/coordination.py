"""The key-value store that the processes of a jax.distributed job share.

Its client is private in JAX, and no other file uses it. A JAX without one of these names has no store:

==============================================  ==================================================================
``jax._src.distributed.global_state``           the job: ``client``, ``process_id``, ``num_processes``
``client.key_value_set_bytes``                  sets a value atomically; by default only if there is none
``client.blocking_key_value_get_bytes``         waits for a value, at most some milliseconds
==============================================  ==================================================================

All releases from 0.6.0 to 0.12 have these names. An error's text begins with its code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from be_toolchain.machine.http import run_bounded

_CALLS = ("key_value_set_bytes", "blocking_key_value_get_bytes")

_LONGEST_S = 10.0
"""Time limit of a call, in seconds. If process 0 is stopped, JAX's own calls wait until it continues."""


class JobStoreError(Exception):
    """The store refused a request or could not be reached."""


class JobStoreSilentError(JobStoreError):
    """The store did not answer in time, and may never answer."""


class JobStore(NamedTuple):
    """The store of a job, used by one process of the job.

    Parameters
    ----------
    client : object
        JAX's client.
    process : int
        Number of this process in the job.
    """

    client: Any
    process: int

    def put(self, key: str, value: bytes, *, replace: bool = False) -> bool:
        """Set a value; if there is a value already, return False, and keep it unless `replace` is true.

        Raises
        ------
        JobStoreError
            The store can't be reached, or refuses the value.
        """
        try:
            _bounded(lambda: self.client.key_value_set_bytes(key, value, replace), _LONGEST_S)
        except JobStoreError as error:
            if str(error).startswith("ALREADY_EXISTS"):
                return False
            raise
        return True

    def get(self, key: str, patience_s: float) -> bytes | None:
        """Wait for a value and return it; None if it does not arrive in time.

        Raises
        ------
        JobStoreError
            The store can't be reached.
        """
        try:
            patience_ms = max(1, int(patience_s * 1000))
            found = _bounded(
                lambda: self.client.blocking_key_value_get_bytes(key, patience_ms), patience_s + _LONGEST_S
            )
        except JobStoreError as error:
            if str(error).startswith(("DEADLINE_EXCEEDED", "NOT_FOUND")):
                return None
            raise
        return found if isinstance(found, bytes) else None


def find_job_store() -> JobStore | None:
    """Return the store of this process's job; None outside of a job and in a job of one process."""
    state = _state()
    client, process, processes = (getattr(state, name, None) for name in ("client", "process_id", "num_processes"))
    if client is None or client is _inherited or not all(hasattr(client, name) for name in _CALLS):
        return None
    if not isinstance(process, int) or not isinstance(processes, int) or processes < 2:
        return None
    return JobStore(client, process)


def _state() -> object:
    """Return JAX's state of the job; None if the program has not imported JAX's module, and so is in no job."""
    return getattr(sys.modules.get("jax._src.distributed"), "global_state", None)


def _bounded(call: Callable[[], object], patience_s: float) -> object:
    """Return the result of a call or raise `JobStoreError`; use a thread, so that Ctrl-C ends the wait."""
    try:
        return run_bounded(lambda _: call(), patience_s, patience_s)
    except TimeoutError:
        raise JobStoreSilentError(f"no answer in {patience_s:.0f} s") from None
    except Exception as error:  # noqa: BLE001 - a load goes on without a private client
        raise JobStoreError(str(error).partition("\n")[0]) from None


_inherited: object = None


def _forget_inherited() -> None:
    """Note the client that a forked child inherits, whose calls never return without the parent's threads."""
    global _inherited  # noqa: PLW0603 - a fact about this process
    _inherited = getattr(_state(), "client", None)


os.register_at_fork(after_in_child=_forget_inherited)
