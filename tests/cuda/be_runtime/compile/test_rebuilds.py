"""What an edit of a folder of CUDA sources costs: exactly what depends on it is compiled again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import be_runtime
from tests.cuda.built import images
from tests.support.rebuilds import Edit, append, load_twice
from tests.support.requirements import in_full

BOTH = {"a.cu", "b.cu"}
EDITS: dict[str, Edit] = {
    "a header": Edit(lambda root: append(root / "shared.cuh"), {}, {}, {"a.cu"}),
    "a source": Edit(lambda root: append(root / "b.cu"), {}, {}, {"b.cu"}),
    "the architecture": Edit(lambda root: root, {"compute_capability": "8.0"}, {}, BOTH),
    "a flag": Edit(lambda root: root, {"extra_cuda_cflags": ["-lineinfo"]}, {}, BOTH),
    "nvcc as a whole": Edit(lambda root: root, {"extra_cuda_cflags": ["--time", "/dev/null"]}, {}, BOTH),
    "a variable that nvcc reads": Edit(lambda root: root, {}, {"NVCC_APPEND_FLAGS": "-DAPPENDED"}, BOTH),
    "a linker flag": Edit(lambda root: root, {"extra_ldflags": ["-Wl,-z,now"]}, {}, set()),
}


@pytest.mark.usefixtures("tmp_cache")  # where a preamble of the same flags comes into use, all is compiled once more
@pytest.mark.parametrize("name", [name if name == "a header" else in_full(name) for name in EDITS])
def test_an_edit_compiles_what_depends_on_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of two sources, one of which reads a header."""
    (folder := tmp_path / "kernels").mkdir()
    (folder / "shared.cuh").write_text("#pragma once\n")
    for entry, header in (("a", '#include "shared.cuh"\n'), ("b", "")):
        (folder / f"{entry}.cu").write_text(
            f'#include "brainevent/common.h"\n{header}__global__ void fill(float* out) {{ *out = 1; }}\n'
            f"// @BE {entry}\nvoid {entry}(BE::Tensor out, int64_t stream) {{\n"
            "  fill<<<1, 1, 0, (cudaStream_t)stream>>>(out.data_ptr<float>());\n}\n"
        )
    load = partial(be_runtime.load_cuda_dir, auto_register=False)
    second = load_twice(load, folder, EDITS[name], BOTH, monkeypatch)
    assert {arch for _, arch in images(second)} == {80 if name == "the architecture" else 90}
