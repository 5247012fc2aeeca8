"""What surrounds generated code: an author's warnings, macros and pragmas don't reach it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import be_runtime
from tests.support.requirements import in_full
from tests.support.runtime import call

WARNINGS = (
    *("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wsign-conversion", "-Wold-style-cast"),
    *("-Wcast-qual", "-Wnull-dereference", "-Werror"),
)
KERNELS = {
    "strides": """
        for (int64_t i = 0; i < x.shape(0); ++i)
          for (int64_t j = 0; j < x.shape(1); ++j)
            out.data_ptr<float>()[i * out.stride(0) + j] = x.data_ptr<float>()[i * x.stride(0) + j * x.stride(-1)];""",
    "pointers": """
        BE_CHECK(x.ndim() == 2);
        const BE::Tensor copy = x;
        const int64_t *shape = copy.shape_ptr(), *strides = copy.strides_ptr();
        for (int64_t i = 0; i < shape[0] * strides[0]; ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i];""",
    "elements": "for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i];",
}
HEAD = '#include "brainevent/common.h"\n'
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def source(body: str, *, before: str = "", by: str = "&") -> str:
    return f"{HEAD}{before}\n// @BE f\nvoid f(const BE::Tensor{by} x, BE::Tensor{by} out) {{\n{body}\n}}\n"


def general_source(before: str = "") -> str:
    """A kernel whose generated code needs all of our headers."""
    return f"""
    #include <optional>
    #include <string_view>
    {HEAD}{before}
    enum class Mode {{ slow, fast }};
    struct Step {{ float rate = 0.5f; int n{{1}}; Mode mode = Mode::fast; }};
    // @BE f arg[n k] arg?[n] arg? arg... ret[n k] ret... attr.s attr.m attr.d attr.p attr.v
    void f(const BE::Tensor& x, const BE::Tensor*, std::optional<BE::Tensor>, const BE::Tensors&, BE::Tensor& out,
           BE::Tensors, std::string_view s = "a", Mode m = Mode::slow, BE::DType d = BE::DType::Int8, Step p = {{}},
           BE::Span<const float> v = {{}}) {{
      BE_CHECK(s == "a" && m == Mode::slow && d == BE::DType::Int8 && p.n == 1 && v[0] == 1.0f);
      {KERNELS["elements"]}
    }}
    """


GENERAL = {"v": np.ones(1, np.float32), "be_present": np.int64(0)}
"""Attributes of that kernel."""


def check(name: str, text: str, flags: tuple[str, ...] = (), **attrs: Any) -> None:
    be_runtime.load_cpp_inline(name, text, extra_cflags=flags)
    np.testing.assert_array_equal(call(f"{name}.f", jax.ShapeDtypeStruct(X.shape, X.dtype), X, **attrs), X)


LEVELS = [
    *((kind, by, level) for level in ("-O0", "-O3") for kind, by in zip(KERNELS, ("&", "", "&"), strict=True)),
    *(in_full(kind, by, level) for level in ("-O1", "-O2") for kind in KERNELS for by in ("", "&")),
    *(in_full(kind, by, level) for level in ("-O0", "-O3") for kind, by in zip(KERNELS, ("", "&", ""), strict=True)),
]


@pytest.mark.parametrize(("kind", "by", "level"), LEVELS)
def test_no_warning_is_about_our_code(kind: str, by: str, level: str):
    name = f"warned_{kind}_{'value' if by == '' else 'reference'}_{level[1:]}"
    check(name, source(KERNELS[kind], by=by), (*WARNINGS, level))


@pytest.mark.parametrize("level", ["-O0", in_full("-O2")])
def test_no_warning_is_about_our_code_for_general_calls(level: str):
    check(f"warned_{level[1:]}", general_source(), (*WARNINGS, level), **GENERAL)


MACROS = (
    "dims rank view holds run Indices values known types api buffer from stage ctx ptr len message matched tensors "
    "code data dtype shape count size extension attrs rets call trampoline entry traits where XlaItems kWrong"
)


def test_macros_of_the_author_do_not_reach_generated_code():
    """They come before it, after our headers."""
    before = "".join(f"#define {macro} 3 +\n" for macro in MACROS.split())
    body = "float* to = out.data_ptr<float>(); for (int i = 0; i < 6; ++i) to[i] = x.data_ptr<float>()[i];"
    check("macros", source(body, before=before))
    check("general_macros", general_source(before).replace(KERNELS["elements"], body), **GENERAL)


def test_an_alignment_that_the_author_leaves_set_does_not_reach_xla_s_structures():
    check("packed", source(KERNELS["strides"], before="#pragma pack(push, 1)"))
    check("general_packed", general_source("#pragma pack(push, 1)"), **GENERAL)


@pytest.mark.parametrize(
    ("entries", "inputs"), [(1, 0), in_full(1, 7), in_full(1, 8), (1, 40), in_full(30, 1), (17, 2)]
)
def test_any_number_of_tensors(entries: int, inputs: int):
    names = [f"x{index}" for index in range(inputs)]
    total = " + ".join(["0.0f", *(f"{name}.data_ptr<float>()[0]" for name in names)])
    parameters = ", ".join([*(f"const BE::Tensor {name}" for name in names), "BE::Tensor out"])
    entry = f"// @BE f{{0}}\nvoid f{{0}}({parameters}) {{{{ out.data_ptr<float>()[0] = {{0}} + {total}; }}}}\n"
    module = f"many_{entries}_{inputs}"
    be_runtime.load_cpp_inline(module, HEAD + "".join(entry.format(index) for index in range(entries)))
    last = call(f"{module}.f{entries - 1}", jax.ShapeDtypeStruct((1,), np.float32), *[np.ones(1, np.float32)] * inputs)
    assert last.tolist() == [entries - 1 + inputs]
