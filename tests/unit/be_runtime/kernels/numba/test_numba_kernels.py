"""Numba's kernels: their identity, what is known without Numba, and what is said where it refuses or fails."""

from __future__ import annotations

import ctypes
import re
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import be_runtime
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.jax.arrays import ArraySpec
from be_runtime.kernels.content import function_content
from be_runtime.kernels.numba import source as source_module
from be_runtime.kernels.numba.cpu import MESSAGE_SIZE, check_count, report, signature_of
from be_runtime.kernels.numba.gpu import MLIR, check_words
from be_runtime.kernels.numba.source import (
    augmented,
    direct_writes,
    explain_compilation,
    hints,
    import_error,
    numpy_mismatch,
)
from tests.support.runtime import environment, run_python
from tests.unit.be_runtime.compile.codegen.golden_files import answer, check_golden

cuda: Any = None
stwt: Any = None


def counts(x: Any, y: Any, out: Any) -> None:
    i = cuda.grid(1)
    value = x[i]
    cuda.atomic.add(out, i, value)
    if value > 0:
        cuda.atomic.max(y, (i, 0), 1)


def stores(x: Any, y: Any, out: Any) -> None:
    value = cuda.ldcs(x, 0)
    cuda.stcs(out[1:], 0, value)
    stwt(y, 0, value)


def adds(x: Any, y: Any, out: Any) -> None:
    x += y
    out[0] **= 2


def adds_to_output(x: Any, y: Any, out: Any) -> None:
    out *= "s"


def adds_to_view(x: Any, y: Any, out: Any) -> None:
    view = x[1:]
    view |= y


def assigns(x: Any, y: Any, out: Any) -> None:
    out[0] = x[0] + y[0]


def takes_any(*arrays: Any) -> None:
    pass


def with_default(x: Any, out: Any, count: int = 3) -> None:
    pass


def test_what_operations_and_operators_write_is_named():
    assert direct_writes(counts) == {"out": "an atomic operation", "y": "an atomic operation"}
    assert direct_writes(stores) == {"out": "a cuda.stcs", "y": "a cuda.stwt"}
    assert direct_writes(assigns) == {}
    assert [augmented(each) for each in (adds, adds_to_view, assigns)] == [{"x": "+="}, {"view": "|="}, {}]


OPERATOR = "'NoneType' object has no attribute 'args'"
NUMBER = "No implementation of function Function(<class 'range'>) ... range(readonly array(int32, 0d, C))"
WRITE = "setitem(readonly array(int32, 0d, C), Tuple(), int64)"
X, N, HALF = (
    ArraySpec(BY_NAME[name], shape) for name, shape in (("float32", (3, 4)), ("int64", ()), ("bfloat16", (2,)))
)


def test_what_is_said_of_refused_kernels():
    """An operator is blamed on what it writes, and a write comes before a number."""
    functions = (adds, adds_to_output, adds_to_view, assigns, takes_any)
    rows = [f"{each.__name__}: {hints(each, [1, 1], [1], OPERATOR)}" for each in functions]
    rows += [f"numbers: {hints(each, [0, 1], [0], NUMBER)}" for each in (adds, takes_any)]
    rows.append(f"a write of a number: {hints(adds, [0, 1], [1], WRITE)}")
    for inputs in range(4):
        signature = signature_of([X] * inputs, [X])
        rows.append(f"{inputs} inputs: {answer(check_count, adds, 'f', signature)}")
        rows.append(f"{inputs} inputs, the stream: {answer(check_count, adds, 'f', signature, ('the stream',))}")
    signature = signature_of([X], [X])
    rows += [f"any number: {answer(check_count, each, 'f', signature)}" for each in (takes_any, with_default)]
    two, one = (answer(source_module.check_count, adds, inputs, 1) for inputs in (2, 1))
    rows.append(f"two on a GPU: {two} {one}")
    rows += [answer(signature_of, *each, ("bfloat16",)) for each in (([X, N], [X]), ([X, HALF], [X]), ([X], [X, HALF]))]
    check_golden(Path(__file__).parent / "golden" / "refused.txt", "\n".join(rows) + "\n")


def test_only_dtypes_and_ranks_count():
    other = X._replace(shape=(7, 1))
    assert signature_of([X, N], [X]) == signature_of([other, N], [other])


@pytest.mark.parametrize("function", [lambda *arrays: None, lambda x, out=None: None, lambda x, *, out: None])
def test_a_kernel_on_a_gpu_has_named_arrays_alone(function: Any):
    with pytest.raises(ArgumentError, match="the arrays of a call, each named"):
        source_module.check_count(function, 1, 1)


