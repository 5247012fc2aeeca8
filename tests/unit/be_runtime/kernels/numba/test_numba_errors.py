"""What is said where Numba can't be imported, or refuses numpy, and of an exception that a kernel raised."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import be_runtime
from be_runtime.kernels.numba.cpu.report import MESSAGE_SIZE, report
from be_runtime.kernels.numba.numba_import import explain_compilation, import_error, numpy_mismatch

ROW_STACK = "module 'numpy' has no attribute 'row_stack'"
NEWER = "install a newer numba"
OLDER = "pip install 'numpy<{}', or a newer numba"


@pytest.mark.parametrize(
    ("error", "numpy", "remedy"),
    [
        *(
            (AttributeError(ROW_STACK), newer, OLDER.format("2.5"))
            for newer in ("2.5.5", "2.5.0rc1", "2.5.0.dev0+git1", "3")
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


@pytest.mark.parametrize(("package", "title"), [("numba", "Numba"), ("numba-cuda", "Numba with CUDA support")])
def test_every_function_says_what_it_needs_and_why_it_is_not_there(package: str, title: str):
    missing = str(import_error("a_function", package, ModuleNotFoundError("No module named 'numba'")))
    assert missing == (
        f"a_function needs {title}, which can't be imported: No module named 'numba'\n"
        "hint: pip install 'brainevent-toolchain[numba]'"
    )
    mismatch = str(import_error("a_function", package, AttributeError(ROW_STACK)))
    assert f"hint: {package} " in mismatch
    assert "does not work with numpy" in mismatch


@pytest.mark.parametrize(
    ("line", "module", "is_numba_s"),
    [
        ("np.no_such_name", "numba.cuda.np.arrayobj", True),
        ("np.linalg.no_such_name", "numba.cuda.np.linalg", True),
        ("getattr(np, 'no_such' + '_name')", "numba.cuda.typing.context", False),
        ("np.no_such_name", "kernels", False),
        ("np.no_such_name", "numbat", False),
    ],
)
def test_only_names_in_numba_s_own_code_are_blamed_on_numpy(line: str, module: str, is_numba_s: bool):
    with pytest.raises(AttributeError) as caught:
        exec(compile(line, "<line>", "exec"), {"__name__": module, "np": np})  # noqa: S102 - a line above
    assert ("does not work with numpy" in explain_compilation("numba-cuda", caught.value)) == is_numba_s


class MuteError(Exception):
    """Has no text."""

    def __str__(self) -> str:
        return str(1 // 0)


def reported(kind: type[BaseException], value: Any) -> str:
    room = ctypes.create_string_buffer(b"\xff" * (MESSAGE_SIZE + 8), MESSAGE_SIZE + 8)
    report(kind, value, ctypes.addressof(room))
    assert room.raw[MESSAGE_SIZE:] == b"\xff" * 8, "it wrote beyond the message"
    return room.value.decode()


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (ValueError, ValueError("bad", 3), "ValueError: ('bad', 3)"),
        (ZeroDivisionError, ("division by zero",), "ZeroDivisionError: division by zero"),
        (AssertionError, None, "AssertionError"),
        (KeyError, "k", "KeyError: 'k'"),
        (MuteError, MuteError(), "MuteError: (its text can't be made: ZeroDivisionError)"),
        (ValueError, ValueError("a\0b"), "ValueError: a b"),
    ],
)
def test_an_exception_is_its_name_and_text(kind: type[BaseException], value: Any, text: str):
    assert reported(kind, value) == text


@pytest.mark.parametrize("letter", ["x", "é", "漢"])
def test_a_long_text_is_cut_between_characters(letter: str):
    source = (Path(be_runtime.__file__).parent / "native" / "host_call.cc").read_text(encoding="utf-8")
    assert f"constexpr size_t kMessageSize = {MESSAGE_SIZE};" in source, "the handler has room for it"
    text = reported(ValueError, ValueError(letter * 5000))
    assert text.startswith("ValueError: " + letter)
    assert MESSAGE_SIZE - 4 <= len(text.encode()) < MESSAGE_SIZE
