"""`at` gives the element that its indices name; a checked build refuses others with their line."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime.load.process import PROCESS
from be_runtime.request.arguments import cpp_request, inline_units, load_options
from tests.support.jax_names import enable_x64

SOURCE = r"""#include "brainevent/common.h"
// @BE element arg ret attr.i:int64 attr.j:int64
void element(const BE::Tensor x, BE::Tensor y, int64_t i, int64_t j) {
  y.at<float>(0) = x.at<float>(i, j);
}
// @BE corners arg ret
void corners(const BE::Tensor x, BE::Tensor y) {
  const int one = 1;
  const size_t last = 1;
  y.at<float>(0) = x.at<float>(0, 0, 0, 0, 0, 0, 0, 0);
  y.at<float>(1) = x.at<float>(one, last, 1u, true, 1, 1, 1L, 2);
}
// @BE one_index arg ret
void one_index(const BE::Tensor x, BE::Tensor y) {
  y.at<float>(0) = x.at<float>(0);
}
// @BE wide arg ret
void wide(const BE::Tensor x, BE::Tensor y) {
  y.at<float>(0) =
      x.at<double>(0, 0);
}
// @BE pairs arg ret
void pairs(const BE::Tensor x, BE::Tensor y) { struct Pair { float x, y; }; y.at<float>(0) = x.at<Pair>(0, 0).x; }
// @BE pointer arg ret
void pointer(const BE::Tensor x, BE::Tensor y) {
  y.data_ptr<float>()[0] =
      x.data_ptr<BE::complex64_t>() != nullptr;
}
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)
ONE = jax.ShapeDtypeStruct((1,), np.float32)


@pytest.fixture(scope="module", params=[False, True], ids=["ordinary", "checked"])
def module(request: pytest.FixtureRequest) -> Any:
    return load(checked=request.param)


def load(*, checked: bool) -> Any:
    request = cpp_request("at_kernels", inline_units("at_kernels", SOURCE, "source"), None)
    wanted = request._replace(compile=request.compile._replace(checked=checked))
    return PROCESS.load(wanted, load_options("at_kernels", auto_register=False))


def test_each_element_is_found_by_its_indices(module: Any):
    found = [float(module.element(X, i=i, j=j, outs=ONE)[0]) for i in range(2) for j in range(3)]
    assert found == X.ravel().tolist()


def test_eight_indices_of_any_integer_type(module: Any):
    x = jnp.arange(2.0**7 * 3).reshape(2, 2, 2, 2, 2, 2, 2, 3)
    assert module.corners(x, outs=jax.ShapeDtypeStruct((2,), np.float32)).tolist() == [0, x.size - 1]


@pytest.mark.parametrize(
    ("i", "j", "message"),
    [
        (2, 0, "index 0 is 2, and axis 0 has 2 elements"),
        (0, 3, "index 1 is 3, and axis 1 has 3 elements"),
        (-1, 0, "index 0 is -1, and axis 0 has 2 elements"),
        (0, 2**62, f"index 1 is {2**62}, and axis 1 has 3 elements"),
    ],
)
def test_an_index_outside_of_its_axis_is_refused_with_its_line(i: int, j: int, message: str):
    with enable_x64():
        refused = refusal("element", i=i, j=j)
    assert refused == f"at_kernels.element: argument 0: at_kernels:4: at<float>(): {message}"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("one_index", "at_kernels:15: at<float>() with 1 indices of a tensor with 2 dimensions"),
        ("wide", "at_kernels:20: at<double>() of a float32 tensor; ask for the type of its elements"),
        ("pairs", "at<pairs(BE::Tensor, BE::Tensor)::Pair>() of a float32 tensor; ask for the type of its elements"),
        ("pointer", "at_kernels:27: data_ptr<BE::Complex<float>"),
    ],
)
def test_another_number_of_indices_or_another_type_is_refused(function: str, message: str):
    assert message in refusal(function)


def refusal(function: str, **attributes: int) -> str:
    with pytest.raises(jax.errors.JaxRuntimeError) as raised:
        load(checked=True)[function](X, outs=ONE, **attributes)
    return str(raised.value).splitlines()[0].removeprefix("INVALID_ARGUMENT: ")
