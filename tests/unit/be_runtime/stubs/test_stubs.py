"""The text of stubs, of an author's Python module and of its kernels: golden files of the whole."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from be_runtime.call.resolve import CallSignature
from be_runtime.spec.grammar import parse_spec
from be_runtime.spec.model import Role
from be_runtime.stubs.python_stub import imported_names, python_stub
from be_runtime.stubs.stub_text import MARK, StubFunction, class_name, render_class, render_function, render_stub

GOLDEN = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    """``BE_UPDATE_GOLDEN=1`` writes the file anew."""
    if "BE_UPDATE_GOLDEN" in os.environ:
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


def stub(source: str) -> str:
    """The stub of a module that has the kernels ``ops`` and ``fire``, and the names in its first comment.

    Releases of Python place blank lines differently.
    """
    names = re.match("# names: (.*)", source)
    text = python_stub(source, {"ops", "fire"}, names[1].split() if names else ())
    return "\n".join(filter(None, text.splitlines()))


def test_stubs_of_python_modules() -> None:
    cases = (GOLDEN / "python_modules.txt").read_text().split("\n====\n")
    sources = [case.partition("\n--\n")[0] for case in cases]
    assert_golden("python_modules.txt", "\n====\n".join(f"{each}\n--\n{stub(each)}" for each in sources) + "\n")


def test_names_from_elsewhere() -> None:
    assert imported_names("import a.b, c as d\nfrom e import f as g, h\nx = 3") == {"a", "d", "g", "h"}


FUNCTIONS = {
    "matvec": "arg[n k]; arg[k]; ret[n]:like(0); attr.alpha:float32=1; stream",
    "scan": "arg; arg?; arg...; arg?; ret; ret...; attr.flag:bool=true; attr.count:uint8; attr.z:complex64",
    "step": "arg[n]; ret[n]; attr.mode:enum(up down)=up; attr.name:string=a; attr.t:float64[]; attr.dtype:dtype; "
    "attr.config:{lr:float32 n:int32=3 in:bool}; attr.lambda:int32; scratch[n*4]; state",
    "empty": "ret[3]:float32; attr.limit:float32=inf",
    "path": "arg; ret",
    "complex": "arg; ret",
    "a.f": "arg; ret",
}
DOC = 'Ends with a quote "\n\n    Indented \\ and """ \x1b \udc80.'


def functions() -> list[StubFunction]:
    found = []
    for name, tokens in FUNCTIONS.items():
        names = iter(["x", "lambda", "xs"])
        parsed = parse_spec(tokens.split("; "))
        params = (each if each.role is Role.ATTR else each._replace(name=next(names, "")) for each in parsed)
        signature = CallSignature(f"ops.{name}", tuple(params), DOC if name == "matvec" else "")
        found.append(StubFunction(name, signature, has_outs=name == "scan"))
    return found


def test_the_stub_of_kernels() -> None:
    parts = [render_class("Ops", functions(), hidden=["path"]), render_function(functions()[2])]
    text = render_stub(parts)
    assert_golden("every_kind.pyi.txt", text)
    found = {node.name: node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert ast.get_docstring(found["matvec"]) == (
        'Ends with a quote "\n\n    Indented \\ and """ \\x1b \\x80.\n\n'
        "arg_spec: arg[n k] arg[k] ret[n]:like(0) attr.alpha:float32=1.0 stream"
    )


def test_a_module_of_items_alone_and_a_python_part() -> None:
    text = render_stub([render_class("Ops", functions()[-1:], hidden=[])], python='"""Doc."""\nx: typing.Any\n')
    assert text.startswith(f'{MARK}\n"""Doc."""\nx: typing.Any\n\nimport be_runtime\n')
    assert text.endswith("class Ops(be_runtime.LoadedModule):\n    ...\n")
    assert ast.get_docstring(ast.parse(text)) == "Doc."


@pytest.mark.parametrize(
    ("name", "expected"),
    [("spiking_ops", "SpikingOps"), ("my-kernels.v2", "MyKernelsV2"), ("2d", "_2d"), ("none", "_None"), ("-", "_")],
)
def test_names_of_classes(name: str, expected: str) -> None:
    assert class_name(name) == expected
