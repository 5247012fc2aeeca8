"""Which unit defines an entry point, under which name a module offers it, and the text that is generated."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from unittest.mock import Mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from be_runtime.compile.codegen import bind, line_directive, render_include, render_inline_source, render_unit
from be_runtime.compile.codegen_attributes import c_string
from be_runtime.compile.codegen_values import Binding
from be_runtime.dtypes import ATTR_TYPES, BY_NAME
from be_runtime.request.options import BuildRequest, CompileOptions, Language, Unit
from be_runtime.signature import SourceText
from be_runtime.signature.cpp import program
from be_runtime.signature.cpp.outline import outline
from be_runtime.signature.discovery import discover
from be_runtime.signature.model import EntryPoint, Param, Role
from tests.unit.be_runtime.compile.codegen.golden_files import answer, check_golden

PLAIN = """
// @BE scale attr.factor:float32 arg ret stream attr.Count ret arg
void scale(float factor, const BE::Tensor x, BE::Tensor out, int64_t stream, int Count, BE::Tensor o, BE::Tensor y) {}
namespace ops {
// @BE fill
void fill(BE::Tensor first, BE::Tensor second) {}
}
// @BE every
void every(BE::Tensor out, bool a, std::complex<double> b, uint64_t c, std::complex<float> d) {}
// @BE halves ret attr.h:float16 attr.b:bfloat16
void halves(BE::Tensor out, uint16_t h, uint16_t b) {}
"""
KINDS = """
enum Mode { fast, slow };
struct Step { float rate = 0.1f; int n; Mode mode = slow; };
// @BE f arg[n] arg?[n] arg... ret[n] ret... attr.step attr.mode attr.text attr.axes attr.type attr.scale
void f(const BE::Tensor x, const BE::Tensor* y, const BE::Tensors xs, BE::Tensor out, BE::Tensors outs, Step step,
       Mode mode, std::string_view text, BE::Span<const std::complex<float>> axes, BE::DType type, double scale = .1) {}
// @BE g
void g(BE::Tensor out, int n = -1) {}
"""
MEMORY = """
// @BE f arg[n] ret scratch[n*4] scratch ret scratch[8]
void f(const BE::Tensor x, BE::Tensor y, BE::Workspace a, BE::Workspace b, BE::Tensor z, BE::Workspace c) {}
// @BE g arg[... k 2] ret[ceil(k/2) max(attr.n,3) k%2] state attr.n attr.m=-9223372036854775808 attr.t:dtype=int8 attr.b
void g(const BE::Tensor x, BE::Tensor y, const BE::State<Plan>& plan, int n, int64_t m, BE::DType t, bool b = true) {}
"""


def bindings(text: str) -> list[Binding]:
    entries = discover([SourceText(name='kernels/a "b".cc', text=text)])
    return [
        Binding(entry, f"file_{entry.name}", f"file.{entry.name}", exported=f"__tvm_ffi_{entry.name}")
        for entry in entries
    ]


@pytest.mark.parametrize(
    ("name", "text", "language", "checked"),
    [
        ("unit_cpp", PLAIN, "cpp", False),
        ("unit_cuda", PLAIN, "cuda", False),
        ("unit_kinds", KINDS, "cpp", False),
        ("memory_cpp", MEMORY, "cpp", True),
        ("memory_cuda", MEMORY, "cuda", False),
        ("memory_checked", MEMORY, "cuda", True),
    ],
    ids=str,
)
def test_golden_files(name: str, text: str, language: Language, *, checked: bool):
    """The text decides every user's binary, and keys of caches: a change of it should be seen, and meant."""
    unit = render_unit(render_include("/src/a.cc"), "module", bindings(text), language=language, checked=checked)
    check_golden(Path(__file__).parent / "golden" / f"{name}.txt", unit)


def binding(*params: Param) -> Binding:
    return Binding(EntryPoint(name="f", call_name="::f", params=params, source="m", line=7), symbol="f", export="f")


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


def test_the_usage_says_what_to_pass():
    attrs = [Param(role=Role.ATTR, name=name, dtype=row) for name, row in ATTR_TYPES.items()]
    text = render_unit("", "m", [binding(Param(role=Role.RET), *attrs)], language="cpp")
    usage = ", ".join(f"{name}={row.attr_usage}" for name, row in ATTR_TYPES.items())
    assert c_string(usage) in text
    ast.parse(f"f({usage})")


@pytest.mark.parametrize(("entries", "tensors", "inline"), [(6, 8, True), (7, 7, False), (1, 9, False), (48, 1, True)])
def test_handlers_of_many_tensors_are_not_compiled_with_their_entry_points(entries: int, tensors: int, *, inline: bool):
    text = render_unit("", "m", [binding(*[Param(role=Role.RET)] * tensors)] * entries, language="cuda")
    body = "BE_INTERNAL_HANDLE" if inline else "be_handle"
    assert text.count(f"  return {body}(be_frame, be_entry_f, be_call_f, ") == 2 * entries


