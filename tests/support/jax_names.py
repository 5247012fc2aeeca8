"""JAX's functions that its oldest releases which the metadata allows have among the experimental ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import jax
import numpy as np


def _find(name: str, experimental: str) -> Any:
    return getattr(jax if hasattr(jax, name) else import_module(experimental), name)


enable_x64 = _find("enable_x64", "jax.experimental")
shard_map = _find("shard_map", "jax.experimental.shard_map")
set_mesh: Any = getattr(jax, "set_mesh", None) or jax.sharding.use_mesh  # type: ignore[attr-defined]


def make_mesh(sizes: Sequence[int], names: str, kind: str = "automatic") -> jax.sharding.Mesh:
    """A mesh of the first devices with an axis for each letter of `names`, all "automatic" or all "explicit"."""
    axis = jax.sharding.AxisType.Explicit if kind == "explicit" else jax.sharding.AxisType.Auto
    devices = np.array(jax.devices()[: math.prod(sizes)]).reshape(sizes)
    return jax.sharding.Mesh(devices, tuple(names), axis_types=(axis,) * len(names))
