"""Jobs of jax.distributed on this machine: processes that run a program and print an object of JSON."""

from __future__ import annotations

import contextlib
import json
import random
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from be_runtime.store.cache import Cache, read_manifest
from tests.support.runtime import ROOT, environment

LOADER = "tests.support.job_loader"
"""The program whose processes load kernels."""


class JobUnderTest:
    """The processes of a job, by their numbers.

    Parameters
    ----------
    program : str
        A module that is run with the process's number, their count, a port, and the process's own arguments.
    arguments : sequence of sequence of str
        For each process its own.
    variables : sequence of mapping, optional
        For each process its own.
    """

    def __init__(
        self, program: str, arguments: Sequence[Sequence[str]], variables: Sequence[Mapping[str, str]] = ()
    ) -> None:
        port, count = free_port(), len(arguments)
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", program, *map(str, (number, count, port)), *arguments[number]],
                cwd=ROOT,
                env=environment(
                    TF_CPP_MIN_LOG_LEVEL="3", OMP_NUM_THREADS="1", **(variables[number] if variables else {})
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(count)
        ]

    def answers(self, *numbers: int, patience_s: float = 120.0) -> list[dict[str, Any]]:
        """What processes print, in the order of their numbers: all of them, if none is named."""
        deadline = time.monotonic() + patience_s
        chosen = [self.processes[number] for number in numbers] if numbers else self.processes
        return [_answer(process, deadline - time.monotonic()) for process in chosen]

    def last_answers(self, patience_s: float = 120.0) -> list[dict[str, Any]]:
        """What all processes print in their last lines; libraries such as Gloo print others before."""
        deadline = time.monotonic() + patience_s
        said = [process.communicate(timeout=deadline - time.monotonic()) for process in self.processes]
        assert [process.returncode for process in self.processes] == [0] * len(self.processes), said
        return [json.loads(out.splitlines()[-1]) for out, _ in said]

    def end(self) -> list[str]:
        """Kill all, and return what they wrote to standard error."""
        for process in self.processes:
            process.kill()
        return [process.communicate()[1] for process in self.processes]


def free_port(first: int = 0, last: int = 0) -> int:
    """A port that nobody listens on; any, or one of a range."""
    for port in random.sample(range(first, last + 1), last + 1 - first):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("localhost", port))
            return int(free.getsockname()[1])
    raise AssertionError("all ports are in use")


@contextlib.contextmanager
def running(
    program: str, arguments: Sequence[Sequence[str]], variables: Sequence[Mapping[str, str]] = ()
) -> Generator[JobUnderTest]:
    """A job that ends with the block."""
    job = JobUnderTest(program, arguments, variables)
    try:
        yield job
    finally:
        for process in job.processes:
            process.kill()
        for process in job.processes:
            with process:
                pass


def wait_for(folder: Path, pattern: str, patience_s: float = 60.0) -> Path:
    """The first file of a pattern that processes make."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        found = sorted(folder.glob(pattern))
        if found and found[0].read_text():
            return found[0]
        time.sleep(0.01)
    raise AssertionError(f"no {pattern} came in {patience_s} s")


def module_source(cache: Path) -> str:
    """Where a cache has its only module from."""
    found = [entry for entry in Cache(cache).entries() if entry.kind == "module"]
    assert len(found) == 1
    manifest = read_manifest(found[0].path, found[0].digest)
    assert manifest is not None
    return manifest.made.source


def _answer(process: subprocess.Popen[str], patience_s: float) -> dict[str, Any]:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        line = process.stdout.readline() if selector.select(max(0.0, patience_s)) else ""
    if not line:
        process.kill()
        raise AssertionError(f"a process said nothing: {process.communicate()[1][-3000:]}")
    found: dict[str, Any] = json.loads(line)
    return found


class StoreClient:
    """The store's client in memory."""

    def __init__(self, values: dict[str, bytes]) -> None:
        self.values = values

    def key_value_set_bytes(self, key: str, value: bytes, replace: bool) -> None:
        if not replace and key in self.values:
            raise RuntimeError("ALREADY_EXISTS")
        self.values[key] = value

    def blocking_key_value_get_bytes(self, key: str, _: int) -> bytes:
        if key not in self.values:
            raise RuntimeError("DEADLINE_EXCEEDED")
        return self.values[key]
