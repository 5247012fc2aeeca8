"""Exchange entries in a jax.distributed job, in which one process builds and the others take its artifact.

Names in the job's store, all below ``be_runtime/1/``:

::

    <digest>/<generation>/claim    the builder; the store accepts one claim, so a generation has one builder
    <digest>/<generation>/beat     the heartbeat, a number that the builder changes as long as it is alive
    <digest>/<generation>/<i>      pieces of the artifact, compressed
    <digest>/<generation>/done     written last; number of pieces, size and hash, or the reason that there are none
    names/<hash>/<i>               the i-th key that a process asked for by a name, to notice different sources

A builder without a heartbeat counts as dead, and another process builds as the next generation. A builder that was only
stopped writes to its own generation when it continues. No process waits for one that has not asked for the entry. Each
wait ends at the latest when a build would have timed out, and then this process builds for itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from be_runtime.jax.coordination import JobStore, JobStoreError, JobStoreSilentError
from be_runtime.store import keys, lock, sharing
from be_runtime.store.artifact import Artifact, unpack
from be_toolchain.machine.forks import ThreadLock
from be_toolchain.terminal import printable_line

MOST_BYTES = 64 << 20
"""Most bytes that a process puts into the store. Process 0 keeps them in memory until the job ends."""

_ROOT = "be_runtime/1"
_PIECE = 1 << 20
_LARGEST_KEY = 1 << 22
_LONGEST_PROBLEM, _MOST_LINES = 500, 50
_POLL_S = 0.5
_LOOK_S = 1.0
_PIECE_S = 10.0


class _Generation(NamedTuple):
    """One attempt of the job to build an entry."""

    store: JobStore
    digest: str
    number: int

    def at(self, name: object) -> str:
        """Return the full name of an item in the store."""
        return f"{_ROOT}/{self.digest}/{self.number}/{name}"

    def claim(self) -> bool:
        """Become the builder unless there is one, and return whether this process is the builder."""
        mine = json.dumps({"process": self.store.process, "nonce": os.urandom(8).hex()}).encode()
        # JAX may send a request twice, and then finds its own first request
        return self.store.put(self.at("claim"), mine) or self.store.get(self.at("claim"), _POLL_S) == mine

    def builder(self) -> str:
        """Name the builder."""
        return _process_in(_parse(self.store.get(self.at("claim"), _POLL_S)))

    def beat(self, over: threading.Event, deadline: float) -> None:
        """Send heartbeats until the build is over."""
        number = 0
        with contextlib.suppress(JobStoreError):
            while not over.is_set() and time.monotonic() < deadline:
                number += 1
                self.store.put(self.at("beat"), str(number).encode(), replace=True)
                over.wait(_POLL_S)

    def finish(self, **result: object) -> None:
        """Publish the result of the build."""
        done = {"process": self.store.process, **result}
        self.store.put(self.at("done"), json.dumps(done).encode(), replace=True)

    def send(self, data: bytes) -> None:
        """Give an artifact to the job."""
        packed = zlib.compress(data, 1)
        pieces = [packed[at : at + _PIECE] for at in range(0, len(packed), _PIECE)]
        for number, piece in enumerate(pieces):
            self.store.put(self.at(number), piece, replace=True)
        self.finish(pieces=len(pieces), size=len(data), sha256=hashlib.sha256(data).hexdigest())

    def receive(self, done: dict[str, Any]) -> bytes | None:
        """Return the artifact that the builder gave to the job; None if it is damaged."""
        pieces, size = done.get("pieces"), done.get("size")
        if type(pieces) is not int or type(size) is not int or not 0 < size <= MOST_BYTES:
            return None
        if pieces > size // _PIECE + 2:  # compression may make data a little larger
            return None
        packed = []
        for number in range(pieces):
            piece = self.store.get(self.at(number), _PIECE_S)
            if piece is None or len(piece) > _PIECE:
                return None
            packed.append(piece)
        try:
            data = zlib.decompressobj().decompress(b"".join(packed), size)
        except zlib.error:
            return None
        return data if hashlib.sha256(data).hexdigest() == done.get("sha256") else None


class _Claim(NamedTuple):
    """A build that this process has claimed."""

    generation: _Generation
    over: threading.Event
    thread: threading.Thread

    def end(self) -> None:
        """Stop the heartbeat."""
        self.over.set()
        if self.thread.ident is not None:
            self.thread.join(_POLL_S)


class Job:
    """The other processes of the job, see `be_runtime.store.sharing.Store`.

    Parameters
    ----------
    find : callable
        Returns the job's store, or None without a job: `be_runtime.jax.coordination.find_job_store`.
    say : callable
        Shows a message to every user.
    whisper : callable
        Shows a message if verbose output is on.
    patience_s : float
        Longest wait for an entry, and longest time of heartbeats for a build.
    stale_s : float
        Time without a heartbeat after which a builder counts as dead.
    most_bytes : int
        Most bytes of all artifacts that this process shares.
    """

    secrets: tuple[str, ...] = ()

    def __init__(
        self,
        find: Callable[[], JobStore | None],
        say: sharing.Say,
        whisper: sharing.Say,
        *,
        patience_s: float,
        stale_s: float = 3.0,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._find, self._say, self._whisper = find, say, whisper
        self._patience_s, self._stale_s, self._room = patience_s, stale_s, most_bytes
        self._lock = ThreadLock()
        self._claims: dict[str, _Claim] = {}
        self._asked: dict[tuple[str, str], list[str]] = {}
        self._is_silent = False

    def describe(self) -> str:
        """See `Store.describe`."""
        return "another process of the job"

    def get(self, wanted: sharing.Query) -> Artifact | None:
        """Return the artifact that another process made; None to build it here, or if the entry exists now."""
        store = None if self._is_silent else self._find()
        if store is None:
            return None
        try:
            self._report_difference(store, wanted)
            data = self._elect(store, wanted)
        except JobStoreError as error:
            self._report(f"{wanted.name}: built here", error)
            return None
        return unpack(data, sharing.where_of(self), wanted.verify) if data else None

    def put(self, wanted: sharing.Query, artifact: Artifact) -> None:
        """Give the other processes the artifact that this process built for them."""
        data = artifact.packed
        with self._claimed(wanted) as generation:
            if generation is None:
                return
            with self._lock:
                fits = len(data) <= self._room
                self._room -= len(data) if fits else 0
            if fits:
                generation.send(data)
            else:
                self._whisper(f"{wanted.name}: not shared, as it is too large for the job's store")
                generation.finish(large=True)

    def abandon(self, wanted: sharing.Query, problem: str) -> None:
        """Tell the other processes to build the entry themselves."""
        with self._claimed(wanted) as generation:
            if generation is not None:
                generation.finish(error=problem[:_LONGEST_PROBLEM])

    @contextlib.contextmanager
    def _claimed(self, wanted: sharing.Query) -> Iterator[_Generation | None]:
        """Yield the generation that this process builds, or None if it claimed none, then end the claim."""
        with self._lock:
            claim = self._claims.pop(wanted.key.digest, None)
        try:
            yield claim.generation if claim else None
        except JobStoreError as error:
            self._report(f"{wanted.name}: not shared", error)
        finally:
            if claim:
                claim.end()

    def _report(self, what: str, error: JobStoreError) -> None:
        """Report an error of the store. A store without answers is not asked again, since each request would wait."""
        if isinstance(error, JobStoreSilentError):
            self._is_silent = True
            self._say(f"{what}, and so are all later entries: the job's store gives {error}")
        else:
            self._whisper(f"{what}, since the job's store failed: {error}")

    def _report_difference(self, store: JobStore, wanted: sharing.Query) -> None:
        """Report if another process asks for a different kernel of this name, except for other GPUs.

        Kernels may be redefined, so the first request of a process is compared with the first of another, and so on.
        """
        key = wanted.key
        with self._lock:
            asked = self._asked.setdefault((key.kind, wanted.name), [])
            if key.digest in asked:
                return
            asked.append(key.digest)
            number = len(asked)
        name = hashlib.sha256(f"{key.kind}/{wanted.name}".encode()).hexdigest()
        at = f"{_ROOT}/names/{name}/{number}"
        mine = {"process": store.process, "key": key.to_json()}
        if store.put(at, zlib.compress(json.dumps(mine).encode())):
            return
        with contextlib.suppress(ValueError, zlib.error):
            theirs = _parse(zlib.decompressobj().decompress(store.get(at, _POLL_S) or b"", _LARGEST_KEY))
            lines = keys.CacheKey.from_json(str(theirs.get("key"))).explain(key)
            differs = "".join(f"\n  {line}" for line in lines[:_MOST_LINES] if not line.startswith("archs: "))
            if differs:
                other, here = _process_in(theirs), f"process {store.process}"
                self._say(
                    f"{wanted.name}: {here} and {other} ask for different kernels of this name, so both kernels are "
                    f"built; the difference, from {other} to {here} (this one):{differs}\n"
                    "make sources and options the same on all hosts, or give the kernels different names"
                )

    def _elect(self, store: JobStore, wanted: sharing.Query) -> bytes | None:
        """Become the builder and return None, or return the builder's artifact, or None if the entry exists now."""
        deadline = time.monotonic() + self._patience_s
        generation = _Generation(store, wanted.key.digest, 0)
        while time.monotonic() < deadline:
            if generation.claim():
                if generation.number:
                    before = generation._replace(number=generation.number - 1)
                    self._say(
                        f"{wanted.name}: {before.builder()} of the job has stopped building it, so process "
                        f"{store.process} builds it now"
                    )
                    store.put(before.at("done"), b'{"dead": true}')  # for later requests
                self._begin(generation, deadline)
                return None
            if self._is_builder_dead(generation, wanted, deadline):
                generation = generation._replace(number=generation.number + 1)
                continue
            return None if wanted.has_come() else self._take(generation, wanted)
        self._say(f"{wanted.name}: waited {self._patience_s:.0f} s for the job, so it is built here")
        return None

    def _begin(self, generation: _Generation, deadline: float) -> None:
        """Record the claim, and start a thread for its heartbeat."""
        over = threading.Event()
        thread = threading.Thread(target=generation.beat, args=(over, deadline), name="be-job-beat", daemon=True)
        with self._lock:
            before = self._claims.get(generation.digest)
            self._claims[generation.digest] = _Claim(generation, over, thread)
        if before:
            before.end()
        with contextlib.suppress(RuntimeError):  # without more threads, this process counts as dead
            thread.start()

    def _is_builder_dead(self, generation: _Generation, wanted: sharing.Query, deadline: float) -> bool:
        """Wait until the builder is done or the entry exists, and return whether the builder seems to be dead."""
        began = since = time.monotonic()
        report_at, seen = lock.next_report(_LOOK_S), None
        while (now := time.monotonic()) < deadline:
            done = generation.store.get(generation.at("done"), _LOOK_S)
            if done is not None:
                return bool(_parse(done).get("dead"))
            if wanted.has_come():
                return False
            beat = generation.store.get(generation.at("beat"), _POLL_S)
            if beat is not None and beat != seen:
                seen, since = beat, time.monotonic()
            elif time.monotonic() - since > self._stale_s:
                self._whisper(f"{wanted.name}: {generation.builder()} of the job has stopped building it")
                return True
            if now - began >= report_at:
                report_at = lock.next_report(now - began)
                self._say(
                    f"{wanted.name}: waiting for {generation.builder()}, which is building it ({now - began:.0f} s)"
                )
        return True

    def _take(self, generation: _Generation, wanted: sharing.Query) -> bytes | None:
        """Return the builder's artifact; None if there is none, or it is damaged."""
        done = _parse(generation.store.get(generation.at("done"), _POLL_S))
        builder = _process_in(done)
        if "error" in done:
            problem = printable_line(f"{builder} could not build it: {done['error']}")[:_LONGEST_PROBLEM]
        elif done.get("large"):
            problem = f"the artifact of {builder} is too large for the job's store"
        else:
            data = generation.receive(done)
            if data:
                return data
            problem = f"the artifact of {builder} was damaged in transfer"
        self._whisper(f"{wanted.name}: {problem}; it is built here")
        return None


def _parse(text: bytes | None) -> dict[str, Any]:
    """Parse a JSON object; other data gives an empty one."""
    try:
        found = json.loads(text or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _process_in(message: dict[str, Any]) -> str:
    """Name the process that wrote a message."""
    number = message.get("process")
    return f"process {number}" if type(number) is int else "another process"
