"""JAX's client of a job, where it fails or is not as expected; real ones are in `tests/compile/be_runtime/sharing`."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from be_runtime.xla.coordination import JobStore, JobStoreError, find_job_store
from tests.support.runtime import run_python


class Client:
    """A client whose calls may end in an error."""

    def __init__(self, error: str = "") -> None:
        self._error = error

    def key_value_set_bytes(self, key: str, value: bytes, replace: bool) -> None:
        if self._error:
            raise RuntimeError(self._error)

    def blocking_key_value_get_bytes(self, key: str, patience_ms: int) -> bytes:
        self.key_value_set_bytes(key, b"", replace=False)
        return b"value"


@pytest.mark.parametrize(
    ("state", "process"),
    [
        ({}, 1),
        *(({"client": None}, None), ({"client": object()}, None), ({"process_id": "1"}, None)),
        *(({"num_processes": 1}, None), ({"num_processes": None}, None), (None, None)),
    ],
)
def test_a_job_of_several_processes_has_a_store_and_what_is_not_as_expected_is_no_job(
    monkeypatch: pytest.MonkeyPatch, state: dict[str, Any] | None, process: int | None
):
    known = {"client": Client(), "process_id": 1, "num_processes": 2, **(state or {})}
    module = SimpleNamespace() if state is None else SimpleNamespace(global_state=SimpleNamespace(**known))
    monkeypatch.setitem(sys.modules, "jax._src.distributed", module)
    store = find_job_store()
    assert (store and store.process) == process


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
