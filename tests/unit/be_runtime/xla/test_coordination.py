"""JAX's client of a job, where it fails or is not as expected; real ones are in `tests/compile/be_runtime/sharing`."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from be_runtime.xla.coordination import JobStore, JobStoreError, find_job_store
from tests.support.runtime import run_python


class Client:
    """A client whose calls end in an error, or take some time."""

    def __init__(self, error: str = "", seconds: float = 0.0) -> None:
        self._error, self._seconds = error, seconds

    def key_value_set_bytes(self, key: str, value: bytes, replace: bool) -> None:
        time.sleep(self._seconds)
        if self._error:
            raise RuntimeError(self._error)

    def blocking_key_value_get_bytes(self, key: str, patience_ms: int) -> bytes:
        self.key_value_set_bytes(key, b"", replace=False)
        return b"value"


def in_job(monkeypatch: pytest.MonkeyPatch, **state: Any) -> JobStore | None:
    known = {"client": Client(), "process_id": 1, "num_processes": 2, **state}
    module = SimpleNamespace(global_state=SimpleNamespace(**known))
    monkeypatch.setitem(sys.modules, "jax._src.distributed", module)
    return find_job_store()


def test_a_job_of_several_processes_has_a_store(monkeypatch: pytest.MonkeyPatch):
    store = in_job(monkeypatch)
    assert store is not None
    assert store.process == 1


@pytest.mark.parametrize(
    "state",
    [{"client": None}, {"client": object()}, {"num_processes": 1}, {"num_processes": None}, {"process_id": "1"}],
)
def test_what_is_not_as_expected_is_no_job(monkeypatch: pytest.MonkeyPatch, state: dict[str, Any]):
    assert in_job(monkeypatch, **state) is None


def test_a_jax_without_the_name_has_no_job(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace())
    assert find_job_store() is None


def test_who_has_not_imported_jax_is_in_no_job():
    code = "import sys, be_runtime.xla.coordination as here\nprint(here.find_job_store(), 'jax' in sys.modules)"
    assert run_python(code).stdout.split() == ["None", "False"]


def test_what_errors_mean():
    assert JobStore(Client(), 0).put("a", b"")
    assert JobStore(Client(), 0).get("a", 1.0) == b"value"
    assert not JobStore(Client("ALREADY_EXISTS: key a"), 0).put("a", b"")
    assert JobStore(Client("DEADLINE_EXCEEDED: a"), 0).get("a", 1.0) is None
    with pytest.raises(JobStoreError, match=r"^UNAVAILABLE: no connection$"):
        JobStore(Client("UNAVAILABLE: no connection\nmore"), 0).put("a", b"")
