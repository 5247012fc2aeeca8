"""What a kernel reads of a module belongs to its content."""

from __future__ import annotations

import types
from typing import Any

from be_runtime.kernels.numba.function_content import function_content

settings = types.ModuleType("settings")
settings.inner = types.ModuleType("settings.inner")  # type: ignore[attr-defined]


def kernel(x: Any, out: Any) -> None:
    out[0] = x[0] * settings.inner.factor + settings.offset


def test_constants_of_modules_are_followed():
    found = set()
    for factor, offset in ((2, 1), (3, 1), (3, 2)):
        settings.inner.factor = factor
        settings.offset = offset  # type: ignore[attr-defined]
        content = function_content(kernel)
        assert not content.anchors
        found.add(content.digest)
    assert len(found) == 3
