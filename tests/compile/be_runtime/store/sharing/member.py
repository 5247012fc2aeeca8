"""One process of a job: ``NUMBER COUNT PORT FOLDER PLAN``, the last a JSON object of `Plan`. It prints an object."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import jax

from be_runtime.jax.coordination import JobStore, find_job_store
from be_runtime.store import job, keys, sharing
from be_runtime.store.artifact import Artifact
from tests.support import jobs
from tests.support.artifacts import artifact as came


class Plan(NamedTuple):
    """What a process does.

    Parameters
    ----------
    loads : list of (str, str, str)
        Names, sources and architectures of kernels, one after the other.
    after, until : str
        Patterns of the files in the folder that the first load and the end of a build wait for, such as
        ``building-k-0`` and ``ended-0``.
    dies : bool
        Whether it gives no sign of life while it builds.
    """

    loads: list[list[str]]
    with_threads: bool = False
    after: str = ""
    until: str = ""
    seconds: float = 0.0
    size: int = 5 << 18
    most_bytes: int = job.MOST_BYTES
    patience_s: float = 60.0
    stale_s: float = 3.0
    damages: bool = False
    dies: bool = False
    fails: bool = False
    is_shared: bool = False
    in_child: bool = False


class FaultyClient:
    """The client, but it changes the bytes of pieces, or loses the signs of life."""

    def __init__(self, client: Any, plan: Plan) -> None:
        self._client, self._plan = client, plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def key_value_set_bytes(self, key: str, value: bytes, replace: bool) -> None:
        if key.endswith("/beat") and self._plan.dies:
            return
        if key.endswith("/0") and self._plan.damages:  # the content if the piece is all of it, else the compressed form
            try:
                value = zlib.compress(zlib.decompress(value)[:-1] + b"?")
            except zlib.error:
                value = value[:500] + bytes(len(value) - 500)
        self._client.key_value_set_bytes(key, value, replace)


class Member:
    """The loads of one process, whose builds compile nothing."""

    def __init__(self, number: int, folder: Path, plan: Plan, store: JobStore) -> None:
        self.number, self.folder, self.plan = number, folder, plan
        self.said: list[str] = []
        self.whispered: list[str] = []
        self.results: list[list[object]] = []
        faulty = store._replace(client=FaultyClient(store.client, plan))
        limits = {"patience_s": plan.patience_s, "stale_s": plan.stale_s, "most_bytes": plan.most_bytes}
        find = find_job_store if plan.in_child else lambda: faulty
        self.job = job.Job(find, self.said.append, self.whispered.append, **limits)  # type: ignore[arg-type]

    def load(self, name: str, source: str, arch: str) -> None:
        key = keys.make_key("module", ("name", name), ("source", source), ("archs", [arch]))
        shared = self.folder / key.digest
        wanted = sharing.Query(key, name, lambda: self.plan.is_shared and shared.exists())
        began = time.monotonic()
        try:
            artifact = self.job.get(wanted)
        except KeyboardInterrupt:
            self.results.append([name, "interrupted", "", time.monotonic() - began])
            return
        how = "fetched"
        if artifact is None and wanted.has_come():
            how = "come"
        elif artifact is None:
            try:
                artifact = self.build(name, key)
                how = "built"
                if self.plan.is_shared:
                    shared.touch()
                self.job.put(wanted, artifact)
            except RuntimeError as error:
                self.job.abandon(wanted, str(error))
                how = "failed"
        digest = artifact.table.image if artifact else hashlib.sha256(b"").hexdigest()
        self.results.append([name, how, digest[:8], time.monotonic() - began])

    def build(self, name: str, key: keys.CacheKey) -> Artifact:
        (self.folder / f"building-{name}-{self.number}").write_text(str(os.getpid()))
        time.sleep(self.plan.seconds)
        if self.plan.until:
            jobs.wait_for(self.folder, self.plan.until)
        if self.plan.fails:
            raise RuntimeError("k.cc:1: error")
        return came(key, os.urandom(self.plan.size))

    def run(self) -> dict[str, Any]:
        if self.plan.after:
            jobs.wait_for(self.folder, self.plan.after)
        if self.plan.with_threads:
            threads = [threading.Thread(target=self.load, args=each) for each in self.plan.loads]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            for each in self.plan.loads:
                self.load(*each)
        (self.folder / f"ended-{self.number}").write_text("ended")
        return {"results": sorted(self.results), "said": self.said, "whispered": self.whispered}


def main(number: int, count: int, port: int, folder: Path, plan: Plan) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    jax.distributed.initialize(f"localhost:{port}", count, number)
    store = find_job_store()
    assert store is not None
    member = Member(number, folder, plan, store)
    store.client.wait_at_barrier("all are connected", 100_000)
    child = os.fork() if plan.in_child else 0
    if child:
        os.wait()
    else:
        print(json.dumps(member.run()), flush=True)  # noqa: T201 - the answer
    if not plan.in_child or child:
        sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    number, count, port, folder, plan = sys.argv[1:]
    main(int(number), int(count), int(port), Path(folder), Plan(**json.loads(plan)))
