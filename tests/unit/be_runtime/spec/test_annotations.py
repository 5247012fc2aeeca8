"""``// @BE`` comments: which are annotations, and which function each one means."""

from __future__ import annotations

import pytest

from be_runtime.errors import DuplicateEntryPointError, EntryPointNotFoundError
from be_runtime.source_text import SourceText
from be_runtime.spec.discovery import discover
from tests.unit.be_runtime.spec.conftest import Spec

BODY = "void f(const BE::Tensor x, BE::Tensor y) {}\n"


@pytest.mark.parametrize(
    "comment",
    [
        "// @BE f\n",
        "//@BE f\n",
        "//   @BE   f   \n",
        "//\t@BE\tf\n",
        "/// @BE f\n",
        "    // @BE f\n",
        "// @BE f\r\n",
        "// @BE f arg ret\r\n",
        "// @BE f args rets\n",
        "// @BE f \\\n  arg \\\n  ret\n",
        "// @BE f arg \\\n// ret\n",
        "// @BE f arg \\  \r\n  ///  ret\r\n",
        "// @BE f\n\n// another comment\n/* and one */\n",
        "#include <x.h>\n// @BE f\n",
        'const char* s = "// @BE g";\n// @BE f\n',
        "#ifdef X\n// @BE f\n#endif\n",
        "int a; // @BE f\n",
    ],
)
def test_annotations(spec: Spec, comment: str) -> None:
    assert spec.tokens(comment + BODY) == "arg ret"


@pytest.mark.parametrize(
    "text",
    [
        'const char* s = "// @BE g";\n',
        'const char* s = R"(\n// @BE g\n)";\n',
        'const char* s = u8R"x(\n// @BE g\n)"x)x";\n',
        "/* // @BE g */\n",
        "/*\n// @BE g\n*/\n",
        "#if 0\n// @BE g\n#endif\n",
        "#if 0\n#if X\n// @BE g\n#else\n// @BE g\n#endif\n#endif\n",
        "#if 1\n#else\n// @BE g\n#endif\n",
        "#define A // @BE g\n",
        "// see @BE g\n",
        "// @BEg\n",
        "// @be g\n",
        "// @BE_NOTE g\n",
    ],
)
def test_what_is_no_annotation(spec: Spec, text: str) -> None:
    assert spec.one(f"{text}// @BE f\n{BODY}").name == "f"


@pytest.mark.parametrize(
    "comment",
    [
        "// @BE f arg[n\n// k] ret[n]\n",
        "/// @BE f arg[n\r\n    ///       k] ret[n]\r\n",
        "// @BE f arg[n \\\n k] ret[n]\n",
        "// @BE f arg[\n//\n// n\n// k\n// ] ret[\n// n]\n",
        "  // @BE f arg[n k] \\\n  // ret[n\n  // ]\n  // another comment\n",
    ],
)
def test_an_annotation_may_have_several_lines(spec: Spec, comment: str) -> None:
    assert spec.tokens(comment + BODY) == "arg[n k] ret[n]"


@pytest.mark.parametrize(
    ("text", "place", "underlined"),
    [
        (f"// @BE f arg[n] \\\n//   rett[n]\n{BODY}", (2, 6), "rett[n]"),
        (f"// @BE f arg[\n//   n] \\\n\tret[n] rex\n{BODY}", (3, 9), "rex"),
        (f"// @BE f arg[n\n//   k] ret[m]\n{BODY}", (2, 9), "ret[m]"),
        (f"// @BE f arg[n\n//   k,] ret[n]\n{BODY}", (1, 10), "arg[n"),
        (f"// @BE f arg[n ret[n]\n// see [1\n{BODY}", (1, 10), "arg[n ret[n]"),
    ],
)
def test_a_message_points_into_the_line_of_several(
    spec: Spec, text: str, place: tuple[int, int], underlined: str
) -> None:
    error = spec.error(text)
    assert error.span is not None
    assert (error.span.line, error.span.column) == place
    assert spec.caret(error) == underlined


def test_an_open_bracket_does_not_take_the_next_annotation(spec: Spec) -> None:
    error = spec.error(f"// @BE f arg[n\n// @BE g ret ]\n{BODY}void g(BE::Tensor y) {{}}")
    assert (error.span and error.span.line, "unknown arg_spec token 'arg[n'" in error.message) == (1, True)


def test_a_line_that_was_meant_to_continue(spec: Spec) -> None:
    error = spec.error(f"// @BE f arg[n]\n//   ret[n]\n{BODY}")
    assert "no 'ret'" in error.message
    assert "backslash" in error.hints[-1]
    assert not spec.error(f"// @BE f arg[n]\n{BODY}").hints


