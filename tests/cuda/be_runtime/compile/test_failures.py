"""A CUDA source that does not build: the first real error, at the author's own line, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime import BeRuntimeError, BuildError
from be_runtime.cache import Store
from be_runtime.load import pipeline
from be_runtime.load.registry import Registry
from be_runtime.load.session import Session
from be_runtime.request.arguments import cuda_request, inline_units, load_options
from be_runtime.settings import Settings
from be_toolchain.errors import ArchError, CudaNotFoundError, ToolchainError
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import FileStamp
from tests.support import runtime
from tests.support.cuda import device_code, run_json
from tests.support.runtime import PRINTING

HEAD = '#include <cuda_runtime.h>\n#include "brainevent/common.h"\n'
KERNEL = "__global__ void k(float* out) { out[0] = 1.0f; }\n"
ENTRY = """\
// @BE f
void f(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  k<<<1, 1, 0, (cudaStream_t)stream>>>(out.data_ptr<float>());
}
"""


def load(text: str, **options: Any) -> be_runtime.CompiledModule:
    return be_runtime.load_cuda_inline("broken", text, auto_register=False, **options)


def failure(text: str, **options: Any) -> BuildError:
    with pytest.raises(BuildError) as caught:
        load(text, **options)
    assert "broken" in str(caught.value)
    assert caught.value.command
    return caught.value


ERRORS: Mapping[str, tuple[str, str]] = {
    "device code": (
        HEAD + "__global__ void k(float* out) {\n  out[0] = undefined_name;\n}\n" + ENTRY,
        'broken(4): error: identifier "undefined_name" is undefined',
    ),
    "host code": (
        HEAD + KERNEL + "static int helper() {\n  return no_such_function(3);\n}\n" + ENTRY,
        'broken(5): error: identifier "no_such_function" is undefined',
    ),
    "launcher": (
        HEAD + KERNEL + ENTRY.replace("  k<<<", "  x.nothing();\n  k<<<"),
        'broken(6): error: class "BE::Tensor" has no member "nothing"',
    ),
    "after warnings": (
        HEAD
        + "static int unused(int a) {\n  int never = 3;\n  return a;\n}\n"
        + '__global__ void k(float* out) {\n  int unused = 3;\n  out[0] = "text" * 2.0f;\n}\n'
        + ENTRY,
        "broken(9): error: ",
    ),
    "several": (
        HEAD + KERNEL + "static int a = first_mistake;\nstatic int b = second_mistake;\n" + ENTRY,
        'broken(4): error: identifier "first_mistake" is undefined',
    ),
}


@pytest.mark.parametrize("place", ERRORS)
def test_first_error_is_at_the_author_s_line(place: str):
    text, expected = ERRORS[place]
    error = failure(text)
    assert error.first_error.startswith(expected)
    assert expected in str(error).splitlines()[1]
    assert error.output.index(expected) >= 0
    line = text.splitlines()[int(expected.partition("(")[2].partition(")")[0]) - 1]
    assert line.strip() in error.first_error


def test_a_check_with_a_comma_before_its_message_is_refused():
    error = failure(HEAD + KERNEL + ENTRY.replace("  k<<<", '  BE_CHECK(out.numel() > 0, "empty");\n  k<<<'))
    assert error.hints == ('the message of BE_CHECK follows it: BE_CHECK(condition) << "message"',)


def test_error_in_a_file_names_the_file(tmp_path: Path):
    path = tmp_path / "my kernel.cu"
    path.write_text(ERRORS["device code"][0])
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cuda_file(path, name="broken", auto_register=False)
    assert caught.value.first_error.startswith(f"{path}(4): error")


def test_error_in_an_included_header_names_the_header(tmp_path: Path):
    (tmp_path / "helper.cuh").write_text("#pragma once\n\n__device__ int helper() { return oops; }\n")
    (tmp_path / "broken.cu").write_text(HEAD + '#include "helper.cuh"\n' + KERNEL + ENTRY)
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cuda_file(tmp_path / "broken.cu", auto_register=False)
    assert caught.value.first_error.startswith(f"{tmp_path}/helper.cuh(3): error")


def test_error_in_one_file_of_a_folder(tmp_path: Path):
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "a.cu").write_text(HEAD + KERNEL + ENTRY)
    (folder / "b.cu").write_text(HEAD + KERNEL.replace("1.0f", "oops") + ENTRY)
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cuda_dir(folder, auto_register=False)
    assert caught.value.first_error.startswith(f"{folder}/b.cu(3): error")
    assert "broken" in str(caught.value)


def test_error_in_the_second_of_several_texts():
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cuda_inline("broken", [HEAD + KERNEL, ENTRY.replace("1, 1", "oops, 1")], auto_register=False)
    assert caught.value.first_error.startswith('broken[1](3): error: identifier "oops"')


def test_missing_header():
    error = failure(HEAD + '#include "not_there.cuh"\n' + KERNEL + ENTRY)
    assert error.first_error.startswith("broken:3:10: fatal error: not_there.cuh")
    assert "extra_include_paths" in " ".join(error.hints)


def test_missing_include_of_ours():
    error = failure("#include <cuda_runtime.h>\n" + KERNEL + ENTRY)
    assert error.first_error.startswith("broken(4): error")
    assert "brainevent/common.h" in " ".join(error.hints)


def test_assembler_error():
    error = failure(HEAD + '__global__ void k(float* out) { asm volatile("bogus.op;"); }\n' + ENTRY)
    assert "ptxas" in error.first_error
    assert "bogus" in error.first_error


def test_too_much_shared_memory():
    body = "{ __shared__ float tile[100000]; tile[threadIdx.x] = *out; __syncthreads(); *out = tile[3]; }\n"
    error = failure(HEAD + "__global__ void k(float* out) " + body + ENTRY)
    assert "uses too much shared data" in error.first_error


def test_device_function_defined_nowhere():
    error = failure(HEAD + "__device__ float gone();\n__global__ void k(float* out) { *out = gone(); }\n" + ENTRY)
    assert "Unresolved extern function" in error.first_error
    assert "-rdc=true" in " ".join(error.hints)


def test_host_function_defined_nowhere():
    text = HEAD + KERNEL + "int gone(int);\n" + ENTRY.replace("<<<1", "<<<gone(1)")
    with pytest.raises(BeRuntimeError, match=r"gone") as caught:
        load(text)
    assert "extra_ldflags" in " ".join(caught.value.hints)


def test_library_that_is_not_there():
    error = failure(HEAD + KERNEL + ENTRY, extra_ldflags=["-lnot_a_library"])
    assert "not_a_library" in error.first_error
    assert "extra_ldflags" in " ".join(error.hints)


def test_flag_that_nvcc_does_not_know():
    error = failure(HEAD + KERNEL + ENTRY, extra_cuda_cflags=["--no-such-flag"])
    assert "no-such-flag" in error.first_error


def test_a_failure_leaves_no_entry_and_a_mended_source_builds():
    failure(ERRORS["host code"][0])
    assert load(HEAD + KERNEL + ENTRY).function_names == ["f"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("sm_999", "cannot target sm_999"),
        ("9.9", "cannot target sm_99"),
        ("abc", "'abc' is not a GPU architecture"),
        ("", "names no GPU architecture"),
        ([], "names no GPU architecture"),
        (["8.0", "bogus"], "'bogus' is not a GPU architecture"),
        ("8.0,bogus", "'bogus' is not a GPU architecture"),
        ("sm_20", "needs an older CUDA release"),
    ],
)
def test_architecture_that_does_not_exist(asked: str | list[str], words: str):
    with pytest.raises(ArchError, match=words):
        load(HEAD + KERNEL + ENTRY, compute_capability=asked)


def test_unknown_architecture_says_which_are_known():
    with pytest.raises(ArchError, match=r"targets .*sm_80, .*sm_90"):
        load(HEAD + KERNEL + ENTRY, compute_capability="sm_999")


@pytest.mark.parametrize(
    ("asked", "spelling"),
    [(90, "'90'"), (9.0, "'9.0'"), ({"sm_90"}, "'sm_90'"), (["9.0", 8.0], "'8.0,9.0'"), (True, None), ([None], None)],
)
def test_architecture_of_the_wrong_type(asked: Any, spelling: str | None):
    with pytest.raises(be_runtime.ArgumentError, match="compute_capability must be a string") as caught:
        load(HEAD + KERNEL + ENTRY, compute_capability=asked)
    assert caught.value.hints == (() if spelling is None else (f"write it as {spelling}",))


def test_a_mistake_in_a_dispatch_macro_is_one_screen():
    body = "BE_DISPATCH_SIGNED_INDEX_PAIR(x.dtype(), A, out.dtype(), B, [&] { k<<<1, 1>>>(out.data_ptr<A>()); });"
    error = failure(HEAD + KERNEL + ENTRY.replace("k<<<", f"{body}\n  k<<<", 1))
    assert error.first_error.startswith("broken(6): error")
    assert body in error.first_error.splitlines()[1]
    assert len(str(error)) < 5000
    assert len(str(error).splitlines()) < 25
    assert "two dtypes, then two names" in error.hints[0]


def test_an_error_in_a_template_is_shown_at_the_author_s_line():
    helper = "#include <algorithm>\nstruct P { float a; };\nstatic void g(P* p) {\n  std::sort(p, p + 3);\n}\n"
    error = failure(HEAD + KERNEL + helper + ENTRY)
    assert error.first_error.startswith("broken(7): error: no operator")
    assert "std::sort(p, p + 3);" in error.first_error.splitlines()[1]


def test_the_message_is_the_same_whatever_variables_ask_programs_for(monkeypatch: pytest.MonkeyPatch, tmp_cache: Path):
    """The dry run is made anew with them."""
    source = HEAD + KERNEL + ENTRY.replace("(cudaStream_t)", "")
    plain = failure(source)
    for name, value in PRINTING.items():
        monkeypatch.setenv(name, value)
    be_runtime.set_cache_dir(tmp_cache / "another")
    surrounded = failure(source)
    assert surrounded.first_error == plain.first_error


def test_a_stream_without_the_cast():
    error = failure(HEAD + KERNEL + ENTRY.replace("(cudaStream_t)", ""))
    assert error.first_error.startswith("broken(6): error")
    assert "(cudaStream_t)stream" in error.hints[0]


LOAD_WITHOUT_DEVICE = """
import json, sys, warnings
import be_runtime
with warnings.catch_warnings(record=True) as caught:
    module = be_runtime.load_cuda_inline("no_device", sys.argv[1], auto_register=False)
