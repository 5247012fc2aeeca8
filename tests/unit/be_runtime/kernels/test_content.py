"""The content of functions that use classes and objects, and `cute_kernel` without CuTe DSL."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from be_runtime.kernels.content import function_content
from tests.support.runtime import environment, run_python

SOURCE = """
import functools, threading

class Base:
    __slots__ = ()
    limit = 3

class Tile(Base):
    __slots__ = ("size", "__dict__")

    def __init__(self, size):
        self.size = size
        self.name = "tile"

    @property
    def area(self):
        return self.size * WIDTH

    @staticmethod
    def half(x):
        return x // 2

WIDTH = 8
TILE = Tile(4)
half = functools.partial(Tile.half, 7)
UNREAD = threading.Lock()

def kernel(x):
    return x + TILE.area + half() + Tile(2).limit
"""


def content(source: str) -> Any:
    namespace: dict[str, Any] = {"__name__": "of_a_test"}
    exec(source, namespace)  # noqa: S102 - it is the test's own
    return function_content(namespace["kernel"], ["functools", "threading"], with_objects=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(("limit = 3", "limit = 4"), ("self.size * WIDTH", "self.size + WIDTH"), ("WIDTH = 8", "WIDTH = 9")),
        *(("Tile(4)", "Tile(5)"), ('"tile"', '"other"'), ("x // 2", "x // 3"), ("Tile.half, 7", "Tile.half, 8")),
        ("class Tile(Base)", "class Other:\n    __slots__ = ()\nclass Tile(Other, Base)"),
    ],
)
def test_classes_and_objects_count_by_what_they_hold(old: str, new: str):
    assert content(SOURCE).anchors == ()
    assert content(SOURCE) == content("\n# moved\n" + SOURCE)
    assert content(SOURCE).digest != content(SOURCE.replace(old, new)).digest


def test_what_hides_its_parts_is_named():
    found = content("import threading\nLOCK = threading.Lock()\ndef kernel(): return LOCK\n")
    assert "lock" in str(found.anchors[0])


def test_an_import_in_a_function_is_unknown_unless_its_package_is_known_by_name():
    assert content("def kernel():\n    import functools\n").anchors == ()
    assert content("def kernel():\n    def inner():\n        from mine import f\n").anchors == ("import mine",)


FILES = dict.fromkeys(("helper.py", "colorsys.py", "known/own.py"), "def f(): return 1\n")
FILES["lazy.py"] = "def __getattr__(name): return 1\n"
CHANGES = """
## a module in a closure
import helper
def make():
    m = helper
    def kernel(): return m.f()
    return kernel
kernel = make()
## a module with another name
import helper as m
def kernel(): return m.f()
## a module in a variable
import helper
def kernel():
    m = helper
    return m.f()
## a module by getattr
import helper
def kernel(): return getattr(helper, "f")()
## a module with a function for its attributes
import lazy
def kernel(): return lazy.x
## a file named as one of the standard library
import colorsys
def kernel(): return colorsys.f()
## a file in a package by name
from known.own import f
def kernel(): return f()
## a function put into a package by name
import textwrap
def f(): return 1
textwrap.of_a_test = f
def kernel(): return textwrap.of_a_test()
## a class that names a package by name
class A:
    x = 1
A.__module__ = "textwrap"
def kernel(): return A.x
## a named tuple's method
from typing import NamedTuple
class P(NamedTuple):
    n: int
    def size(self): return 1
p = P(3)
def kernel(): return p.size()
## an enumeration's method
import enum
class P(enum.IntEnum):
    A = 3
    def size(self): return 1
p = P.A
def kernel(): return p.size()
## a field of a data class
import dataclasses
@dataclasses.dataclass
class P:
    n: int = 0
    tags: list = dataclasses.field(default_factory=list)
p = P(1)
def kernel(): return p.n
## a method of a data class
import dataclasses
@dataclasses.dataclass(frozen=True, slots=True)
class P:
    n: int
    def size(self): return self.n + 1
p = P(3)
def kernel(): return p.size()
## an attribute of a number
class P(int): pass
p = P(3)
p.n = 1
def kernel(): return p.n
## an attribute of a function
def f(): return f.n
f.n = 1
def kernel(): return f()
## a state that pickle does not write
class P:
    def __init__(self, n): self.n = n
    def __reduce__(self): return P, (0,)
p = P(1)
def kernel(): return p.n
## a dictionary's default
import collections
d = collections.defaultdict(lambda: 1)
def kernel(): return d[3]
## a name in the body of a class
W = 1
def kernel():
    class A:
        x = W
    return A.x
## a part of a union
class A:
    x = 1
T = A | None
def kernel(): return T.__args__[0].x
## an expression
import re
p = re.compile("1")
def kernel(): return p.match("2")
## a subclass of property
class P(property):
    def __get__(self, of, kind=None): return 1
