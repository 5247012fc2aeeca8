"""Whatever nvcc, its phases and the linkers look at decides whether a CUDA module is built again."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import be_runtime
from be_runtime.cache.validity.manifest import parse_manifest
from tests.support.looked_at import (
    ANSWERING,
    ASSEMBLED,
    BY_DEFSYM,
    INCLUDES,
    LINKED,
    MAYBE,
    ONE,
    REAL_CXX,
    TWO,
    Case,
    apply,
    archives,
    assembler,
    both,
    filled,
    wrapper,
)
from tests.support.rebuilds import TICK_S, compiled
from tests.support.requirements import OPTIONAL, in_full
from tests.support.runtime import script

pytestmark = pytest.mark.usefixtures("tmp_cache")

KERNEL = (
    ANSWERING
    + """__global__ void fill(float* out) {{ *out = 1.0f; }}
// @BE f
void f(BE::Tensor out, int64_t stream) {{ fill<<<1, 1, 0, (cudaStream_t)stream>>>(out.data_ptr<float>()); }}
"""
)
RDC = ("-rdc=true",)
PATH = os.environ["PATH"]
SHADOW = "{two}#include_next <{name}>"


def shadow(name: str) -> dict[str, str | None]:
    return {f"i/{name}": SHADOW.format(two=TWO, name=name)}


CASES = {
    "a header": Case(INCLUDES, {"i/a.h": ONE}, {"i/a.h": TWO}, ("-I{}/i",)),
    "an earlier folder": Case(INCLUDES, {"i/a.h": ONE, "e/x.h": ""}, {"e/a.h": TWO}, ("-I{}/e", "-I{}/i")),
    "a header of CUDA's name": Case("#include <cuda_fp16.h>", {"i/x.h": ""}, shadow("cuda_fp16.h"), includes=("{}/i",)),
    "a header of our name": Case("", {"i/x.h": ""}, shadow("brainevent/check.h"), includes=("{}/i",)),
    "a header of the system's name": Case("#include <cfloat>", {"i/x.h": ""}, shadow("cfloat"), includes=("{}/i",)),
    "a header of CUDA's name, -I": Case("#include <cuda_bf16.h>", {"i/x.h": ""}, shadow("cuda_bf16.h"), ("-I{}/i",)),
    "cuda_runtime.h": Case("", {"i/x.h": ""}, shadow("cuda_runtime.h"), ("-I{}/i",)),
    "a header of CPATH that CUDA's own asks for": Case("", {"i/x.h": ""}, shadow("cstdlib"), environ={"CPATH": "{}/i"}),
    "a header that CUDA's own asks for": Case("", {"i/x.h": ""}, shadow("cstdlib"), ("-I{}/i",)),
    "__has_include by a macro": Case(
        '#define NAME "a.h"\n#if __has_include(NAME)\n#include NAME\n#endif', {"i/x.h": ""}, {"i/a.h": TWO}, ("-I{}/i",)
    ),
    "__has_include": Case(MAYBE, {"x.h": ""}, {"i/a.h": TWO}, ("-I{}/i",)),
    "-include": Case("", {"a.h": ONE}, {"a.h": TWO}, ("-include", "{}/a.h")),
    "--options-file": Case("", {"flags": "-DANSWER=1"}, {"flags": "-DANSWER=2"}, ("--options-file", "{}/flags")),
    "@file of the host compiler": Case(
        "", {"flags": "-DANSWER=1"}, {"flags": "-DANSWER=2"}, ("-Xcompiler", "@{}/flags")
    ),
    "-isystem of the host compiler": Case(
        MAYBE, {"s/x.h": ""}, {"s/a.h": TWO}, ("-Xcompiler", "-idirafter,{}/s")
    ),
    "-include of the host compiler": Case("", {"a.h": ONE}, {"a.h": TWO}, ("-Xcompiler", "-include,{}/a.h")),
    "CPATH": Case(MAYBE, {"c/x.h": ""}, {"c/a.h": TWO}, environ={"CPATH": "{}/c"}),
    ".incbin": Case(
        ASSEMBLED.replace("{}", '.incbin \\"{}/value.bin\\"').join(("#ifndef __CUDA_ARCH__\n", "\n#endif")),
        lambda root: (root / "value.bin").write_bytes(b"\1\0\0\0"),
        lambda root: (root / "value.bin").write_bytes(b"\2\0\0\0"),
    ),
    "an assembler first on PATH": Case(
        BY_DEFSYM.join(("#ifndef __CUDA_ARCH__\n", "\n#endif")),
        {"bin/x": ""},
        assembler("bin/as"),
        environ={"PATH": f"{{}}/bin:{PATH}"},
    ),
    "a host compiler that is a script": Case(
        "", wrapper("g++", 1), wrapper("g++", 2), environ={"NVCC_CCBIN": "{}/g++", "CXX": "{}/g++"}
    ),
    "a file that the host compiler's script reads": Case(
        "",
        both(
            {"value": "1\n"},
            lambda root: script(
                root / "g++", f"read -r value < {root}/value", f'exec {REAL_CXX} "-DANSWER=$value" "$@"'
            ),
        ),
        {"value": "2\n"},
        environ={"CXX": "{}/g++"},
    ),
    "-l": Case(LINKED, *archives("lib/libx.a"), ldflags=("-L{}/lib", "-lx")),
    "an archive in an earlier folder": Case(
        LINKED,
        both({"e/x": ""}, archives("lib/libx.a")[0]),
        archives("e/libx.a")[1],
        ldflags=("-L{}/e", "-L{}/lib", "-lx"),
    ),
    "a device link": Case(INCLUDES, {"i/a.h": ONE}, {"i/a.h": TWO}, ("-I{}/i", *RDC)),
    "a device link with an archive": Case(LINKED, *archives("lib/libx.a"), RDC, ("-L{}/lib", "-lx")),
    "a device link with an earlier archive": Case(
        LINKED,
        both({"e/x": ""}, archives("lib/libx.a")[0]),
        archives("e/libx.a")[1],
        RDC,
        ("-L{}/e", "-L{}/lib", "-lx"),
    ),
}  # fmt: skip
SHORT = {
    ("an earlier folder", 3),
    ("cuda_runtime.h", 3),
    ("a header that CUDA's own asks for", 3),
    *((name, 1) for name in ("__has_include", "CPATH", ".incbin", "-l", "a device link with an archive")),
    ("a file that the host compiler's script reads", 1),
}
"""A case of each kind: what a preamble would hide is tried with one, after three builds, and the rest without."""
TRIED = [each if each in SHORT else in_full(*each) for each in itertools.product(CASES, (1, 3))]


class Answer(NamedTuple):
    """The answer of a module, and its library."""

    value: int
    path: Path


def load(case: Case, root: Path, *, more: str = "", **options: Any) -> be_runtime.CompiledModule:
    time.sleep(TICK_S)
    return be_runtime.load_cuda_inline(
        "looked_at",
        KERNEL.format(text=filled(case.text, root)) + more,
        extra_cuda_cflags=[filled(flag, root) for flag in case.cflags],
        extra_include_paths=[filled(path, root) for path in case.includes],
        extra_ldflags=[filled(flag, root) for flag in case.ldflags],
        compute_capability="sm_80",
        auto_register=False,
        **options,
    )


def answer(case: Case, root: Path, *, more: str = "", **options: Any) -> Answer:
    path = load(case, root, more=more, **options).path
    assert parse_manifest((path.parent / "manifest.json").read_bytes()).uncertain == ()
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).answer())"
    done = subprocess.run([sys.executable, "-SE", "-c", code, path], capture_output=True, check=True, timeout=60)
    return Answer(int(done.stdout), path)


@pytest.mark.needs("ar")
@pytest.mark.parametrize(("name", "builds"), TRIED)
def test_what_a_cuda_build_looked_at_decides_it(
    name: str, builds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The second build with the same flags makes the preamble, and the third uses it."""
    case, root = CASES[name], tmp_path / "project"
    root.mkdir()
    for variable, value in case.environ.items():
        monkeypatch.setenv(variable, filled(value, root))
    apply(case.before, root)
    texts = ["", *(f"// {number}\n" for number in range(1, builds))]
    for text in texts:
        first = answer(case, root, more=text)
        assert first.value == 1
    assert answer(case, root, more=texts[-1]) == first, "nothing has changed"
    apply(case.after, root)
    second = answer(case, root, more=texts[-1])
    if second.value == 1 and answer(case, root, more=texts[-1], force_rebuild=True).value == 1:
        pytest.skip(f"{OPTIONAL}a compiler that looks there")
    assert second.value == 2
    assert answer(case, root, more=texts[-1]) == second


