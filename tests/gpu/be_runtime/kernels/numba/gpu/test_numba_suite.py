"""Kernels on the themes of Numba's documentation, and Numba's own tests, launched natively.

Numba's tests come with numba-cuda, and most of their kernels are local to a test. So a test runs as it is, and only the
launch is exchanged: it still makes the data, and still says what the result has to be.
"""

from __future__ import annotations

import importlib
import sys
import unittest
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import be_runtime
from be_runtime.dtypes import BY_NAME


class Launches:
    """Takes the launches of Numba kernels until the test is over.

    Parameters
    ----------
    monkeypatch : MonkeyPatch
    inputs : dict of str to int
        How many of its leading arrays a kernel only reads, where it writes the others as a whole. It is then launched
        as it is. Any other kernel is launched in place: each of its arrays is an output that begins with an input.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, inputs: dict[str, int]) -> None:
        from numba.cuda.dispatcher import CUDADispatcher

        self.names: list[str] = []
        self._inputs = inputs
        self._functions: dict[object, tuple[Callable[..., Any], Any]] = {}

        def call(kernel: Any, arguments: Sequence[Any], how: Any) -> None:
            self._launch(kernel, arguments, how)

        # A test may look at what Numba compiles, and Numba chooses blocks by it; it only doesn't launch.
        monkeypatch.setattr(CUDADispatcher, "call", call)

    def _launch(self, kernel: Any, arguments: Sequence[Any], how: Any) -> None:
        from tests.support.jax_names import enable_x64

        name = kernel.py_func.__name__
        self.names.append(name)
        places = [place for place, argument in enumerate(arguments) if _is_jax_array(argument)]
        arrays = [arguments[place] for place in places]
        read = self._inputs.get(name)
        written = arrays[read or 0 :]
        with enable_x64(True):
            function = self._function(kernel, arguments, places, how)
            results = function(*map(_on_host, arrays if read is None else arrays[:read]))
            for array, result in zip(written, results, strict=True):
                _replace(array, np.asarray(result))

    def _function(self, kernel: Any, arguments: Sequence[Any], places: Sequence[int], how: Any) -> Callable[..., Any]:
        """A function of the arrays at some places, made once: what a kernel reads of its surroundings is a constant."""
        import jax

        constants = {place: value for place, value in enumerate(arguments) if place not in places}
        specs = [jax.ShapeDtypeStruct(arguments[place].shape, arguments[place].dtype) for place in places]
        geometry = (how.griddim, how.blockdim, how.sharedmem)
        known = (kernel, repr(specs), *((place, id(value)) for place, value in constants.items()), geometry)
        if known not in self._functions:
            read = self._inputs.get(kernel.py_func.__name__)
            called = kernel if read is not None else _in_place(kernel, len(arguments), constants)
            aliases = None if read is not None else {index: index for index in range(len(places))}
            grid, block, shared_mem = geometry
            function = be_runtime.numba_cuda_kernel(
                called, specs[read or 0 :], grid=grid, block=block, shared_mem=shared_mem, input_output_aliases=aliases
            )
            self._functions[known] = (function, constants)
        return self._functions[known][0]


def run(monkeypatch: pytest.MonkeyPatch, name: str, inputs: dict[str, int]) -> list[str]:
    """Run one of Numba's tests.

    Parameters
    ----------
    monkeypatch : MonkeyPatch
        Of the test that this is part of.
    name : str
        Below ``numba.cuda.tests``, such as ``"doc_examples.test_vecadd.TestVecAdd.test_ex_vecadd"``.
    inputs : dict of str to int
        See `Launches`.

    Returns
    -------
    list of str
        The names of the kernels that were launched, once for each launch.
    """
    for part in ("", ".matcher", ".options", ".parser", ".finput"):
        # Compares assembler texts. Numba's tests import it, few use it, and numba-cuda does not bring it.
        monkeypatch.setitem(sys.modules, f"filecheck{part}", _Absent(f"filecheck{part}"))
    folder, module, *path = name.split(".")
    found: Any = importlib.import_module(f"numba.cuda.tests.{folder}.{module}")
    for each in path[:-1]:
        found = getattr(found, each)
    launches = Launches(monkeypatch, inputs)
    test = found(path[-1]) if path[:-1] else unittest.FunctionTestCase(getattr(found, path[-1]))
    outcome = unittest.TestResult()
    test.run(outcome)
    for _, reason in outcome.skipped:
        pytest.skip(f"Numba's own reason: {reason}")
    problems = [text for _, text in (*outcome.failures, *outcome.errors)]
    assert not problems, "\n".join(problems)
    return launches.names


class _Absent(ModuleType):
    """A module that is imported from and never used."""

    def __getattr__(self, name: str) -> object:
        return None


def _is_jax_array(value: Any) -> bool:
    """Whether an argument of a kernel is an array that JAX can hold; states of random numbers are none."""
    return hasattr(value, "shape") and bool(value.shape) and str(value.dtype) in BY_NAME


def _on_host(array: Any) -> np.ndarray:
    return np.array(array if isinstance(array, np.ndarray) else array.copy_to_host())


def _replace(array: Any, content: np.ndarray) -> None:
    """Let a test find a result in its array, on the host or on the device."""
    if isinstance(array, np.ndarray):
        array[...] = content
    else:
        array.copy_to_device(content)


def _in_place(kernel: Any, count: int, constants: dict[int, Any]) -> Any:
    """A kernel that takes its arrays twice and works on the second ones; the other arguments are its globals."""
    from numba import cuda

    arrays = [f"a{place}" for place in range(count) if place not in constants]
    values = {f"constant{place}": value for place, value in constants.items()}
    called = ", ".join(f"constant{place}" if place in constants else f"a{place}" for place in range(count))
    name = f"{kernel.py_func.__name__}_in_place"
    source = f"def {name}({', '.join([*(f'before_{each}' for each in arrays), *arrays])}):\n    kernel({called})\n"
    namespace: dict[str, Any] = {"kernel": cuda.jit(device=True)(kernel.py_func), "__name__": __name__, **values}
    exec(source, namespace)  # noqa: S102 - names of our own, and a function's
    return cuda.jit(namespace[name])


# Numba warns where a grid is small; under pytest a warning is an error.
pytestmark = pytest.mark.filterwarnings("ignore:.*Grid size", "ignore:.*[Hh]ost array")

DOCUMENTATION: dict[str, dict[str, int]] = {
    "test_sessionize.TestSessionization.test_ex_sessionize": {},
    "test_laplace.TestLaplace.test_ex_laplace": {},
    "test_globals.TestGlobals.test_ex_globals_constant_capture": {"compute_totals": 1},
    "test_globals.TestGlobals.test_ex_globals_device_array_capture": {"compute_totals": 1},
    "test_ufunc.TestUFunc.test_ex_cuda_ufunc_call": {},
    "test_cpu_gpu_compat.TestCpuGpuCompat.test_ex_cpu_gpu_compat": {},
}
TESTS: dict[str, dict[str, int]] = {
    "test_blackscholes.TestBlackScholes.test_blackscholes": {},
    "test_nondet.TestCudaNonDet.test_for_pre": {},
    "test_atomics.TestCudaAtomics.test_atomic_add_double_global": {},
    "test_atomics.TestCudaAtomics.test_atomic_max_float32": {},
    "test_atomics.TestCudaAtomics.test_atomic_compare_and_swap": {},
    "test_sync.TestCudaSync.test_coop_syncwarp": {},
    "test_sync.TestCudaSync.test_coop_smem2d": {},
    "test_sync.TestCudaSync.test_syncthreads_count": {"use_syncthreads_count": 1},
    "test_warp_ops.TestCudaWarpOperations.test_match_any_sync": {"use_match_any_sync": 1},
    "test_localmem.TestCudaLocalMem.test_local_array_complex": {},
    "test_constmem.TestCudaConstantMemory.test_const_array_3d": {},
    "test_complex_kernel.TestCudaComplex.test_cuda_complex_arg": {},
    "test_powi.TestCudaPowi.test_cpow_complex64_pow": {},
}
"""Numba's tests on themes without a kernel in `tests.support.numba_kernels`, with the kernels of each that only read so
many of their first arrays."""

numba_kernels = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError)

ALL = {f"doc_examples.{name}": inputs for name, inputs in DOCUMENTATION.items()} | {
    f"cudapy.{name}": inputs for name, inputs in TESTS.items()
}


@pytest.mark.skipif(numba_kernels.PACKAGE != "numba", reason="Numba's tests for CUDA come with numba-cuda alone")
@pytest.mark.parametrize("name", ALL)
def test_numbas_own_test_passes(name: str, monkeypatch: pytest.MonkeyPatch):
    launched = run(monkeypatch, name, ALL[name])
    assert launched, "no launch was exchanged"
    assert set(ALL[name]) <= set(launched)


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