class A:
    x = P()
def kernel(): return A().x
## a class of a module
import sys, types
class M(types.ModuleType):
    x = property(lambda self: 1)
m = M("of_a_test")
def kernel():
    n = m
    return n.x
## a mask of an array
import numpy
a = numpy.ma.array([5, 5], mask=[1 % 2, 0])
def kernel(): return a
## an annotation of a variable
def kernel():
    x: "int1" = 3
    return x
## a name in an annotation of a variable
T = 1
def kernel():
    x: T = 3
    return x
## a name in an annotation that is a text
T = 1
def kernel(x: "T"): return x
## an array of objects
import numpy
class A:
    x = 1
a = numpy.array([A], object)
def kernel(): return a[0].x
## a name of a field of an array
import numpy
a = numpy.zeros(3, [("x1", "f4")])
def kernel(): return a
"""
HIDDEN = """
## a name in a text
W = 1
def kernel(): return eval("W")
## a global name by its text
W = 1
def kernel(): return globals()["W"]
## a module by its name
import importlib
def kernel(): return importlib.import_module("helper")
## a relative import of a module named as one of the standard library
def kernel():
    from .math import f
    return f()
"""


def sections(text: str) -> dict[str, str]:
    """Return programs by their titles."""
    return {title: program for title, _, program in (part.partition("\n") for part in text.split("\n## ")[1:])}


def content_in(folder: Path, monkeypatch: pytest.MonkeyPatch, files: Mapping[str, str]) -> Any:
    """Return the content of ``mine.kernel`` of some files, which hide all other modules of their names."""
    names = [name.removesuffix(".py").replace("/", ".") for name in files]
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in (*names, "known"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(folder))
    try:
        return function_content(importlib.import_module("mine").kernel, ["known.compiler"], with_objects=True)
    finally:
        for name in (*names, "known"):
            sys.modules.pop(name, None)


SUBCLASS = "class P({}):\n    def size(self): return 1\np = P()\ndef kernel(): return p.size()\n"
BASES = ("int", "str", "bytes", "float", "complex", "tuple", "list", "dict", "set", "frozenset")
CASES = sections(CHANGES) | {f"a method of a subclass of {base}": SUBCLASS.format(base) for base in BASES}


@pytest.mark.parametrize("title", CASES)
def test_code_that_a_function_reaches_in_any_way_is_part_of_it(title: str, tmp_path: Path, monkeypatch: Any):
    old = FILES | {"mine.py": CASES[title]}
    moved = {name: f"\n# moved\n{text}" for name, text in old.items()}
    new = {name: text.replace("1", "2") for name, text in old.items()}
    first, same, other = (
        content_in(tmp_path / folder, monkeypatch, files)
        for folder, files in (("old", old), ("moved", moved), ("new", new))
    )
    assert first.anchors == same.anchors == other.anchors == ()
    assert first != other
    # From Python 3.13 on, the code of a class in a function holds the number of its line.
    assert first == same or title == "a name in the body of a class"


@pytest.mark.parametrize("title", sections(HIDDEN))
def test_code_that_has_no_name_makes_a_function_unknown(title: str, tmp_path: Path, monkeypatch: Any):
    assert content_in(tmp_path, monkeypatch, FILES | {"mine.py": sections(HIDDEN)[title]}).anchors


def test_a_function_whose_code_a_compiler_replaced():
    namespace: dict[str, Any] = {"__name__": "of_a_test"}
    exec("def kernel(): return 1\ndef other(): return 2\n", namespace)  # noqa: S102 - it is the test's own
    kernel = namespace["kernel"]
    before = function_content(kernel)
    kernel._original_code, kernel.__code__ = kernel.__code__, namespace["other"].__code__  # noqa: SLF001 - CuTe DSL's
    assert function_content(kernel) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise ImportError('no CuTe')", "cute_kernel needs CuTe DSL, which can't be imported: no CuTe"),
        ("__version__ = '4.7.9'", "cute_kernel needs CuTe DSL 4, from 4.8 on, and 4.7.9 is installed"),
        ("__version__ = '5.0.0'", "cute_kernel needs CuTe DSL 4, from 4.8 on, and 5.0.0 is installed"),
    ],
)
def test_without_a_fitting_cute_dsl(tmp_path: Path, text: str, message: str):
    package = tmp_path / "cutlass"
    package.mkdir()
    (package / "__init__.py").write_text(f"{text}\n")
    (package / "cute.py").write_text("")
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import be_runtime
        try:
            be_runtime.cute_kernel(len, "arg[n] ret[n]")
        except ImportError as error:
            print(error)
    """
    printed = run_python(textwrap.dedent(code), env=environment()).stdout
    assert printed == f"{message}\nhint: pip install 'brainevent-toolchain[cute]'\n"
