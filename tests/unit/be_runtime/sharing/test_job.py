"""What other processes may have written into a job's store: nothing of it fails a load."""

from __future__ import annotations

import hashlib
import json
import threading

import pytest

from be_runtime.cache import make_key
from be_runtime.sharing.job import Job
from be_runtime.sharing.place import WantedEntry
from be_runtime.xla.coordination import JobStore
from tests.support.jobs import StoreClient

KEY = make_key("module", ("name", "add"))
WANTED = WantedEntry(KEY, "add", lambda: False)
HERE = f"be_runtime/1/{KEY.digest}/0"
NAME = f"be_runtime/1/names/{hashlib.sha256(b'module/add').hexdigest()}/1"
DEEP = b"[" * 100_000


def job(values: dict[str, bytes]) -> Job:
    store = JobStore(StoreClient(values), 1)
    return Job(lambda: store, print, print, patience_s=1.0, stale_s=0.2)


def done(**fields: object) -> bytes:
    return json.dumps(
        {"process": 0, "pieces": 0, "size": 1, "sha256": hashlib.sha256(b"").hexdigest(), **fields}
    ).encode()


@pytest.mark.parametrize(
    "text",
    [DEEP, b"\xff", b"[]", b"null", done(), done(pieces=-1), done(size=1 << 70), done(pieces=[]), done(error=[])],
)
def test_no_answer_of_a_builder_fails_a_load(text: bytes):
    assert job({f"{HERE}/claim": DEEP, f"{HERE}/done": text, NAME: DEEP}).fetch(WANTED) is None


def test_without_threads_a_claim_ends_all_the_same(monkeypatch: pytest.MonkeyPatch):
    values: dict[str, bytes] = {}
    place = job(values)

    def start(thread: threading.Thread) -> None:
        if thread.name == "be-job-beat":
            raise RuntimeError("can't start new thread")
        started(thread)

    started = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    assert place.fetch(WANTED) is None
    place.offer(WANTED, b"archive")
    assert json.loads(values[f"{HERE}/done"])["size"] == len(b"archive")
