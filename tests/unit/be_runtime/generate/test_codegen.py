"""The generated text: golden files for the whole, properties for its parts."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from be_runtime.dtypes import ATTR_TYPES, BY_NAME, DTYPES, DType
from be_runtime.generate.codegen import (
    Binding,
    line_directive,
    render_include,
    render_inline_source,
    render_unit,
)
from be_runtime.generate.cpp_text import c_string
from be_runtime.request.options import Language
from be_runtime.source_text import SourceText
from be_runtime.spec.discovery import discover
from be_runtime.spec.model import EntryPoint, Param, Role

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "BE_UPDATE_GOLDEN"

SOURCE = SourceText(
    name='kernels/a "b".cc',
    text="""
// @BE scale attr.factor:float32 arg ret stream attr.Count
void scale(float factor, const BE::Tensor x, BE::Tensor out, int64_t stream, int Count) {}
namespace ops {
// @BE fill
void fill(BE::Tensor first, BE::Tensor second) {}
}
// @BE every
void every(BE::Tensor out, bool a, std::complex<double> b, uint64_t c, std::complex<float> d) {}
// @BE halves ret attr.h:float16 attr.b:bfloat16
void halves(BE::Tensor out, uint16_t h, uint16_t b) {}
""",
)


KINDS = SourceText(
    name="kinds.cc",
    text="""
enum Mode { fast, slow };
struct Step { float rate = 0.1f; int n; Mode mode = slow; };
// @BE f arg[n] arg?[n] arg... ret[n] ret... attr.step attr.mode attr.text attr.axes attr.type attr.scale
void f(const BE::Tensor x, const BE::Tensor* y, const BE::Tensors xs, BE::Tensor out, BE::Tensors outs, Step step,
       Mode mode, std::string_view text, BE::Span<const std::complex<float>> axes, BE::DType type, double scale = .1) {}
// @BE g
void g(BE::Tensor out, int n = -1) {}
""",
)


def bindings(source: SourceText = SOURCE) -> list[Binding]:
    entries = discover([source])
    return [Binding(entry=entry, symbol=f"file_{entry.name}", export=f"file.{entry.name}") for entry in entries]


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_golden_files(language: Language):
    """The text decides every user's binary: a change of it should be seen, and meant."""
    check_golden(f"unit_{language}.txt", bindings(), language)


def test_golden_file_of_what_is_not_plain():
    check_golden("unit_kinds.txt", bindings(KINDS), "cpp")


def check_golden(name: str, bound: list[Binding], language: Language) -> None:
    text = render_unit(render_include("/src/a.cc"), "module", bound, language=language)
    path = GOLDEN / name
    if os.environ.get(UPDATE):
        path.write_text(text)
    assert text == path.read_text(), (
        f"the generated text differs from {path.name}. If that is meant, look at the difference, then run\n"
        f"  {UPDATE}=1 python -m pytest {Path(__file__).name} && git diff {path.name}\n"
        "and commit the new file. Every cached module of every user will be built again."
    )


def binding(*params: Param, name: str = "f") -> Binding:
    entry = EntryPoint(name=name, call_name=f"::{name}", params=params, source="m", line=7)
    return Binding(entry=entry, symbol=name, export=name)


def test_only_what_needs_more_includes_more():
    heads = {}
    for name, text in {"plain": "", "attributes": "int n = 1", "arrays": "const BE::Tensors x"}.items():
        params = ", ".join(filter(None, ["BE::Tensor y", text]))
        bound = bindings(SourceText(name="a.cc", text=f"// @BE f\nvoid f({params}) {{}}"))
        headers = re.findall(r"brainevent/detail/(\w+)\.h", render_unit("", "m", bound, language="cpp"))
        heads[name] = headers
    assert heads == {
        "plain": ["entry"],
        "attributes": ["entry", "attr_values"],
        "arrays": ["entry", "general_call"],
    }


