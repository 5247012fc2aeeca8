"""Rows of kernels in an index that is damaged or was edited: an error names the file, or the kernel, and the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from be_runtime.call.attributes import Options
from be_runtime.call.resolve import resolve
from be_runtime.errors import LoadError
from be_runtime.kernels import triton
from be_runtime.kernels.geometry import explicit_geometry
from be_runtime.kernels.launcher import Kernel, KernelImage
from be_runtime.kernels.source import Launch
from be_runtime.ship.kernels import open_function
from be_runtime.store.artifact import Artifact
from be_runtime.store.index import Index, reading
from be_toolchain.arch import Arch

WHERE = "pkg/_kernels"
ROW: Mapping[str, Any] = {
    "name": "add",
    "label": "add",
    "doc": None,
    "signature": "arg[n]:float32 ret[n]",
    "call": {},
    "launcher": "be.launch",
    "sources": [],
    "launch": {"grid": "n"},
}
TRITON = {"language": "triton", "parameters": ["x", "out"], "num_ctas": 1, "blocks": {}}
CUTILE = {"language": "cutile", "parameters": ["x", "out"], "bits": {"x": 32, "out": 32}, "is_programmatic": False}


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        (TRITON | {"num_ctas": "2"}, "num_ctas"),
        (TRITON | {"num_ctas": 3}, "num_ctas"),
        (TRITON | {"blocks": {"x": 64}}, "'int'"),
        (CUTILE | {"bits": {"x": 7, "out": 32}}, "bits"),
        (CUTILE | {"bits": {"x": "no", "out": 32}}, "bits"),
        (CUTILE | {"bits": {}}, "'x'"),
        (TRITON | {"variants": [{"kernel": "00"}]}, "types"),
        (TRITON | {"variants": [{"types": ["*fp32:16", "*fp32:16"]}]}, "kernel"),
        (TRITON | {"variants": [{"types": ["*fp32:16", "*fp32:16"], "kernel": "00"}]}, "be.launch"),
        (TRITON | {"variants": 3}, "'int'"),
    ],
)
def test_a_wrong_field_of_a_function_is_an_error_with_the_file_and_the_field(changed: Any, field: str):
    artifact = Artifact(WHERE, Index("x86_64", {}))
    with pytest.raises(LoadError, match=f"^{WHERE} has a damaged index: .*{field}"), reading(WHERE):
        open_function({**ROW, **changed}, artifact)(np.zeros(16, np.float32))


@pytest.mark.parametrize(
    "extra", [(), (128, 0, 0), (128, 0, 0, 0, 0), (0, 0, 0, 0), (4096, 0, 0, 0), (128, -1, 0, 0), (128, 0, 0, 2)]
)
def test_wrong_numbers_of_an_image_do_not_reach_the_driver(extra: tuple[int, ...]):
    layout = triton.layout_of("add", ["x", "out"], ROW["signature"], 1, {}, Options())
    call = resolve(layout.declared.signature, [np.zeros(16, np.float32)], None, {}, aliases={})
    made, right = Launch(explicit_geometry(16, 1)), KernelImage(Arch(9, 0), "add", b"", extra=(128, 0, 0, 0))
    assert layout.fit(made, Kernel("", "add", (right,)), call).geometry.block == (128, 1, 1)
    with pytest.raises(LoadError, match=r"^add, a kernel of Triton, has a damaged index: ValueError: extra is"):
        layout.fit(made, Kernel("", "add", (right, right._replace(extra=extra))), call)
