"""Kernels on the themes of Numba's documentation, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

numba_kernels = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError)


@pytest.mark.parametrize("name", numba_kernels.CASES)
def test_kernel_computes_what_numpy_does(name: str):
    import jax

    import be_runtime

    case = numba_kernels.CASES[name]
    outs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in case.outs]
    function = be_runtime.numba_cuda_kernel(case.kernel, outs, **case.launch)
    found = jax.jit(function)(*case.inputs)
    expected = case.expected(*case.inputs)
    assert len(found) == len(expected)
    for here, there in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(here), there, rtol=case.rtol, atol=1e-5)