PTX = """
.extern .func  (.param .b32 func_retval0) vprintf
(
);
.extern .func  (.param .b64 func_retval0) cudaCGGetIntrinsicHandle
(
);
.extern .func numba_helper
();
.extern .shared .align 16 .b8 shared[];
.visible .entry _ZN4main5scale$E(
"""


def test_ptx_says_what_it_lacks_what_it_has_and_which_axis_is_free():
    assert source_module.missing_functions(PTX) == ("cudaCGGetIntrinsicHandle", "numba_helper")
    assert source_module.entry_in_ptx(PTX) == "_ZN4main5scale$E"
    axes = {"": 2, "%ctaid.x %nctaid.x": 2, "%ctaid.z": 1, "%nctaid.z": 1, "%ctaid.z %ctaid.y": 0}
    for registers, axis in axes.items():
        assert source_module.free_axis("\n".join(f"mov.u32 %r1, {each};" for each in registers.split())) == axis


@pytest.mark.parametrize("axis", [1, 2])
def test_batched_source_takes_slices(axis: int):
    block, kernel = SimpleNamespace(blockIdx=SimpleNamespace(y=2, z=3)), Mock()
    namespace: dict[str, Any] = {"cuda": block, "kernel": kernel}
    exec(source_module.batched_source("scale", 2, axis), namespace)  # noqa: S102 - what is tested
    namespace["scale_batched"](np.arange(1), np.arange(5))
    kernel.assert_called_once_with(0, axis + 1)


def ptx(count: int, kind: str = ".param .u64") -> str:
    params = ",\n".join(f"\t{kind} _Z5scale_param_{number}" for number in range(count))
    return f"// .globl _Z5scale\n.visible .entry _Z5scale(\n{params}\n)\n.maxntid 256, 1, 1\n{{\nret;\n}}\n"


def test_arrays_of_words_are_taken_and_others_refused():
    for kind in (".param .u64", ".param .b64", ".param .u64 .ptr .align 1"):
        check_words(ptx(16, kind), [1, 2])
        check_words(ptx(5, kind), [0])
        check_words(ptx(12, kind), [1, 2], MLIR)
    for text in (ptx(6), ptx(8), ptx(7).replace(".u64", ".u32", 1), ptx(0), ""):
        with pytest.raises(BuildError, match=r"parameters for arrays of \(1,\) dimensions.*does not support"):
            check_words(text, [1])


ROW_STACK = "module 'numpy' has no attribute 'row_stack'"
NEWER = "install a newer numba"
CUDA = "Numba with CUDA support"
OLDER = "pip install 'numpy<{}', or a newer numba"


@pytest.mark.parametrize(
    ("error", "numpy", "remedy"),
    [
        *(
            (AttributeError(ROW_STACK), newer, OLDER.format("2.5"))
            for newer in ("2.5.5", "2.5.0rc1", "2.5.0.dev0+x", "3")
        ),
        *((AttributeError(ROW_STACK), older, NEWER) for older in ("2.4.6", "2.4.9+local.2.5", "1!2.4", "2", "none")),
        (AttributeError("module 'numpy.lib' has no attribute 'x'"), "2.5.5", OLDER.format("2.5")),
        (ImportError("Numba needs NumPy 2.9 or less. Got NumPy 2.10."), "2.10.1", OLDER.format("2.10")),
        (ImportError("Numba needs NumPy 1.22 or greater. Got NumPy 1.21."), "1.21", ""),
        (AttributeError("module 'numpyro' has no attribute 'row_stack'"), "2.5.5", ""),
        (AttributeError("'Array' object has no attribute 'row_stack'"), "2.5.5", ""),
        (TypeError(ROW_STACK), "2.5.5", ""),
    ],
)
def test_a_numpy_that_numba_does_not_know_is_named_with_its_bound(error: Exception, numpy: str, remedy: str):
    said = f"numba 0.59.0 does not work with numpy {numpy}; {remedy}" if remedy else ""
    assert numpy_mismatch(error, "numba 0.59.0", numpy) == said


def test_no_older_numpy_is_asked_for_by_the_successor_which_works_with_newer_ones():
    said = numpy_mismatch(AttributeError(ROW_STACK), "numba-cuda-mlir 0.6.0", "2.6.0")
    assert said == "numba-cuda-mlir 0.6.0 does not work with numpy 2.6.0; install a newer numba-cuda-mlir"


