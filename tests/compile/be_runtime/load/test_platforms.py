"""One operation in C++ and in CUDA, on a machine without a GPU."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime.errors import RegistrationError, SpecError
from tests.support.platforms import CPP, CUDA

X = jnp.arange(4.0)


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("BE_COMPUTE_CAPABILITIES", raising=False)


def test_a_call_is_for_the_platform_of_its_program_and_rules_are_given_once():
    ops = be_runtime.load_inline("platforms", cpp=CPP, cuda=CUDA)
    np.testing.assert_array_equal(ops.scale(X), 2 * X)
    np.testing.assert_array_equal(jax.jit(lambda x: ops["scale"](x, by=3.0))(X), 3 * X)
    np.testing.assert_array_equal(jax.vmap(ops.scale)(jnp.stack([X, X])), [2 * X, 2 * X])
    ops.scale.defvjp(None, lambda x, g, *, by: (by * g,))
    np.testing.assert_array_equal(jax.grad(lambda x: ops.scale(x).sum())(X), [2, 2, 2, 2])
    assert [*ops.parts] == ["cpp"]
    assert "scale" in dir(ops)
    with pytest.raises(AttributeError, match="module 'platforms' has no function 'scales'; it has scale, only_cpu"):
        _ = ops.scales
    with pytest.raises(KeyError, match="no function 'scales'"):
        ops["scales"]
    np.testing.assert_array_equal(ops.only_cpu(X), X)
    assert ops.function_names == ["scale", "only_cpu"]
    with pytest.raises(AttributeError, match="the CUDA source has it: name an architecture by compute_capability"):
        _ = ops.only_gpu
    with pytest.raises(RegistrationError, match=r"no kernel for cuda(.|\n)*compute_capability"):
        jax.jit(ops.scale).trace(X).lower(lowering_platforms=("cuda",))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ret[n]:float32", "ret[n]:float64", r"declares ret\[n\]:float32, and the other ret\[n\]:float64"),
        ("arg[n]:float32", "arg[n]", r"declares arg\[n\]:float32, and the other arg\[n\]"),
        (" parallel[n]", "", r"declares parallel\[n\], and the other nothing"),
        (
            "ret[n]:float32 stream parallel[n]\nvoid scale(const BE::Tensor x, float by, BE::Tensor y,",
            (
                "ret[n]:float32 scratch[4*n] stream parallel[n]\n"
                "void scale(const BE::Tensor x, float by, BE::Tensor y, BE::Workspace w,"
            ),
            r"declares nothing, and the other scratch\[4\*n\]",
        ),
        ("=2", "=3", r"attr.by:float32=2.0, and the other attr.by:float32=3.0"),
    ],
)
def test_what_two_sources_declare_differently_is_named(old: str, new: str, message: str):
    with pytest.raises(SpecError, match=message):
        be_runtime.load_inline("platforms", cpp=CPP, cuda=CUDA.replace(old, new))


def test_other_dtypes_of_a_variable_are_named():
    cpp, cuda = (text.replace("arg[n]:float32", "T=float32 arg[n]:T") for text in (CPP, CUDA))
    with pytest.raises(SpecError, match=r"declares T=float32 parallel\[n\], and the other T=float32\|float64 parallel"):
        be_runtime.load_inline("platforms_dtypes", cpp=cpp, cuda=cuda.replace("T=float32", "T=float32|float64"))


def test_other_names_of_optional_results_are_named():
    source = '#include "brainevent/common.h"\n// @BE f\nvoid f(BE::Tensor y, BE::Tensor* lo, BE::Tensor* hi) {}'
    cuda = source.replace("* lo, BE::Tensor* hi", "* hi, BE::Tensor* lo").replace("y,", "y, cudaStream_t s,")
    with pytest.raises(
        SpecError, match=r"declares ret ret\? ret\? \(lo, hi\), and the other ret ret\? ret\? \(hi, lo\)"
    ):
        be_runtime.load_inline("platforms_optional", cpp=source, cuda=f"#include <cuda_runtime.h>\n{cuda}")


def test_sources_that_are_swapped_have_a_hint(tmp_path: Path):
    swapped = r"hint: cpp has CUDA code and cuda has none: are the two sources swapped\?"
    with pytest.raises(be_runtime.BeRuntimeError, match=swapped):
        be_runtime.load_inline("platforms_swapped", cpp=CUDA, cuda=CPP)
    (tmp_path / "ops.cc").write_text(CPP)
    (tmp_path / "ops.cu").write_text(CUDA)
    with pytest.raises(be_runtime.BeRuntimeError, match=swapped):
        be_runtime.load_file("platforms_swapped", cpp=tmp_path / "ops.cu", cuda=tmp_path / "ops.cc")
    with pytest.raises(be_runtime.BeRuntimeError) as caught:
        be_runtime.load_inline("platforms_swapped", cpp=CPP + "x", cuda=CUDA)
    assert "swapped?" not in str(caught.value)


def test_files_and_folders_and_options_of_either_language(tmp_path: Path):
    (tmp_path / "ops.cc").write_text(CPP.replace("by *", "SIGN by *"))
    (tmp_path / "ops.cu").write_text(CUDA)
    ops = be_runtime.load_file(
        "platform_files",
        cpp=tmp_path / "ops.cc",
        cuda=tmp_path / "ops.cu",
        extra_cflags=["-DSIGN=-"],
        extra_cuda_cflags=["-O2"],
    )
    np.testing.assert_array_equal(ops.scale(X), -2 * X)
    ops = be_runtime.load_dir("platform_dir", cpp=tmp_path, cuda=tmp_path, extra_cflags=["-DSIGN=-"])
    np.testing.assert_array_equal(ops.scale(X), -2 * X)
    with pytest.raises(TypeError, match=r"load_inline\(\) got an unexpected keyword argument 'extra_flags'"):
        be_runtime.load_inline("platforms", cpp=CPP, cuda=CUDA, extra_flags=[])  # type: ignore[call-arg]
