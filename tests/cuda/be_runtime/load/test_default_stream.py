"""``default_stream="xla"``: the linker sends work on CUDA's default stream to the stream of the call."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime import inspection
from be_runtime.errors import ArgumentError
from tests.support import cuda

WRAPPED = ("__cudaPushCallConfiguration", "cudaMemcpy", "cudaMemset", "cudaLaunchKernelExC", "cudaStreamSynchronize")


def local_names(module: be_runtime.CompiledModule) -> set[str]:
    image = Path(module.path).read_bytes()
    return {each.name.decode() for each in inspection.symbols(image) if each.is_defined}


def test_a_module_has_our_functions_between_its_code_and_cuda_s_and_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module = be_runtime.load_cuda_inline(
            "on_default_stream", cuda.source("default_stream"), compute_capability=cuda.ARCH, default_stream="xla"
        )
    assert module.function_names == ["shift", "first", "sorted"]
    names = local_names(module)
    assert {f"__wrap_{name}" for name in WRAPPED} <= names
    with pytest.warns(be_runtime.StreamWarning) as warned:
        plain = be_runtime.load_cuda_inline(
            "on_cuda_s", cuda.source("default_stream"), compute_capability=cuda.ARCH, auto_register=False
        )
    assert [str(each.message).partition(" works on")[0] for each in warned] == [
        "on_cuda_s.shift", "on_cuda_s.first", "on_cuda_s.sorted"
    ]  # fmt: skip
    assert not any(name.startswith("__wrap_") for name in local_names(plain))


@pytest.mark.full
def test_two_units_share_them(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.cu").write_text(cuda.source("default_stream").replace("shift", f"shift_{name}"))
    module = be_runtime.load_cuda_dir(
        tmp_path, name="two_units", compute_capability=cuda.ARCH, default_stream="xla", auto_register=False
    )
    assert "__wrap_cudaMemcpy" in local_names(module)


def test_a_library_that_is_not_reached_is_named_and_so_is_a_wrong_stream():
    with pytest.warns(be_runtime.StreamWarning, match="is linked with -lcudart, whose work on CUDA's default stream"):
        be_runtime.load_cuda_inline(
            "unreached",
            cuda.source("default_stream"),
            compute_capability=cuda.ARCH,
            default_stream="xla",
            extra_ldflags=["-lcudart"],
        )
    with pytest.raises(ArgumentError, match="default_stream must be 'cuda' or 'xla', not 'legacy'"):
        be_runtime.load_cuda_inline("k", cuda.source("default_stream"), default_stream="legacy")


def test_launches_of_an_included_file_are_named(tmp_path: Path):
    (tmp_path / "upstream.cu").write_text(
        "#include <cuda_runtime.h>\n__global__ void fill(float* y) { *y = 1; }\n"
        "void published(float* y) {\n  fill<<<1, 1>>>(y);\n}\n"
    )
    text = """#include "upstream.cu"
    #include "brainevent/common.h"
    // @BE run arg[] ret[]
    void run(const BE::Tensor x, BE::Tensor y) { published(y.data_ptr<float>()); }
    """
    options: Any = {"compute_capability": cuda.ARCH, "auto_register": False, "extra_include_paths": [tmp_path]}
    with pytest.warns(be_runtime.StreamWarning, match=r"included\.run works on .*upstream\.cu:4 \(fill<<<1, 1>>>\)"):
        be_runtime.load_cuda_inline("included", text, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        be_runtime.load_cuda_inline("included", text, default_stream="xla", **options)


def test_streams_of_threads_are_refused():
    options: Any = {"compute_capability": cuda.ARCH, "extra_cuda_cflags": ["--default-stream", "per-thread"]}
    with pytest.raises(be_runtime.BuildError, match="does not work with --default-stream per-thread"):
        be_runtime.load_cuda_inline("per_thread", cuda.source("default_stream"), default_stream="xla", **options)