@settings(deadline=None)
@given(st.floats(allow_nan=False), st.sampled_from(["float16", "bfloat16", "float32", "float64"]))
def test_defaults_keep_their_bits(number: float, dtype: str):
    numpy_type = np.dtype(getattr(ml_dtypes, dtype, dtype))
    with np.errstate(over="ignore"):
        value = numpy_type.type(number)
    if np.isinf(value) and not np.isinf(number):
        return
    bound = binding(Param(role=Role.RET), Param(role=Role.ATTR, name="v", dtype=BY_NAME[dtype], default=number))
    match = re.search(r"be_default_0_f = (.*);", render_unit("", "m", [bound], language="cpp"))
    assert match is not None
    if numpy_type.itemsize == 2:
        assert int(match[1], 16) == value.view(np.uint16)
    elif "builtin" in match[1]:
        assert match[1] == ("-" if number < 0 else "") + "__builtin_inf()"
    else:
        assert numpy_type.type(float.fromhex(match[1].removesuffix("f"))).tobytes() == value.tobytes()


def test_arguments_follow_the_tokens():
    roles = [Role.RET, Role.ARG, Role.STREAM, Role.ARG, Role.RET]
    text = render_unit("", "m", [binding(*(Param(role=role) for role in roles))], language="cpp")
    arguments = (
        "be_call.be_rets[0], be_call.be_args[0], ::BE::detail::StreamValue{be_call.be_stream}, be_call.be_args[1], "
    )
    assert f"::f({arguments}be_call.be_rets[1]), ::BE::detail::EndOfCall{{}};" in text


def test_only_cuda_asks_for_a_stream_and_for_failed_launches():
    bound = [binding(Param(role=Role.RET), Param(role=Role.STREAM))]
    cpp, cuda = (render_unit("", "m", bound, language=language) for language in ("cpp", "cuda"))
    assert '{"m.f", 0, 1, 0, false, nullptr, "none"}' in cpp
    assert '{"m.f", 0, 1, 0, true, nullptr, "none"}' in cuda
    assert "BE_CHECK_KERNEL_LAUNCH" not in cpp
    assert "BE_CHECK_KERNEL_LAUNCH();" in cuda


def test_a_checked_unit_asks_for_the_stream_and_for_what_its_kernels_did():
    bound = [binding(Param(role=Role.RET))]
    cpp, cuda = (render_unit("", "m", bound, language=language, checked=True) for language in ("cpp", "cuda"))
    assert cpp == render_unit("", "m", bound, language="cpp")
    assert '{"m.f", 0, 1, 0, true, nullptr, "none"}' in cuda
    call = cuda[cuda.index("BE_INTERNAL_FORGET_ACCESS") :]
    assert call.index("::f(") < call.index("BE_CHECK_KERNEL_LAUNCH") < call.index("BE_INTERNAL_THROW_ACCESS")


@settings(deadline=None)
@given(st.lists(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True), unique=True, min_size=1))
def test_attributes_are_sorted_as_xla_sorts_them(names: list[str]):
    params = [Param(role=Role.RET), *(Param(role=Role.ATTR, name=name, dtype=DTYPES[4]) for name in names)]
    text = render_unit("", "m", [binding(*params)], language="cpp")
    rows = re.findall(r'\{"(\w+)", (\d+), \d+, 0, true, (\d+)\}', text)
    assert [row[0] for row in rows] == sorted(names)
    assert [(row[0], int(row[2])) for row in rows] == sorted((name, at) for at, name in enumerate(names))
    assert all(int(size) == len(name) for name, size, _ in rows)


@pytest.mark.parametrize("row", ATTR_TYPES.values(), ids=lambda row: row.name)
def test_the_usage_says_what_to_pass(row: DType):
    text = render_unit(
        "", "m", [binding(Param(role=Role.RET), Param(role=Role.ATTR, name="v", dtype=row))], language="cpp"
    )
    assert c_string(f"v={row.attr_usage}") in text
    ast.parse(row.attr_usage)


