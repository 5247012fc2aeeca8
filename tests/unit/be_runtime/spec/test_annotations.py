"""``// @BE`` comments: which are annotations, which function each one means, and what documents it."""

from __future__ import annotations

import pytest

from be_runtime.errors import DuplicateEntryPointError, EntryPointNotFoundError
from be_runtime.source_text import SourceText
from be_runtime.spec.discovery import discover
from tests.unit.be_runtime.spec.conftest import Spec, each

BODY = "void f(const BE::Tensor x, BE::Tensor y) {}\n"
ANNOTATIONS = {
    "arg ret": "// @BE f\n | //@BE f\n | //   @BE   f   \n | //\t@BE\tf\n | /// @BE f\n |     // @BE f\n"
    " | // @BE f\r\n | // @BE f arg ret\r\n | // @BE f args rets\n | // @BE f \\\n  arg \\\n  ret\n"
    " | // @BE f arg \\\n// ret\n | // @BE f arg \\  \r\n  ///  ret\r\n | #ifdef X\n// @BE f\n#endif\n"
    " | // @BE f\n\n// another comment\n/* and one */\n | #include <x.h>\n// @BE f\n | int a; // @BE f\n"
    ' | const char* s = "// @BE g";\n// @BE f\n'
    # Annotations in exclusive branches are one.
    " | #ifdef X\n// @BE f\n#else\n// @BE f\n#endif\n",
    "arg[n k] ret[n]": "// @BE f arg[n\n// k] ret[n]\n | /// @BE f arg[n\r\n    ///       k] ret[n]\r\n"
    " | // @BE f arg[n \\\n k] ret[n]\n | // @BE f arg[\n//\n// n\n// k\n// ] ret[\n// n]\n"
    " |   // @BE f arg[n k] \\\n  // ret[n\n  // ]\n  // another comment\n",
}


@pytest.mark.parametrize(("comment", "tokens"), each(ANNOTATIONS))
def test_annotations(spec: Spec, comment: str, tokens: str) -> None:
    assert spec.tokens(comment + BODY) == tokens


NONE = (
    *('const char* s = "// @BE g";\n', 'const char* s = R"(\n// @BE g\n)";\n', "/* // @BE g */\n"),
    *('const char* s = u8R"x(\n// @BE g\n)"x)x";\n', "/*\n// @BE g\n*/\n", "#if 0\n// @BE g\n#endif\n"),
    *("#if 0\n#if X\n// @BE g\n#else\n// @BE g\n#endif\n#endif\n", "#if 1\n#else\n// @BE g\n#endif\n"),
    *("#define A // @BE g\n", "// see @BE g\n", "// @BEg\n", "// @be g\n", "// @BE_NOTE g\n"),
)


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_annotation(spec: Spec, text: str) -> None:
    assert spec.one(f"{text}// @BE f\n{BODY}").name == "f"


def test_explicit_functions_replace_annotations(spec: Spec) -> None:
    text = f"// @BE h\n// @BE\n// @BE 1x\n{BODY}void g(BE::Tensor y) {{}}"
    assert [entry.name for entry in spec.all(text, ["g"])] == ["g"]
    assert [entry.name for entry in spec.all(text, {"f": ["arg", "ret"]})] == ["f"]


def test_order_source_and_line(spec: Spec) -> None:
    text = "// @BE g\n// @BE f\n\nvoid f(BE::Tensor y) {}\nstatic\nvoid\ng(BE::Tensor y) {}\n"
    assert [(entry.name, entry.line, entry.source) for entry in spec.all(text)] == [("g", 7, "k.cu"), ("f", 4, "k.cu")]


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [
        ("void f(BE::Tensor y, int n) {}", "// @BE f\nvoid f(BE::Tensor y) {}", 2),
        ("// @BE f\nvoid f(BE::Tensor y);", "\n\nvoid f(BE::Tensor y) {}", 3),
    ],
)
def test_an_annotation_means_the_function_of_its_own_source_or_else_of_another(first: str, second: str, line: int):
    (entry,) = discover([SourceText(name="a.cu", text=first), SourceText(name="b.cu", text=second)], None)
    assert (entry.source, entry.line, len(entry.params)) == ("b.cu", line, 1)


def test_annotations_of_one_name_in_two_sources_and_no_sources() -> None:
    sources = [SourceText(name=name, text=f"// @BE f\n{BODY}") for name in ("a.cu", "b.cu")]
    with pytest.raises(DuplicateEntryPointError, match=r"first at a\.cu:1:8") as caught:
        discover(sources, None)
    assert caught.value.span is not None
    assert caught.value.span.file == "b.cu"
    with pytest.raises(EntryPointNotFoundError):
        discover([], None)


F = "void f(BE::Tensor y) {}\n"
DOCUMENTATION = {
    "Fire.": f"/// Fire.\n// @BE f\n{F} | // @BE f\n/// Fire.\n{F} | //! Fire.\r\n// @BE f\r\n{F}"
    f" | /// Fire.\n/// @BE f\n{F} | /** Fire. */\n// @BE f\n{F} | /**\n * Fire.\n */\n// @BE f\n{F}"
    f" | /*! Fire.\n*/\n// NOLINT\n// @BE f\n{F} | // @BE f arg \\\n ret\n\n/// Fire.\n{BODY}"
    f" | /// Fire.\n// @BE f arg \\\n   ret\n{BODY} | int a; // @BE f\n/// Fire.\nstatic void\nf(BE::Tensor y) {{}}"
    " | namespace n {\n  /// Fire.\n  [[gnu::cold]]\n  // @BE f\n  void f(BE::Tensor y) {}\n}"
    f" | #define F(N) void N(BE::Tensor y) {{}}\n/// Fire.\n// @BE f\nF(f)\n | /// Fire.\n{F}// @BE f\n"
    " | /// Fire.\n// @BE f ret\nUNKNOWN(f)\n",
    "": f"// Fire.\n// @BE f\n{F} | //// Fire.\n/* Fire. */\n/**/\n// @BE f\n{F} | */\n// @BE f\n{F}"
    f" | /// A section.\n\n// @BE f\n{F} | int a; /// of a\n// @BE f\n{F} | int a; /** of a */\n// @BE f\n{F}"
    f" | /// of g\nvoid g() {{}}\n// @BE f\n{F}"
    f" | #define F(N) void N(BE::Tensor y) {{}}\n/// of g\nF(g)\n\n// @BE f\n{F}",
    # Lines keep their indentation.
    "Fire.\n\n  v: potentials": f"///  Fire.\n///\n///    v: potentials\n// @BE f\n{F}"
    f" | /** Fire.\n *\n *   v: potentials\n **/\n// @BE f\n{F}",
}


@pytest.mark.parametrize(("text", "documentation"), each(DOCUMENTATION))
def test_the_documentation_of_an_entry_point(spec: Spec, text: str, documentation: str) -> None:
    assert spec.one(text).doc == documentation


def test_a_list_of_functions_has_documentation_too(spec: Spec) -> None:
    assert spec.one(f"/// Fire.\n{F}", ["f"]).doc == "Fire."
