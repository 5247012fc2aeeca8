"""What an edit of a folder of CUDA sources costs: exactly what depends on it is compiled again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from tests.support.cuda import device_code
from tests.support.rebuilds import TICK_S, append, compiled

pytestmark = pytest.mark.usefixtures("tmp_cache")

BOTH = {"a.cu", "b.cu"}


def source(name: str, header: str = "") -> str:
    return (
        f'#include "brainevent/common.h"\n{header}\n'
        f"__global__ void fill(float* out, float value) {{ *out = value; }}\n"
        f"// @BE {name}\nvoid {name}(BE::Tensor out, int64_t stream) {{\n"
        f"  fill<<<1, 1, 0, (cudaStream_t)stream>>>(out.data_ptr<float>(), 1.0f);\n}}\n"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sources, of which one reads a header."""
    root = tmp_path / "kernels"
    root.mkdir()
    (root / "a.cu").write_text(source("a", '#include "shared.cuh"'))
    (root / "b.cu").write_text(source("b"))
    (root / "shared.cuh").write_text("#pragma once\n")
    return root


def load(folder: Path, **options: Any) -> be_runtime.CompiledModule:
    options.setdefault("compute_capability", "9.0")
    return be_runtime.load_cuda_dir(folder, name="rebuilt", auto_register=False, **options)


def nothing(_root: Path) -> None:
    pass


EDITS: dict[str, tuple[Callable[[Path], None], dict[str, Any], dict[str, str], set[str]]] = {
    "a source": (lambda root: append(root / "b.cu"), {}, {}, {"b.cu"}),
    "a header": (lambda root: append(root / "shared.cuh"), {}, {}, {"a.cu"}),
    "the architecture": (nothing, {"compute_capability": "8.0"}, {}, BOTH),
    "a flag": (nothing, {"extra_cuda_cflags": ["-lineinfo"]}, {}, BOTH),
    "a variable that nvcc reads": (nothing, {}, {"NVCC_APPEND_FLAGS": "-DAPPENDED"}, BOTH),
    "a linker flag": (nothing, {"extra_ldflags": ["-Wl,-z,now"]}, {}, set()),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_compiles_what_depends_on_it(edit: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    change, options, environ, expected = EDITS[edit]
    first = load(folder)
    assert compiled(first) == BOTH
    change(folder)
    time.sleep(TICK_S)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    second = load(folder, **options)
    assert second.path != first.path
    assert compiled(second) == expected
    assert {code.arch for code in device_code(second.path)} == {80 if "compute_capability" in options else 90}


def test_whole_nvcc_makes_objects_of_its_own(folder: Path, tmp_path: Path):
    assert compiled(load(folder)) == BOTH
    assert compiled(load(folder, extra_cuda_cflags=["--time", str(tmp_path / "t.csv")])) == BOTH
