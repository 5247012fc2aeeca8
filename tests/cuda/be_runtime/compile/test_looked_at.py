"""Whatever nvcc, its phases and the linkers look at decides whether a CUDA module is built again, and what of it."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.store.manifest import parse_manifest
from tests.cuda.built import images, inline
from tests.support import looked_at
from tests.support.looked_at import INCLUDES, LINKED, MAYBE, ONE, TWO, Case, apply, archives, both, filled
from tests.support.rebuilds import TICK_S, Edit, append, load_twice
from tests.support.requirements import OPTIONAL, in_full
from tests.support.runtime import script

KERNEL = (
    looked_at.ANSWERING
    + """__global__ void fill(float* out) {{ *out = 1.0f; }}
// @BE f
void f(BE::Tensor out, int64_t stream) {{ fill<<<1, 1, 0, (cudaStream_t)stream>>>(out.data_ptr<float>()); }}
"""
)
RDC = ("-rdc=true",)
HERE, EARLIER, LIBRARY = ("-I{}/i",), ("-I{}/e", "-I{}/i"), ("-L{}/lib", "-lx")
Files = dict[str, str | None]
NOTHING, ONE_FLAG, TWO_FLAG = Files({"i/x.h": ""}), Files(flags="-DANSWER=1"), Files(flags="-DANSWER=2")


def shadow(name: str) -> Files:
    return {f"i/{name}": f"{TWO}#include_next <{name}>"}


def compiler(root: Path) -> None:
    script(root / "g++", f"read -r value < {root}/value", f'exec {looked_at.REAL_CXX} "-DANSWER=$value" "$@"')


COMPILER, ARCHIVE = both({"value": "1\n"}, compiler), both({"e/x": ""}, archives("lib/libx.a")[0])
CASES = {
    "an earlier folder": Case(INCLUDES, {"i/a.h": ONE, "e/x.h": ""}, {"e/a.h": TWO}, EARLIER),
    "a header of CUDA's name": Case("#include <cuda_fp16.h>", NOTHING, shadow("cuda_fp16.h"), includes=("{}/i",)),
    "a header of our name": Case("", NOTHING, shadow("brainevent/check.h"), includes=("{}/i",)),
    "a header of the system's name": Case("#include <cfloat>", NOTHING, shadow("cfloat"), includes=("{}/i",)),
    "cuda_runtime.h": Case("", NOTHING, shadow("cuda_runtime.h"), HERE),
    "a header of CPATH that CUDA's own asks for": Case("", NOTHING, shadow("cstdlib"), environ={"CPATH": "{}/i"}),
    "a header that CUDA's own asks for": Case("", NOTHING, shadow("cstdlib"), HERE),
    "__has_include": Case(MAYBE, {"x.h": ""}, {"i/a.h": TWO}, HERE),
    "--options-file": Case("", ONE_FLAG, TWO_FLAG, ("--options-file", "{}/flags")),
    "@file of the host compiler": Case("", ONE_FLAG, TWO_FLAG, ("-Xcompiler", "@{}/flags")),
    "-idirafter of the host compiler": Case(MAYBE, {"s/x.h": ""}, {"s/a.h": TWO}, ("-Xcompiler", "-idirafter,{}/s")),
    "-include of the host compiler": Case("", {"a.h": ONE}, {"a.h": TWO}, ("-Xcompiler", "-include,{}/a.h")),
    "CPATH": Case(MAYBE, {"c/x.h": ""}, {"c/a.h": TWO}, environ={"CPATH": "{}/c"}),
    "a file that the host compiler's script reads": Case("", COMPILER, {"value": "2\n"}, environ={"CXX": "{}/g++"}),
    "a device link with an archive": Case(LINKED, *archives("lib/libx.a"), RDC, LIBRARY),
    "a device link with an earlier archive": Case(LINKED, ARCHIVE, archives("e/libx.a")[1], RDC, ("-L{}/e", *LIBRARY)),
}
SHORT = {("a header that CUDA's own asks for", 3), ("a device link with an archive", 1)}
"""What a preamble would hide is tried after three builds, what is linked after one; the rest is for `full`."""


def answer(case: Case, root: Path, text: str = "", **options: Any) -> tuple[int, Path]:
    """The answer of a module, and its library."""
    time.sleep(TICK_S)
    path = inline(
        "looked_at",
        KERNEL.format(text=filled(case.text, root)) + text,
        *(filled(flag, root) for flag in case.cflags),
        extra_include_paths=[filled(path, root) for path in case.includes],
        extra_ldflags=[filled(flag, root) for flag in case.ldflags],
        **options,
    ).path
    assert parse_manifest((path.parents[1] / "manifest.json").read_bytes()).uncertain == ()
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).answer())"
    done = subprocess.run([sys.executable, "-SE", "-c", code, path], capture_output=True, check=True, timeout=60)
    return int(done.stdout), path


@pytest.mark.needs("ar")
@pytest.mark.parametrize(
    ("name", "builds"), [each if each in SHORT else in_full(*each) for each in itertools.product(CASES, (1, 3))]
)
def test_what_a_build_looked_at_decides_it(name: str, builds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The second build with the same flags makes the preamble, and the third uses it."""
    case, root = CASES[name], tmp_path / "project"
    root.mkdir()
    for variable, value in case.environ.items():
        monkeypatch.setenv(variable, filled(value, root))
    apply(case.before, root)
    for number in range(builds):
        text = f"// {number}\n"
        first = answer(case, root, text)
        assert first[0] == 1
    assert answer(case, root, text) == first, "nothing has changed"
    apply(case.after, root)
    second = answer(case, root, text)
    if second[0] == 1 and answer(case, root, text, force_rebuild=True)[0] == 1:
        pytest.skip(f"{OPTIONAL}a compiler that looks there")
    assert second[0] == 2
    assert answer(case, root, text) == second


@pytest.mark.full
@pytest.mark.parametrize("flags", [(), ("--options-file", "{}/flags"), RDC])
def test_files_in_the_temporary_folder_change_nothing(flags: tuple[str, ...], tmp_path: Path):
    (tmp_path / "flags").write_text("")
    case = Case("", {}, {}, flags)
    first = answer(case, tmp_path)
    with tempfile.NamedTemporaryFile():
        assert answer(case, tmp_path) == first


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


@pytest.mark.full
@pytest.mark.usefixtures("tmp_cache")  # where a preamble of the same flags comes into use, all is compiled once more
@pytest.mark.parametrize("name", EDITS)
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