@settings(deadline=None)
@given(st.text())
def test_c_strings_are_python_literals_too(text: str):
    """Octal escapes of three digits, quotes and backslashes mean the same in both languages."""
    literal = c_string(text)
    assert literal.isascii()
    assert "\n" not in literal
    assert ast.literal_eval(f"b{literal}") == text.encode("utf-8", "surrogateescape")
    assert c_string("a\udcff") == '"a\\377"'


def test_several_texts_each_begin_a_line_of_their_own():
    parts = [SourceText(name="m[0]", text="int x;"), SourceText(name="m[1]", text="int y;\n")]
    assert render_inline_source(parts) == '#line 1 "m[0]"\nint x;\n#line 1 "m[1]"\nint y;\n\n'
    assert line_directive(3, 'a"b') == '#line 3 "a\\"b"\n'


F, G = "// @BE f\nvoid f(BE::Tensor out) {}\n", "// @BE g\nvoid g(const BE::Tensor x, BE::Tensor out) {}\n"


def request(functions: object = None, /, **sources: str) -> BuildRequest:
    units = (Unit(stem, (SourceText(f"/{stem}.cc", text),), Path(f"/{stem}.cc")) for stem, text in sources.items())
    return BuildRequest("m", "cpp", tuple(units), functions, CompileOptions())


def test_one_unit_keeps_its_names_and_has_symbols_whatever_the_module_s_name():
    (binding,) = bind(request(a=F))["a"]
    assert (binding.export, binding.symbol, binding.trampoline) == ("f", "m_f", "be_call_m_f")
    (binding,) = bind(request(a=F)._replace(name="my kernels-2"))["a"]
    assert binding.symbol == "my_kernels_2_f"


def test_symbols_of_several_units_are_unique_identifiers():
    """Stems that only differ in what no identifier holds."""
    bound = bind(request(**{"a b": F, "a-b": F, "a_b": F, "ä": F, "a\udcff": F}))
    symbols = [binding.symbol for found in bound.values() for binding in found]
    assert len(set(symbols)) == 5
    assert all(symbol.isidentifier() and symbol.isascii() for symbol in symbols)


@pytest.mark.parametrize(
    ("functions", "sources", "exports"),
    [
        (None, {"a": F + G, "b": F, "c": ""}, {"a": ["a.f", "g"], "b": ["b.f"], "c": []}),
        (["g"], {"a": F + G, "b": F, "c": G}, {"a": ["a.g"], "b": [], "c": ["c.g"]}),
        (["f", "g"], {"a": F, "b": G}, {"a": ["f"], "b": ["g"]}),
        ({"f": ["ret"]}, {"a": F + G, "b": F, "c": G}, {"a": ["a.f"], "b": ["b.f"], "c": []}),
        *(({}, {"a": F}, {"a": []}), ([], {"a": F}, {"a": []}), ((), {"a": F, "b": G}, {"a": [], "b": []})),
    ],
)
def test_names_are_looked_up_in_every_unit_and_a_repeated_one_is_offered_by_file(
    functions: object, sources: dict[str, str], exports: dict[str, list[str]]
):
    bound = bind(request(functions, **sources))
    assert {stem: [binding.export for binding in found] for stem, found in bound.items()} == exports


def test_each_source_is_read_once_for_all_names(monkeypatch: pytest.MonkeyPatch):
    read = Mock(wraps=outline)
    monkeypatch.setattr(program, "outline", read)
    names = [f"f{number}" for number in range(20)]
    sources = ["".join(f"void f{number}(BE::Tensor y) {{}}\n" for number in range(start, 20, 2)) for start in (0, 1)]
    bind(request(names, a=sources[0], b=sources[1]))
    assert [call.args[0] for call in read.call_args_list] == sources


REFUSED: list[tuple[object, dict[str, str]]] = [
    *((["f", "f"], units) for units in ({"a": F}, {"a": F, "b": G})),
    (["ff"], {"a": G, "b": F}),
    *((None, {"a": first, "b": second}) for first, second in (("int x;", "int y;"), (F, "// @BE gone\n"), (F + F, G))),
    ({"f": ["rte"]}, {"a": F, "b": G}),
    *((wrong, {"a": F, "b": G}) for wrong in ("f", b"f", 7, {"f"}, {"f": "ret"}, [7], {7: ["ret"]})),
    *((wrong, {"a": F}) for wrong in ("f", b"f", 7, {"f"}, {"f": "ret"}, [7], {7: ["ret"]})),
]


def test_an_error_of_one_unit_is_not_hidden_by_another_and_knows_all_of_them():
    rows = [
        f"{functions} in {sources}\n  {answer(bind, request(functions, **sources))}\n" for functions, sources in REFUSED
    ]
    check_golden(Path(__file__).parent / "golden" / "refused_functions.txt", "".join(rows))
