"""The identity of a function: equal where the function is, different where anything that matters is."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from be_runtime.kernels.numba.function_content import function_content
from tests.support.runtime import environment, run_python

BASE = """
import math
import numpy as np
FACTOR = 3
TABLE = np.arange(4.0)
def helper(x): return x * FACTOR
def kernel(x, out, limit=5):
    for i in range(len(x)):
        if x[i] in {1, "a", 2.5, (3, 4)}:
            out[i] = helper(x[i]) + TABLE[0] + math.sin(x[i])
"""
OF_THING = "def kernel(x): return THING\n"


def define(source: str, name: str = "kernel", **given: object) -> Any:
    namespace: dict[str, Any] = {"__name__": "defined_by_a_test", **given}
    exec(source, namespace)  # noqa: S102 - it is the test's own
    return namespace[name]


def digest(source: str, **given: Any) -> str:
    content = function_content(define(source, **given))
    assert content.anchors == ()
    return content.digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(("FACTOR = 3", f"FACTOR = {other}") for other in ("4", "3.0", "True")),
        *(("np.arange(4.0)", f"np.arange({other})") for other in ("5.0", "4")),
        *(("limit=5", "limit=6"), ("math.sin", "math.cos"), ("(3, 4)", "(4, 3)"), ('"a"', '"b"')),
        *(("return x * FACTOR", "return x + FACTOR"), ("import math", "import cmath as math")),
    ],
)
def test_what_a_function_reaches_is_part_of_it(old: str, new: str):
    assert old in BASE
    assert digest(BASE) != digest(BASE.replace(old, new))


def test_places_and_names_that_are_not_read_are_no_part_of_it():
    assert digest(BASE) == digest("\n\n# moved\n" + BASE) == digest(BASE + "\nUNUSED = object()\nx = object()\n")


def test_constants_of_modules_are_followed():
    source = "def kernel(x, out): out[0] = x[0] * settings.inner.factor + settings.offset\n"
    found = set()
    for factor, offset in ((2, 1), (3, 1), (3, 2)):
        settings: Any = types.ModuleType("settings")
        settings.inner = types.ModuleType("settings.inner")
        settings.inner.factor, settings.offset = factor, offset
        found.add(digest(source, settings=settings))
    assert len(found) == 3


def test_closures_count_by_what_they_hold():
    outer = define("def outer(a):\n    def kernel(x): return x + a\n    return kernel\n", "outer")
    assert function_content(outer(1)) == function_content(outer(1))
    assert function_content(outer(1)) != function_content(outer(2))


def test_functions_that_call_each_other():
    source = "def kernel(n): return other(n - 1) if n else 1\ndef other(n): return kernel(n) + 1\n"
    assert digest(source) == digest(source)
    assert digest(source) != digest(source.replace("+ 1", "+ 2"))


def test_a_compiled_function_counts_with_its_options():
    def compiled(**options: Any) -> Any:
        return types.SimpleNamespace(py_func=define(BASE), targetoptions=options, locals={})

    plain = function_content(compiled(fastmath=False))
    assert plain == function_content(compiled(fastmath=False))
    assert plain not in (function_content(compiled(fastmath=True)), function_content(define(BASE)))


def test_what_only_this_process_can_tell_apart_is_kept_alive():
    class Opaque:
        pass

    things = [Opaque(), Opaque()]
    first, second = (function_content(define(OF_THING, THING=thing)) for thing in things)
    assert first.digest != second.digest
    assert first.anchors == (things[0],)


def test_numpy_s_own_things_are_known_by_name_and_what_it_makes_by_content():
    things = (np.float32, np.add, np.dtype("int8"), np.sum, np.newaxis, np.float32(2), np.float32(1))
    assert len({digest(OF_THING, THING=thing) for thing in things}) == len(things)

    def made(number: int) -> Callable[[int], int]:
        def kernel(x: int) -> int:
            return x + number

        kernel.__module__ = "numpy.factories"
        return kernel

    assert function_content(made(1)).digest != function_content(made(2)).digest


def test_an_array_is_its_content_not_its_memory():
    assert digest(OF_THING, THING=np.arange(6)[::2]) == digest(OF_THING, THING=np.array([0, 2, 4]))


def test_the_same_in_every_process():
    code = (
        "import sys; from be_runtime.kernels.numba.function_content import function_content\n"
        "namespace = {'__name__': 'defined_by_a_test'}; exec(sys.argv[1], namespace)\n"
        "print(function_content(namespace['kernel']).digest)"
    )
    assert run_python(code, BASE, env=environment(PYTHONHASHSEED="1")).stdout.strip() == digest(BASE)
