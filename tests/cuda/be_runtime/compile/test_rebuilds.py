"""What an edit of a folder of CUDA sources costs: exactly what depends on it is compiled again."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from tests.support.cuda import device_code
from tests.support.rebuilds import TICK_S, Edit, append, compiled, load_twice
from tests.support.requirements import in_full
from tests.support.runtime import real_compiler

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


EDITS: dict[str, Edit] = {
    "a source": Edit(lambda root: append(root / "b.cu"), {}, {}, {"b.cu"}),
    "a header": Edit(lambda root: append(root / "shared.cuh"), {}, {}, {"a.cu"}),
    "the architecture": Edit(nothing, {"compute_capability": "8.0"}, {}, BOTH),
    "a flag": Edit(nothing, {"extra_cuda_cflags": ["-lineinfo"]}, {}, BOTH),
    "a variable that nvcc reads": Edit(nothing, {}, {"NVCC_APPEND_FLAGS": "-DAPPENDED"}, BOTH),
    "a linker flag": Edit(nothing, {"extra_ldflags": ["-Wl,-z,now"]}, {}, set()),
}


@pytest.mark.parametrize("edit", [edit if edit == "a header" else in_full(edit) for edit in EDITS])
def test_an_edit_compiles_what_depends_on_it(edit: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    second = load_twice(load, folder, EDITS[edit], BOTH, monkeypatch)
    assert {code.arch for code in device_code(second.path)} == {
        80 if "compute_capability" in EDITS[edit].options else 90
    }


def test_what_a_source_asks_for_and_what_is_linked_in(folder: Path, tmp_path: Path):
    (folder / "shared.cuh").write_text('#if __has_include("late.cuh")\n#include "late.cuh"\n#endif\n')
    (folder / "b.cu").write_text(f'extern "C" int answer(void);\nint kept = answer();\n{source("b")}')
    library = tmp_path / "libanswer.a"

    def make_library(value: int) -> None:
        (tmp_path / "answer.c").write_text(f"int answer(void) {{ return {value}; }}\n")
        compiler = [real_compiler(), "-x", "c", "-fPIC", "-c", "answer.c", "-o", "answer.o"]
        for command in (compiler, ["ar", "rcs", library.name, "answer.o"]):
            subprocess.run(command, cwd=tmp_path, check=True, timeout=60)

    def load_linked() -> be_runtime.CompiledModule:
        time.sleep(TICK_S)
        return load(folder, extra_ldflags=[f"-L{tmp_path}", "-lanswer"])

    make_library(1)
    first = load_linked()
    assert load_linked().path == first.path
    make_library(2)
    second = load_linked()
    assert second.path != first.path
    assert compiled(second) == set()
    (folder / "late.cuh").write_text("")
    assert compiled(load_linked()) == {"a.cu"}


def test_whole_nvcc_makes_objects_of_its_own(folder: Path, tmp_path: Path):
    assert compiled(load(folder)) == BOTH
    assert compiled(load(folder, extra_cuda_cflags=["--time", str(tmp_path / "t.csv")])) == BOTH
