"""Documentation comments: which ones belong to an entry point, and their text."""

from __future__ import annotations

import pytest

from tests.unit.be_runtime.spec.conftest import Spec

F = "void f(BE::Tensor y) {}\n"


@pytest.mark.parametrize(
    "text",
    [
        f"/// Fire.\n// @BE f\n{F}",
        f"// @BE f\n/// Fire.\n{F}",
        f"//! Fire.\r\n// @BE f\r\n{F}",
        f"/// Fire.\n/// @BE f\n{F}",
        f"/** Fire. */\n// @BE f\n{F}",
        f"/**\n * Fire.\n */\n// @BE f\n{F}",
        f"/*! Fire.\n*/\n// NOLINT\n// @BE f\n{F}",
        f"// @BE f arg \\\n ret\n\n/// Fire.\n{F.replace('BE::Tensor', 'BE::Tensor x, BE::Tensor')}",
        "/// Fire.\n// @BE f arg \\\n   ret\nvoid f(const BE::Tensor x, BE::Tensor y) {}",
        "int a; // @BE f\n/// Fire.\nstatic void\nf(BE::Tensor y) {}",
        "namespace n {\n  /// Fire.\n  [[gnu::cold]]\n  // @BE f\n  void f(BE::Tensor y) {}\n}",
        "#define F(N) void N(BE::Tensor y) {}\n/// Fire.\n// @BE f\nF(f)\n",
        "/// Fire.\n// @BE f ret\nUNKNOWN(f)\n",
        f"/// Fire.\n{F}// @BE f\n",
    ],
)
def test_the_documentation_of_an_entry_point(spec: Spec, text: str) -> None:
    assert spec.one(text).doc == "Fire."


@pytest.mark.parametrize(
    "text",
    [
        f"// Fire.\n// @BE f\n{F}",
        f"//// Fire.\n/* Fire. */\n/**/\n// @BE f\n{F}",
        f"/// A section.\n\n// @BE f\n{F}",
        f"int a; /// of a\n// @BE f\n{F}",
        f"int a; /** of a */\n// @BE f\n{F}",
        f"/// of g\nvoid g() {{}}\n// @BE f\n{F}",
        f"*/\n// @BE f\n{F}",
        "#define F(N) void N(BE::Tensor y) {}\n/// of g\nF(g)\n\n// @BE f\nvoid f(BE::Tensor y) {}",
    ],
)
def test_other_comments_are_not_its_documentation(spec: Spec, text: str) -> None:
    assert spec.one(text).doc == ""


def test_lines_keep_their_indentation(spec: Spec) -> None:
    text = f"///  Fire.\n///\n///    v: potentials\n// @BE f\n{F}"
    assert spec.one(text).doc == "Fire.\n\n  v: potentials"
    block = f"/** Fire.\n *\n *   v: potentials\n **/\n// @BE f\n{F}"
    assert spec.one(block).doc == "Fire.\n\n  v: potentials"


def test_a_list_of_functions_has_documentation_too(spec: Spec) -> None:
    assert spec.one(f"/// Fire.\n{F}", ["f"]).doc == "Fire."