def test_explicit_functions_replace_annotations(spec: Spec) -> None:
    text = f"// @BE h\n// @BE\n// @BE 1x\n{BODY}void g(BE::Tensor y) {{}}"
    assert [entry.name for entry in spec.all(text, ["g"])] == ["g"]
    assert [entry.name for entry in spec.all(text, {"f": ["arg", "ret"]})] == ["f"]


def test_order_source_and_line(spec: Spec) -> None:
    text = "// @BE g\n// @BE f\n\nvoid f(BE::Tensor y) {}\nstatic\nvoid\ng(BE::Tensor y) {}\n"
    assert [(entry.name, entry.line, entry.source) for entry in spec.all(text)] == [("g", 7, "k.cu"), ("f", 4, "k.cu")]


def test_an_annotation_prefers_the_function_of_its_own_source() -> None:
    sources = [
        SourceText(name="a.cu", text="void f(BE::Tensor y, int n) {}"),
        SourceText(name="b.cu", text="// @BE f\nvoid f(BE::Tensor y) {}"),
    ]
    (entry,) = discover(sources, None)
    assert (entry.source, len(entry.params)) == ("b.cu", 1)


def test_an_annotation_may_mean_a_function_of_another_source() -> None:
    sources = [
        SourceText(name="a.cu", text="// @BE f\nvoid f(BE::Tensor y, int n);"),
        SourceText(name="b.cu", text="\n\nvoid f(BE::Tensor y, int n) {}"),
    ]
    (entry,) = discover(sources, None)
    assert (entry.source, entry.line) == ("b.cu", 3)


@pytest.mark.parametrize(
    ("text", "part", "caret"),
    [
        ("// @BE\n" + BODY, "without a name", "// @BE"),
        ("// @BE   \n" + BODY, "without a name", "// @BE   "),
        ("// @BE 1f\n" + BODY, "'1f' is not an identifier", "1f"),
        ("// @BE f-g\n" + BODY, "'f-g' is not an identifier", "f-g"),
        ("// @BE ns::f\n" + BODY, "'ns::f' is not an identifier", "ns::f"),
        ("// @BE f arg rett\n" + BODY, "f: unknown arg_spec token 'rett'", "rett"),
        ("// @BE f arg\n" + BODY, "f: the arg_spec has no 'ret'", "f"),
        ("\t// @BE f arg ret stream stream\n" + BODY, "f: a second 'stream'", "stream"),
        ("// @BE f arg ret attr.n\n" + BODY, "f: the arg_spec has 3 tokens", "attr.n"),
        ("// @BE f arg ret\r\nvoid f(BE::Tensor x,\r\n  float* y) {}\r\n", "is a pointer", "float* y"),
        ("// @BE g\n" + BODY, "g: no function of this name", "g"),
    ],
)
def test_errors_point_at_the_annotation_or_the_parameter(spec: Spec, text: str, part: str, caret: str) -> None:
    error = spec.error(text)
    assert part in error.message
    assert spec.caret(error) == caret


def test_the_caret_of_a_second_stream_is_under_the_second(spec: Spec) -> None:
    error = spec.error("\t// @BE f arg ret stream stream\n" + BODY)
    assert str(error).splitlines()[1:4] == [
        "k.cu:1:26",
        "    \t// @BE f arg ret stream stream",
        "    \t                        ^~~~~~",
    ]


def test_two_annotations_of_one_name(spec: Spec) -> None:
    error = spec.error(f"// @BE f\n// @BE f\n{BODY}")
    assert isinstance(error, DuplicateEntryPointError)
    assert "k.cu:1:8" in error.message
    assert error.span is not None
    assert error.span.line == 2


def test_annotations_of_one_name_in_two_sources() -> None:
    sources = [SourceText(name=name, text=f"// @BE f\n{BODY}") for name in ("a.cu", "b.cu")]
    with pytest.raises(DuplicateEntryPointError, match=r"first at a\.cu:1:8") as caught:
        discover(sources, None)
    assert caught.value.span is not None
    assert caught.value.span.file == "b.cu"


def test_annotations_in_exclusive_branches_are_one(spec: Spec) -> None:
    text = f"#ifdef X\n// @BE f\n{BODY}#else\n// @BE f\n{BODY}#endif\n"
    assert spec.tokens(text) == "arg ret"


def test_annotations_in_exclusive_branches_must_agree(spec: Spec) -> None:
    text = "#ifdef X\n// @BE f arg ret\n#else\n// @BE f arg ret stream\n#endif\nFOO(f)\n"
    assert isinstance(spec.error(text), DuplicateEntryPointError)


def test_no_entry_points_at_all(spec: Spec) -> None:
    error = spec.error("void add(BE::Tensor y) {}")
    assert isinstance(error, EntryPointNotFoundError)
    assert "// @BE add" in error.hints[0]
    assert "k.cu" in error.message
    assert isinstance(spec.error(""), EntryPointNotFoundError)
    with pytest.raises(EntryPointNotFoundError):
        discover([], None)
