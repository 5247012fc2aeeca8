"""Private names of JAX: each is in the releases that `be_runtime.xla.jax_internals` states."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import pytest
from jax._src.custom_partitioning_sharding_rule import SdyShardingRule
from packaging.version import Version

import be_runtime
from be_runtime.xla import jax_internals

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
    assert re.search(row, jax_internals.__doc__ or "", re.MULTILINE)


OF_LOWERING = "custom_call full_like_aval ir_attribute lower_fun TokenSet dtype_to_ir_type lower_with_sharding_in_types"


def test_the_names_of_lowering_are_in_all_releases():
    assert [name for name in OF_LOWERING.split() if not hasattr(jax_internals.mlir, name)] == []


def test_no_other_file_knows_private_names():
    private = re.compile(r"^\s*(from|import) (jax\._src|jaxlib\.?\w* import xla_client)", re.MULTILINE)
    paths = Path(be_runtime.__file__).parent.rglob("*.py")
    assert [path.name for path in paths if private.search(path.read_text())] == ["jax_internals.py"]


def test_values_vary_alike_outside_of_shard_map():
    one: Any = jax.numpy.ones(3)
    assert [each is one for each in jax_internals.vary_alike(one, one)] == [True, True]
    assert jax_internals.varying(jax.typeof(one)) == frozenset()
