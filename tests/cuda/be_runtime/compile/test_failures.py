"""A CUDA source that does not build: the first real error, at the author's own line, and what to do about it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime import BuildError
from be_toolchain.errors import ArchError, ToolchainError
from tests.support import cuda, runtime
from tests.support.requirements import in_full

HEAD = '#include <cuda_runtime.h>\n#include "brainevent/common.h"\n'
ENTRY = """\
// @BE f
void f(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  k<<<1, 1, 0, (cudaStream_t)stream>>>(out.data_ptr<float>());
}
"""


def kernel(body: str = "out[0] = 1.0f;") -> str:
    return f"__global__ void k(float* out) {{\n  {body}\n}}\n"


def launcher(line: str) -> str:
    return HEAD + kernel() + ENTRY.replace("  k<<<", f"  {line}\n  k<<<")


GOOD = HEAD + kernel() + ENTRY
BAD_KERNEL = HEAD + kernel("out[0] = undefined_name;") + ENTRY
DISPATCH = "BE_DISPATCH_SIGNED_INDEX_PAIR(x.dtype(), A, out.dtype(), B, [&] { k<<<1, 1>>>(out.data_ptr<A>()); });"
SORT = "#include <algorithm>\nstruct P { float a; };\nstatic void g(P* p) {\n  std::sort(p, p + 3);\n}\n"
GONE = f"{HEAD}__device__ float gone();\n{kernel('*out = gone();')}"
LARGE = "__shared__ float tile[100000]; tile[threadIdx.x] = *out; __syncthreads(); *out = tile[3];"
BROKEN: dict[str, tuple[str | list[str], str, str]] = {
    "device code": (BAD_KERNEL, r'broken\(4\): error: identifier "undefined_name" is undefined\n +out\[0\] = unde', ""),
    "launcher": (launcher("x.nothing();"), r'broken\(8\): .* "BE::Tensor" has no member "nothing"\n +x.nothing\(', ""),
    "assembler": (HEAD + kernel('asm volatile("bogus.op;");') + ENTRY, "ptxas .*\n.* instruction: 'bogus'", ""),
    "host code": (
        f"{HEAD}int a = no_such(3);\n{ENTRY}",
        r'broken\(3\): .* "no_such" is undefined\n +int a = no_su',
        "",
    ),
    "the second text": ([HEAD + kernel(), ENTRY.replace("1, 1", "oops, 1")], r'broken\[1\]\(3\): .* "oops"', ""),
    "a comma in a check": (
        launcher('BE_CHECK(1, "empty");'),
        r"broken\(8\): ",
        'follows it: BE_CHECK(condition) << "me',
    ),
    "missing header": (f'#include "not_there.cuh"\n{GOOD}', "broken:1:10: .*: not_there.cuh", "extra_include_paths"),
    "no header of ours": (f"#include <cuda_runtime.h>\n{kernel()}{ENTRY}", r"broken\(6\): ", "brainevent/common.h"),
    "too much shared memory": (HEAD + kernel(LARGE) + ENTRY, "ptxas.* uses too much shared data", ""),
    "a function of another file": (GONE + ENTRY, ".*Unresolved extern function", "-rdc=true"),
    "dispatch": (launcher(DISPATCH), rf"broken\(8\): error.*\n.*{re.escape(DISPATCH)}", "two dtypes, then two names"),
    "template": (GOOD + SORT, r"broken\(13\): error: no operator.*\n.*std::sort\(p, p \+ 3\);", ""),
    "no cast": (GOOD.replace("(cudaStream_t)", ""), r"broken\(8\): error", "(cudaStream_t)stream"),
}
"""Sources, how the first error begins, and what the hints say: one of each program of nvcc, and for `full` the rest."""
SHORT = ("device code", "launcher", "assembler")


def load(text: str | list[str], **options: Any) -> be_runtime.CompiledModule:
    return be_runtime.load_cuda_inline("broken", text, auto_register=False, **options)


def failure(text: str | list[str]) -> BuildError:
    with pytest.raises(BuildError, match="broken") as caught:
        load(text)
    assert caught.value.command
    return caught.value


@pytest.mark.parametrize("name", [name if name in SHORT else in_full(name) for name in BROKEN])
def test_the_first_error_is_at_the_author_s_line(name: str):
    text, expected, hint = BROKEN[name]
    error = failure(text)
    assert re.match(expected, error.first_error), error.first_error
    assert hint in " ".join(error.hints)
    assert len(str(error)) < 5000
    assert len(str(error).splitlines()) < 25, "it is one screen"
    assert load(GOOD).function_names == ["f"], "a failure leaves no entry"


@pytest.mark.full
def test_a_flag_that_nvcc_does_not_know():
    with pytest.raises(BuildError, match="no-such-flag"):
        load(GOOD, extra_cuda_cflags=["--no-such-flag"])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("sm_999", r"cannot target sm_999\n.* targets .*sm_80, .*sm_90"),
        (["8.0", "bogus"], "'bogus' is not a GPU architecture"),
        (90, r"\nhint: write it as '90'\ncauses and"),
        (9.0, r"\nhint: write it as '9.0'\ncauses and"),
        ({"sm_90"}, r"\nhint: write it as 'sm_90'\ncauses and"),
        (["9.0", 8.0], r"\nhint: write it as '8.0,9.0'\ncauses and"),
        (True, r"not True\ncauses and"),
        ([None], r"not \[None\]\ncauses and"),
    ],
)
def test_an_architecture_that_does_not_exist_or_is_of_the_wrong_type(asked: Any, words: str):
    with pytest.raises((ArchError, be_runtime.ArgumentError), match=words) as caught:
        load(GOOD, compute_capability=asked)
    is_of_the_wrong_type = "compute_capability must be a string" in str(caught.value)
    assert is_of_the_wrong_type == isinstance(caught.value, be_runtime.ArgumentError)


@pytest.mark.full
def test_the_message_is_the_same_whatever_variables_ask_programs_for(monkeypatch: pytest.MonkeyPatch, tmp_cache: Path):
    """The dry run is made anew with them."""
    plain = failure(BROKEN["no cast"][0])
    for name, value in runtime.PRINTING.items():
        monkeypatch.setenv(name, value)
    be_runtime.set_cache_dir(tmp_cache / "another")
    assert failure(BROKEN["no cast"][0]).first_error == plain.first_error


@pytest.mark.usefixtures("tmp_cache")
def test_an_nvcc_that_fails_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shim = runtime.script(tmp_path / "nvcc", "echo 'the license server is down' >&2", "exit 3")
    monkeypatch.setenv("BE_NVCC", str(shim))
    with pytest.raises(ToolchainError, match=str(shim)):
        load(GOOD)


def test_a_number_of_a_gpu_s_call_is_not_read_by_the_host():
    source = cuda.source("numbers").replace("BE::Scalar<float> lr", "float lr")
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cuda_inline("host_number", source, compute_capability=cuda.ARCH)
    assert "take a BE::Scalar<T>, and pass it to the kernel" in caught.value.output