print(json.dumps([str(module.path), *(str(each.message) for each in caught)]))
"""


def test_no_device_and_no_architecture():
    """In a process of its own: the driver reads which devices are visible only once."""
    hidden = {"CUDA_VISIBLE_DEVICES": "", "BE_COMPUTE_CAPABILITIES": None}
    path, message = run_json(LOAD_WITHOUT_DEVICE, HEAD + KERNEL + ENTRY, **hidden)
    assert "no GPU is visible" in message
    assert "compute_capability='sm_90'" in message
    assert {(code.kind, code.arch) for code in device_code(Path(path))} == {("elf", 75), ("ptx", 75)}


def test_an_nvcc_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_cache: Path):
    monkeypatch.setenv("BE_NVCC", "/nowhere/bin/nvcc")
    with pytest.raises(CudaNotFoundError, match="/nowhere/bin/nvcc"):
        load(HEAD + KERNEL + ENTRY)


class WithoutCuda(LocalSystem):
    """This machine without any folder or program of CUDA."""

    def stat(self, path: str | Path) -> FileStamp | None:
        return None if "cuda" in str(path) or str(path).endswith("nvcc") else super().stat(path)

    def list_dir(self, path: Path) -> tuple[str, ...]:
        return tuple(name for name in super().list_dir(path) if "cuda" not in name)


def test_no_nvcc_anywhere(tmp_path: Path):
    """Every place that was looked at is named, and what to do."""
    request = cuda_request("broken", inline_units("broken", HEAD + KERNEL + ENTRY, "cuda_sources"), None)
    session = Session(
        system=WithoutCuda(),
        settings=Settings.from_environ(dict(os.environ)),
        cache=Store(tmp_path),
        module_store=Store(tmp_path),
        record_dir=tmp_path,
        registry=Registry(lambda name, handler, platform: None),
    )
    with pytest.raises(CudaNotFoundError) as caught:
        pipeline.load(request, load_options("broken"), session)
    message = str(caught.value)
    for place in ("CUDA_HOME", "PATH", "/usr/local/cuda", "wheels"):
        assert place in message
    assert "pip install" in message


def test_nvcc_that_fails_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_cache: Path):
    shim = runtime.script(tmp_path / "nvcc", "echo 'the license server is down' >&2", "exit 3")
    monkeypatch.setenv("BE_NVCC", str(shim))
    with pytest.raises(ToolchainError, match=str(shim)):
        load(HEAD + KERNEL + ENTRY)
