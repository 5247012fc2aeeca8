"""Kernels on the themes of Numba's documentation, compared with NumPy, one by one and in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

numba_kernels = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError)


def function(case: Any, **options: Any) -> Any:
    import jax

    import be_runtime

    outs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in case.outs]
    return jax.jit(be_runtime.numba_cuda_kernel(case.kernel, outs, **case.launch, **options))


def check(case: Any, found: Sequence[Any], expected: Sequence[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for here, there in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(here), there, rtol=case.rtol, atol=1e-5)


@pytest.mark.parametrize("name", numba_kernels.CASES)
def test_kernel_computes_what_numpy_does(name: str):
    case = numba_kernels.CASES[name]
    check(case, function(case)(*case.inputs), case.expected(*case.inputs))


@pytest.mark.parametrize("name", ["matmul", "histogram", "odd_even_sort"])
def test_a_batch_is_every_slice(name: str):
    """Under `vmap`, with every input in the batch and with the last one outside of it."""
    import jax

    case = numba_kernels.CASES[name]
    run = function(case, vmap_method="broadcast_all")
    batch = tuple(np.stack([x, x[::-1].copy(), x]) for x in case.inputs)
    for axes in {(0,) * len(batch), (*(0 for _ in batch[1:]), None if len(batch) > 1 else 0)}:
        inputs = [x if axis == 0 else x[0] for x, axis in zip(batch, axes, strict=True)]
        found = jax.vmap(run, axes)(*inputs)
        slices = [[x[i] if axis == 0 else x for x, axis in zip(inputs, axes, strict=True)] for i in range(3)]
        expected = zip(*(case.expected(*each) for each in slices), strict=True)
        check(case, found, [np.stack(each) for each in expected])
