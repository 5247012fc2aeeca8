"""`at` gives the element that its indices name; a checked build refuses others with their line."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime.load.process import PROCESS
from be_runtime.request.arguments import cpp_request, file_units, load_options
from tests.compile.be_runtime.include.conftest import KERNELS
from tests.support.jax_names import enable_x64

X = np.arange(6, dtype=np.float32).reshape(2, 3)
ONE = jax.ShapeDtypeStruct((1,), np.float32)


@pytest.fixture(scope="module", name="load")
def _load() -> dict[bool, Any]:
    """The kernels, by whether they are checked."""
    request = cpp_request("at", file_units(KERNELS / "at.cc"), None)
    options = load_options("at", auto_register=False)
    each = {is_checked: request.compile._replace(checked=is_checked) for is_checked in (False, True)}
    return {is_checked: PROCESS.load(request._replace(compile=how), options) for is_checked, how in each.items()}


@pytest.mark.parametrize("is_checked", [False, True])
def test_each_element_is_found_by_indices_of_any_integer_type(load: dict[bool, Any], is_checked: bool):
    module = load[is_checked]
    found = [float(module.element(X, i=i, j=j, outs=ONE)[0]) for i in range(2) for j in range(3)]
    assert found == X.ravel().tolist()
    x = jnp.arange(2.0**7 * 3).reshape(2, 2, 2, 2, 2, 2, 2, 3)
    assert module.corners(x, outs=jax.ShapeDtypeStruct((2,), np.float32)).tolist() == [0, x.size - 1]


@pytest.mark.parametrize(
    ("function", "indices", "message"),
    [
        ("element", (2, 0), ":4: at<float>(): index 0 is 2, and axis 0 has 2 elements"),
        ("element", (0, 3), ":4: at<float>(): index 1 is 3, and axis 1 has 3 elements"),
        ("element", (-1, 0), ":4: at<float>(): index 0 is -1, and axis 0 has 2 elements"),
        ("element", (0, 2**62), f":4: at<float>(): index 1 is {2**62}, and axis 1 has 3 elements"),
        ("one_index", (), ":13: at<float>() with 1 indices of a tensor with 2 dimensions"),
        ("wide", (), ":17: at<double>() of a float32 tensor; ask for the type of its elements"),
        ("pairs", (), "at<pairs(BE::Tensor, BE::Tensor)::Pair>() of a float32 tensor; ask for the type of its element"),
        ("pointer", (), ":24: data_ptr<BE::Complex<float>"),
    ],
)
def test_what_is_no_element_is_refused_with_its_line(
    load: dict[bool, Any], function: str, indices: tuple[int, ...], message: str
):
    with enable_x64(), pytest.raises(jax.errors.JaxRuntimeError) as raised:
        load[True][function](X, outs=ONE, **dict(zip("ij", indices, strict=False)))
    refused = str(raised.value).splitlines()[0]
    assert refused.startswith(f"INVALID_ARGUMENT: at.{function}: argument 0: {KERNELS}/at.cc:")
    assert message in refused
