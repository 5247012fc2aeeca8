"""What may change or fail in JAX: private names, its client of a job, and a kernel in which a process dies."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import jax
import pytest
from jax._src.custom_partitioning_sharding_rule import SdyShardingRule
from packaging.version import Version

import be_runtime
from be_runtime.jax import coordination, fault_names, internals
from tests.support.runtime import run_python

JAX = Version(jax.__version__)
OLDEST = "0.6.0"


def has(module: str, name: str) -> Callable[[], bool]:
    *owners, last = name.split(".")

    def found() -> bool:
        try:
            return hasattr(functools.reduce(getattr, owners, import_module(module)), last)
        except (AttributeError, ImportError):
            return False

    return found


def of_aval(name: str) -> Callable[[], bool]:
    return lambda: hasattr(jax.core.ShapedArray((3,), "float32"), name)


CHANGED: dict[str, tuple[Callable[[], bool], str, str]] = {
    "auto_insert_reshard": (has("jax._src.core", "auto_insert_reshard"), "0.10.1", ""),
    "standard_insert_pvary": (has("jax._src.core", "standard_insert_pvary"), OLDEST, "0.10.1"),
    "aval.mat": (of_aval("mat"), "0.10.0", ""),
    "aval.vma": (of_aval("vma"), OLDEST, "0.10.0"),
    "reduction_factors": (lambda: "reduction_factors" in inspect.signature(SdyShardingRule).parameters, "0.7.2", ""),
    "Shardy, by default": (lambda: jax.config.jax_use_shardy_partitioner, "0.7.0", ""),  # type: ignore[attr-defined]
    "hijax.HiPrim": (has("jax.experimental.hijax", "HiPrim"), "0.11.2", ""),
    "hijax.VJPHiPrimitive": (has("jax.experimental.hijax", "VJPHiPrimitive.effects"), "0.10.0", "0.11.2"),
}
"""Names that some releases have: how one sees it, the first release with it, and the first without."""


@pytest.mark.parametrize("name", CHANGED)
def test_a_name_is_in_the_releases_that_are_stated(name: str):
    found, first, gone = CHANGED[name]
    assert found() == (Version(first) <= JAX and not (gone and Version(gone) <= JAX))
    last = {"0.11.2": "0.11.1"}.get(gone)
    stated = f"before {gone}" if first == OLDEST else f"{first} to {last}" if gone else f"since {first}"
    row = rf"^``{re.escape(name)}``.* {stated}$|^{name} .* {stated}$"
    assert re.search(row, internals.__doc__ or "", re.MULTILINE)


OF_LOWERING = "custom_call full_like_aval ir_attribute lower_fun TokenSet dtype_to_ir_type lower_with_sharding_in_types"


def test_the_names_of_lowering_are_in_all_releases():
    assert [name for name in OF_LOWERING.split() if not hasattr(internals.mlir, name)] == []


def test_no_other_file_knows_private_names():
    private = re.compile(r"^\s*(from|import) (jax\._src|jaxlib\.?\w* import xla_client)", re.MULTILINE)
    paths = Path(be_runtime.__file__).parent.rglob("*.py")
    assert [path.name for path in paths if private.search(path.read_text())] == ["internals.py"]


def test_values_vary_alike_outside_of_shard_map():
    one: Any = jax.numpy.ones(3)
    assert [each is one for each in internals.vary_alike(one, one)] == [True, True]
    assert internals.varying(jax.typeof(one)) == frozenset()


def store(error: str = "") -> coordination.JobStore:
    """The store of a client whose calls may end in an error."""
    client = Mock(**{"blocking_key_value_get_bytes.return_value": b"value"})
    if error:
        client.key_value_set_bytes.side_effect = client.blocking_key_value_get_bytes.side_effect = RuntimeError(error)
    return coordination.JobStore(client, 0)


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
    known = {"client": Mock(), "process_id": 1, "num_processes": 2, **(state or {})}
    module = SimpleNamespace() if state is None else SimpleNamespace(global_state=SimpleNamespace(**known))
    monkeypatch.setitem(sys.modules, "jax._src.distributed", module)
    found = coordination.find_job_store()
    assert (found and found.process) == process


def test_who_has_not_imported_jax_is_in_no_job():
    code = "import sys, be_runtime.jax.coordination as here\nprint(here.find_job_store(), 'jax' in sys.modules)"
    assert run_python(code).stdout.split() == ["None", "False"]


def test_what_errors_mean():
    assert store().put("a", b"")
    assert store().get("a", 1.0) == b"value"
    assert not store("ALREADY_EXISTS: key a").put("a", b"")
    assert store("DEADLINE_EXCEEDED: a").get("a", 1.0) is None
    with pytest.raises(coordination.JobStoreError, match=r"^UNAVAILABLE: no connection$"):
        store("UNAVAILABLE: no connection\nmore").put("a", b"")


def told(library: Mock) -> dict[int, str]:
    """The texts that codes have."""
    return {each.args[0].value: each.args[1].decode() for each in library.be_name_kernel.call_args_list}


def test_each_code_of_a_kernel_has_the_lines_of_all_its_calls():
    names, library = fault_names.FaultNames(), Mock()
    names.add_line("k.f")
    names.add_code("k.f", 16, library)
    first = told(library)[16]
    assert first.startswith("k.f, called at tests/unit/be_runtime/jax/test_jax_internals.py:")
    for _ in range(2):
        names.add_line("k.f")
    names.add_code("k.f", 32, library)
    assert told(library)[16] == told(library)[32]
    assert told(library)[16].startswith(f"{first} or ")
    assert told(library)[16].count("test_jax_internals.py:") == 2


def test_a_kernel_without_calls_has_its_name_and_one_with_many_the_first_lines():
    names, library = fault_names.FaultNames(), Mock()
    names.add_code("k.f", 16, library)
    assert told(library) == {16: "k.f"}
    calls = "\n".join(["names.add_line('k.f')"] * 20)
    exec(compile(calls, "<calls>", "exec"), {"names": names})  # noqa: S102 - each call has a line of its own
    assert told(library)[16].count("<calls>:") == 8
    assert told(library)[16].endswith(" or another line")