@pytest.mark.parametrize(("package", "title"), [("numba", "Numba"), ("numba-cuda", CUDA), ("numba-cuda-mlir", CUDA)])
def test_every_function_says_what_it_needs_and_why_it_is_not_there(package: str, title: str):
    missing = str(import_error("a_function", package, ModuleNotFoundError("No module named 'numba'")))
    needs = f"a_function needs {title}, which can't be imported: No module named 'numba'"
    assert missing == f"{needs}\nhint: pip install 'brainevent-toolchain[numba]'"
    mismatch = str(import_error("a_function", package, AttributeError(ROW_STACK)))
    assert re.search(f"hint: {package} .*does not work with numpy", mismatch)


def test_only_names_in_numba_s_own_code_are_blamed_on_numpy():
    for line, module, is_numba_s in (
        ("np.no_such_name", "numba.cuda.np.arrayobj", True),
        ("np.linalg.no_such_name", "numba.cuda.np.linalg", True),
        ("np.no_such_name", "numba_cuda_mlir.numba_cuda.np.arrayobj", True),
        ("getattr(np, 'no_such' + '_name')", "numba.cuda.typing.context", False),
        *(("np.no_such_name", other, False) for other in ("kernels", "numbat")),
    ):
        with pytest.raises(AttributeError) as caught:
            exec(compile(line, "<line>", "exec"), {"__name__": module, "np": np})  # noqa: S102 - a line above
        assert ("does not work with numpy" in explain_compilation("numba-cuda", caught.value)) == is_numba_s, module


class MuteError(Exception):
    """Has no text."""

    def __str__(self) -> str:
        return str(1 // 0)


def reported(kind: type[BaseException], value: Any) -> str:
    room = ctypes.create_string_buffer(b"\xff" * (MESSAGE_SIZE + 8), MESSAGE_SIZE + 8)
    report(kind, value, ctypes.addressof(room))
    assert room.raw[MESSAGE_SIZE:] == b"\xff" * 8, "it wrote beyond the message"
    return room.value.decode()


REPORTED: dict[tuple[type[BaseException], Any], str] = {
    (ValueError, ValueError("bad", 3)): "ValueError: ('bad', 3)",
    (ZeroDivisionError, ("division by zero",)): "ZeroDivisionError: division by zero",
    (AssertionError, None): "AssertionError",
    (KeyError, "k"): "KeyError: 'k'",
    (MuteError, MuteError()): "MuteError: (its text can't be made: ZeroDivisionError)",
    (ValueError, ValueError("a\0b")): "ValueError: a b",
}


def test_an_exception_is_its_name_and_text():
    assert [reported(*each) for each in REPORTED] == [*REPORTED.values()]


@pytest.mark.parametrize("letter", ["x", "é", "漢"])
def test_a_long_text_is_cut_between_characters(letter: str):
    source = (Path(be_runtime.__file__).parent / "native" / "host_call.cc").read_text(encoding="utf-8")
    assert f"constexpr size_t kMessageSize = {MESSAGE_SIZE};" in source, "the handler has room for it"
    text = reported(ValueError, ValueError(letter * 5000))
    assert text.startswith("ValueError: " + letter)
    assert MESSAGE_SIZE - 4 <= len(text.encode()) < MESSAGE_SIZE


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
    assert function_content(outer(1)) == function_content(outer(1)) != function_content(outer(2))


def test_functions_that_call_each_other():
    source = "def kernel(n): return other(n - 1) if n else 1\ndef other(n): return kernel(n) + 1\n"
    assert digest(source) == digest(source) != digest(source.replace("+ 1", "+ 2"))


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
    assert digest(OF_THING, THING=np.arange(6)[::2]) == digest(OF_THING, THING=np.array([0, 2, 4])), "not its memory"

    def made(number: int) -> Callable[[int], int]:
        def kernel(x: int) -> int:
            return x + number

        kernel.__module__ = "numpy.factories"
        return kernel

    assert function_content(made(1)).digest != function_content(made(2)).digest


def test_the_same_in_every_process():
    code = (
        "import sys; from be_runtime.kernels.content import function_content\n"
        "namespace = {'__name__': 'defined_by_a_test'}; exec(sys.argv[1], namespace)\n"
        "print(function_content(namespace['kernel']).digest)"
    )
    assert run_python(code, BASE, env=environment(PYTHONHASHSEED="1")).stdout.strip() == digest(BASE)
