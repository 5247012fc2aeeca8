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


def define(source: str, name: str = "kernel") -> Any:
    namespace: dict[str, Any] = {"__name__": "defined_by_a_test"}
    exec(source, namespace)  # noqa: S102 - it is the test's own
    return namespace[name]


def digest(source: str) -> str:
    content = function_content(define(source))
    assert content.anchors == ()
    return content.digest


def test_the_same_source_elsewhere_is_the_same_function():
    assert digest(BASE) == digest("\n\n# moved\n" + BASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FACTOR = 3", "FACTOR = 4"),
        ("FACTOR = 3", "FACTOR = 3.0"),
        ("FACTOR = 3", "FACTOR = True"),
        ("np.arange(4.0)", "np.arange(5.0)"),
        ("np.arange(4.0)", "np.arange(4)"),
        ("return x * FACTOR", "return x + FACTOR"),
        ("limit=5", "limit=6"),
        ("math.sin", "math.cos"),
        ("import math", "import cmath as math"),
        ("(3, 4)", "(4, 3)"),
        ('"a"', '"b"'),
    ],
)
def test_what_a_function_reaches_is_part_of_it(old: str, new: str):
    assert old in BASE
    assert digest(BASE) != digest(BASE.replace(old, new))


def test_a_name_that_is_not_read_is_no_part_of_it():
    assert digest(BASE) == digest(BASE + "\nUNUSED = object()\nx = object()\n")


def test_closures_count_by_what_they_hold():
    source = "def outer(a):\n    def kernel(x): return x + a\n    return kernel\n"
    outer = define(source, "outer")
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
    assert plain != function_content(compiled(fastmath=True))
    assert plain != function_content(define(BASE))


def test_what_only_this_process_can_tell_apart_is_kept_alive():
    class Opaque:
        pass

    source = "def kernel(x): return THING\n"
    functions = [define(source), define(source)]
    things = [Opaque(), Opaque()]
    for function, thing in zip(functions, things, strict=True):
        function.__globals__["THING"] = thing
    first, second = map(function_content, functions)
    assert first.digest != second.digest
    assert first.anchors == (things[0],)


def test_numpy_s_own_things_are_known_by_name():
    for name in ("float32", "add", "dtype('int8')", "sum", "newaxis", "float32(2)"):
        source = f"import numpy as np\nTHING = np.{name}\ndef kernel(x): return THING\n"
        assert function_content(define(source)).anchors == (), name
    assert digest("import numpy as np\nT = np.float32(1)\ndef kernel(x): return T\n") != digest(
        "import numpy as np\nT = np.float32(2)\ndef kernel(x): return T\n"
    )


def test_what_a_factory_of_numpy_makes_is_known_by_its_content():
    def made(number: int) -> Callable[[int], int]:
        def kernel(x: int) -> int:
            return x + number

        kernel.__module__ = "numpy.factories"
        return kernel

    assert function_content(made(1)).digest != function_content(made(2)).digest


def test_the_same_in_every_process():
    code = (
        "import sys; from be_runtime.kernels.numba.function_content import function_content\n"
        "namespace = {'__name__': 'defined_by_a_test'}; exec(sys.argv[1], namespace)\n"
        "print(function_content(namespace['kernel']).digest)"
    )
    seeds = ("1", "2")
    found = {run_python(code, BASE, env=environment(PYTHONHASHSEED=seed)).stdout.strip() for seed in seeds}
    assert found == {digest(BASE)}


def test_an_array_is_its_content_not_its_memory():
    source = "def kernel(x): return TABLE[0]\n"
    functions = [define(source), define(source)]
    functions[0].__globals__["TABLE"] = np.arange(6)[::2]
    functions[1].__globals__["TABLE"] = np.array([0, 2, 4])
    assert function_content(functions[0]) == function_content(functions[1])
