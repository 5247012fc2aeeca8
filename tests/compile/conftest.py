"""Kernels of this tier run on the CPU, also on a machine with a GPU."""

from __future__ import annotations

from collections.abc import Generator

import pytest


@pytest.fixture(autouse=True)
def _on_cpu() -> Generator[None]:
    import jax

    with jax.default_device(jax.devices("cpu")[0]):
        yield