def test_a_file_of_a_cuda_folder_that_asks_is_compiled_again(tmp_path: Path):
    folder = tmp_path / "kernels"
    folder.mkdir()
    kernel = '#include "brainevent/common.h"\n{}\n// @BE {}\nvoid {}(BE::Tensor out, int64_t stream) {{ (void)out; }}\n'
    for name in ("asks", "b", "c", "d"):  # as many as make the preamble at once
        asks = MAYBE.replace("a.h", "answer.h") if name == "asks" else ""
        (folder / f"{name}.cu").write_text(kernel.format(asks, name, name))
    load = partial(be_runtime.load_cuda_dir, folder, compute_capability="sm_80", auto_register=False)
    every = {"asks.cu", "b.cu", "c.cu", "d.cu"}
    assert compiled(load()) == every
    for shadowed in ("cuda_fp16.h", "brainevent/check.h"):
        (folder / "answer.h").write_text(f"{TWO}// before {shadowed}\n")
        time.sleep(TICK_S)
        assert compiled(load()) == {"asks.cu"}
        (folder / shadowed).parent.mkdir(exist_ok=True)
        (folder / shadowed).write_text(f"#include_next <{shadowed}>\n")
        time.sleep(TICK_S)
        assert compiled(load(extra_include_paths=[str(folder)])) == every


@pytest.mark.parametrize("flags", [(), ("--options-file", "{}/flags"), RDC])
def test_files_in_the_temporary_folder_change_nothing(flags: tuple[str, ...], tmp_path: Path):
    (tmp_path / "flags").write_text("")
    case = Case("", {}, {}, flags)
    first = answer(case, tmp_path)
    with tempfile.NamedTemporaryFile():
        assert answer(case, tmp_path) == first
