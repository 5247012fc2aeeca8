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

from be_runtime.cache import make_key
from be_runtime.sharing.job import MOST_BYTES, Job
from be_runtime.sharing.place import COME, WantedEntry
from be_runtime.xla.coordination import JobStore, find_job_store


class Plan(NamedTuple):
    """What a process does.

    Parameters
    ----------
    loads : list of (str, str, str)
        Names, sources and architectures of kernels, one after the other.
    """

    loads: list[list[str]]
    with_threads: bool = False
    delay_s: float = 0.0
    seconds: float = 0.7
    size: int = 5 << 18
    most_bytes: int = MOST_BYTES
    patience_s: float = 60.0
    damages: bool = False
    fails: bool = False
    exits: bool = False
    is_shared: bool = False
    in_child: bool = False


class Damaging:
    """The client, but it changes bytes: of the content if a piece is all of it, else of the compressed form."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def key_value_set_bytes(self, key: str, value: bytes, replace: bool) -> None:
        if key.endswith("/0"):
            try:
                value = zlib.compress(zlib.decompress(value)[:-1] + b"?")
            except zlib.error:
                value = value[:500] + bytes(len(value) - 500)
        self._client.key_value_set_bytes(key, value, replace)


class Member:
    """The loads of one process, whose builds sleep."""

    def __init__(self, number: int, folder: Path, plan: Plan) -> None:
        self.number, self.folder, self.plan = number, folder, plan
        self.said: list[str] = []
        self.whispered: list[str] = []
        self.results: list[list[object]] = []
        limits = {"patience_s": plan.patience_s, "most_bytes": plan.most_bytes}
        self.job = Job(self.find, self.said.append, self.whispered.append, **limits)  # type: ignore[arg-type]

    def find(self) -> JobStore | None:
        store = find_job_store()
        return store._replace(client=Damaging(store.client)) if store and self.plan.damages else store

    def load(self, name: str, source: str, arch: str) -> None:
        key = make_key("module", ("name", name), ("source", source), ("archs", [arch]))
        shared = self.folder / key.digest
        wanted = WantedEntry(key, name, lambda: self.plan.is_shared and shared.exists())
        began = time.monotonic()
        try:
            data = self.job.fetch(wanted)
        except KeyboardInterrupt:
            self.results.append([name, "interrupted", "", time.monotonic() - began])
            return
        how = "come" if data == COME else "fetched"
        if data is None:
            try:
                data = self.build(name, key.digest)
                how = "built"
                if self.plan.is_shared:
                    shared.touch()
                self.job.offer(wanted, data)
            except RuntimeError as error:
                self.job.abandon(wanted, str(error))
                data, how = b"", "failed"
        assert how in ("come", "failed") or data.startswith(key.digest.encode()), "what came is whole"
        self.results.append([name, how, hashlib.sha256(data).hexdigest()[:8], time.monotonic() - began])

    def build(self, name: str, digest: str) -> bytes:
        (self.folder / f"building-{name}-{self.number}").write_text(str(os.getpid()))
        time.sleep(self.plan.seconds)
        if self.plan.exits:
            os._exit(0)
        if self.plan.fails:
            raise RuntimeError("k.cc:1: error")
        return digest.encode() + os.urandom(self.plan.size)

    def run(self) -> None:
        time.sleep(self.plan.delay_s)
        if self.plan.with_threads:
            threads = [threading.Thread(target=self.load, args=each) for each in self.plan.loads]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            for each in self.plan.loads:
                self.load(*each)
        found = {"results": sorted(self.results), "said": self.said, "whispered": self.whispered}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


def main(number: int, count: int, port: int, folder: Path, plan: Plan) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    jax.distributed.initialize(f"localhost:{port}", count, number)
    member = Member(number, folder, plan)
    store = find_job_store()
    assert store is not None
    store.client.wait_at_barrier("all are connected", 100_000)
    if plan.in_child:
        if os.fork() == 0:
            member.run()
            os._exit(0)
        os.wait()
    else:
        member.run()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    number, count, port, folder, plan = sys.argv[1:]
    main(int(number), int(count), int(port), Path(folder), Plan(**json.loads(plan)))
