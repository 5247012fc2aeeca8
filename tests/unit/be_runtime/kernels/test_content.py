"""The content of functions that use classes and objects, and `cute_kernel` without CuTe DSL."""

from __future__ import annotations

import textwrap
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
