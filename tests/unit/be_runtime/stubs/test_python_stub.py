"""The stub of an author's Python module, apart from its kernels."""

from __future__ import annotations

from textwrap import dedent

import pytest

from be_runtime.stubs.python_stub import imported_names, python_stub


def stub(source: str, *names: str) -> str:
    """The stub of a module that has the kernels ``ops`` and ``fire``."""
    return python_stub(dedent(source), {"ops", "fire"}, names).strip()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("'''Doc.'''\nimport jax\nfrom x import *", "'''Doc.'''\nimport jax\nfrom x import *".replace("'''", '"""')),
        ("ops = load()\nfire = ops.fire\nops: object = 3", ""),
        ("a, (ops, b) = x, load()", "a: typing.Any\nb: typing.Any"),
        ("A = 3; B = 'x'; C = f'{x}'; D = None; E = True", "A: int\nB: str\nC: str\nD: typing.Any\nE: bool"),
        ("T = TypeVar('T'); U = int | str; __all__ = ['a']", "T = TypeVar('T')\nU = int | str\n__all__ = ['a']"),
        ("X = dedent('''\n" + "a" * 300 + "''') + f'{x:>3}'", "X = dedent('') + ''"),
        ("__all__ += ['b']\nprint(1)\ndel x\nx.y = 3\nx[0] = 4", "__all__ += ['b']"),
        ("if x:\n  import y\nelse:\n  print()\n  a = x()", "if x:\n    import y\nelse:\n    a = x()"),
        ("if a:\n  ops = load(1)\nelse:\n  ops = load(2)", "if a:\n    ..."),
        ("try:\n  import x\nexcept ImportError:\n  x = None\nelse:\n  y = 3", "import x\ny: int"),
        ("with x as y:\n  z = 3", "z: int"),
        ("async def f(): return 3", "async def f():\n    ..."),
        ("@jit\ndef f(x: int, /, y=3, *z: int, **w) -> str:\n  'Doc.'\n  return x", None),
    ],
)
def test_statements(source: str, expected: str | None) -> None:
    decorated = '@jit\ndef f(x: int, /, y=3, *z: int, **w) -> str:\n    """Doc."""\n    ...'
    assert stub(source) == (decorated if expected is None else expected)


def test_classes_keep_members_and_declare_attributes() -> None:
    source = """
    class Layer(Base, metaclass=M):
        '''Doc.'''
        n: int = 0
        KIND = "x"
        def __init__(self, threshold: float, by=3) -> None:
            self.threshold = threshold
            self.by = self.other = by
            self.scale: float = 3
            self.n = by = 4
            other.z = 5
        def reset(this):
            this.late = 3
            self.not_ours = 4
    """
    assert [line for line in stub(source).splitlines() if line.strip()] == [
        "class Layer(Base, metaclass=M):",
        '    """Doc."""',
        "    threshold: float",
        "    by: typing.Any",
        "    other: typing.Any",
        "    scale: float",
        "    late: typing.Any",
        "    n: int = 0",
        "    KIND = 'x'",
        "    def __init__(self, threshold: float, by=3) -> None:",
        "        ...",
        "    def reset(this):",
        "        ...",
    ]


def test_names_that_no_statement_binds_can_be_anything() -> None:
    assert stub("for i in x:\n  globals()[i] = 3\nA = 3", "i", "j", "A", "fire") == (
        "A: int\ni: typing.Any\nj: typing.Any"
    )
    assert stub("from x import *", "y") == "from x import *"


def test_names_from_elsewhere() -> None:
    assert imported_names("import a.b, c as d\nfrom e import f as g, h\nx = 3") == {"a", "d", "g", "h"}