@pytest.mark.parametrize(
    ("entries", "tensors", "body"),
    [(6, 8, "BE_INTERNAL_HANDLE"), (7, 7, "be_handle"), (1, 9, "be_handle"), (48, 1, "BE_INTERNAL_HANDLE")],
)
def test_two_handlers_differ_in_their_trait(entries: int, tensors: int, body: str):
    """And handlers of many tensors are not compiled with their entry points."""
    bound = binding(*[Param(role=Role.RET)] * tensors)
    text = render_unit("", "m", [bound] * entries, language="cuda")
    for allow, trait in ((False, "0"), (True, "::BE::detail::kCommandBufferCompatible")):
        name = bound.handler(allow_cuda_graph=allow)
        assert (
            f"{name}(XLA_FFI_CallFrame* be_frame) {{\n  BE_INTERNAL_ENTER(be_frame, be_entry_f.name)\n"
            f"  return {body}(be_frame, be_entry_f, be_call_f, {trait});" in text
        )


MEMORY = SourceText(
    name="m",
    text="""
// @BE f arg[n] ret scratch[n*4] scratch ret scratch[8]
void f(const BE::Tensor x, BE::Tensor y, BE::Workspace a, BE::Workspace b, BE::Tensor z, BE::Workspace c) {}
// @BE g
void g(BE::Tensor y, const BE::State<Plan>& plan, int n) {}
""",
)


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_declared_scratch_comes_after_the_results(language: Language):
    bound = [Binding(entry=entry, symbol=entry.name, export=entry.name) for entry in discover([MEMORY])]
    text = render_unit("", "m", bound, language=language)
    assert '{"m.f", 1, 4, 0, false' in text
    assert "be_scratch_0(be_call.be_rets[2]); " in text
    assert "be_scratch_2(be_call.be_rets[3]); " in text
    assert "be_scratch_1(be_memory); " in text
    call = "::f(be_call.be_args[0], be_call.be_rets[0], be_scratch_0, be_scratch_1, be_call.be_rets[1], be_scratch_2), "
    assert call in text


def test_memory_that_is_asked_for_is_xlas_on_a_gpu_and_never_recorded():
    bound = [Binding(entry=entry, symbol=entry.name, export=entry.name) for entry in discover([MEMORY])]
    cpp, cuda = (render_unit("", "m", bound, language=language) for language in ("cpp", "cuda"))
    assert "be_memory(nullptr)" in cpp
    assert "be_memory(be_call.be_frame)" in cuda
    for text in (cpp, cuda):
        assert re.findall(r"be_call_f, (.*)\);", text) == ["0", "0"]
        assert re.findall(r"be_call_g, (.*)\);", text) == ["0", "::BE::detail::kCommandBufferCompatible"]
    assert "return BE_INTERNAL_HANDLE(be_frame, be_entry_f" in cpp
    assert "return BE_INTERNAL_HANDLE_FRAME(be_frame, be_entry_f" in cuda


def test_state_has_a_handler_of_its_own():
    f, g = (Binding(entry=entry, symbol=entry.name, export=entry.name) for entry in discover([MEMORY]))
    text = render_unit("", "m", [f, g], language="cpp")
    assert (f.instantiate, g.instantiate) == ("", "be_instantiate_g")
    assert "return be_instantiate(be_frame, be_entry_g, be_state_g);" in text
    assert text.count('#include "brainevent/state.h"') == 1
    assert "state" not in render_unit("", "m", [f], language="cpp")


@settings(deadline=None)
@given(st.text())
def test_c_strings_are_python_literals_too(text: str):
    """Octal escapes of three digits, quotes and backslashes mean the same in both languages."""
    literal = c_string(text)
    assert literal.isascii()
    assert "\n" not in literal
    assert ast.literal_eval(f"b{literal}") == text.encode("utf-8", "surrogateescape")


def test_surrogates_become_the_bytes_that_they_stand_for():
    assert c_string("a\udcff") == '"a\\377"'


def test_several_texts_each_begin_a_line_of_their_own():
    parts = [SourceText(name="m[0]", text="int x;"), SourceText(name="m[1]", text="int y;\n")]
    assert render_inline_source(parts) == '#line 1 "m[0]"\nint x;\n#line 1 "m[1]"\nint y;\n\n'
    assert line_directive(3, 'a"b') == '#line 3 "a\\"b"\n'
