"""JAX's functions that its oldest releases which the metadata allows have among the experimental ones."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import jax


def _find(name: str, experimental: str) -> Any:
    return getattr(jax if hasattr(jax, name) else import_module(experimental), name)


enable_x64 = _find("enable_x64", "jax.experimental")
shard_map = _find("shard_map", "jax.experimental.shard_map")
