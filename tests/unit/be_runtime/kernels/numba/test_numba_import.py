"""What is said where Numba can't be imported."""

from __future__ import annotations

import numpy as np
import pytest

from be_runtime.kernels.numba.numba_import import explain_compilation, import_error, numpy_mismatch


def test_a_numpy_that_numba_does_not_know_is_named():
    for lacking in ("module 'numpy' has no attribute 'row_stack'", "module 'numpy.lib' has no attribute 'x'"):
        said = numpy_mismatch(AttributeError(lacking), "numba-cuda 0.30.4", "2.5.5")
        assert "numba-cuda 0.30.4 does not work with numpy 2.5.5; pip install 'numpy<2.5'" in said


@pytest.mark.parametrize(
    "error",
    [
        AttributeError("module 'numpyro' has no attribute 'row_stack'"),
        AttributeError("'Array' object has no attribute 'row_stack'"),
        ImportError("Numba needs NumPy 1.22 or greater. Got NumPy 1.21."),
        TypeError("module 'numpy' has no attribute 'row_stack'"),
    ],
)
def test_other_errors_are_not_blamed_on_numpy(error: Exception):
    assert numpy_mismatch(error, "numba-cuda 0.30.4", "2.5.5") == ""


def test_a_numpy_that_numba_refuses_is_bounded_by_what_it_says():
    said = numpy_mismatch(ImportError("Numba needs NumPy 2.9 or less. Got NumPy 2.10."), "numba 0.70.0", "2.10.1")
    assert said == "numba 0.70.0 does not work with numpy 2.10.1; pip install 'numpy<2.10', or a newer numba"


@pytest.mark.parametrize(("package", "title"), [("numba", "Numba"), ("numba-cuda", "Numba with CUDA support")])
def test_every_function_says_what_it_needs_and_why_it_is_not_there(package: str, title: str):
    missing = str(import_error("a_function", package, ModuleNotFoundError("No module named 'numba'")))
    assert missing.startswith(f"a_function needs {title}, which can't be imported: No module named 'numba'\n")
    assert missing.endswith("hint: pip install 'brainevent-toolchain[numba]'")
    mismatch = str(import_error("a_function", package, AttributeError("module 'numpy' has no attribute 'row_stack'")))
    assert f"hint: {package} " in mismatch
    assert "does not work with numpy" in mismatch


def test_a_numpy_below_the_bound_is_not_to_be_replaced_by_an_older_one():
    said = numpy_mismatch(AttributeError("module 'numpy' has no attribute 'trapz'"), "numba 0.59.0", "2.4.6")
    assert said == "numba 0.59.0 does not work with numpy 2.4.6; install a newer numba"


@pytest.mark.parametrize(
    ("numpy", "is_refused"),
    [
        ("2.5.0rc1", True),
        ("2.5.0.dev0+git1", True),
        ("3", True),
        ("2.4.9+local.2.5", False),
        ("1!2.4", False),
        ("2", False),
        ("none", False),
    ],
)
def test_a_numpy_counts_by_its_release(numpy: str, is_refused: bool):
    said = numpy_mismatch(AttributeError("module 'numpy' has no attribute 'trapz'"), "numba 0.59.0", numpy)
    assert ("'numpy<2.5'" in said) == is_refused


def raised(text: str, module: str) -> BaseException:
    """What a line of a module raises."""
    with pytest.raises(AttributeError) as caught:
        exec(compile(text, "<line>", "exec"), {"__name__": module, "np": np})  # noqa: S102 - a line below
    return caught.value


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
    said = explain_compilation("numba-cuda", raised(line, module))
    assert ("does not work with numpy" in said) == is_numba_s
