"""Kernels of Numba's own documentation and tests, launched natively, and judged by Numba's own tests."""

from __future__ import annotations

import pytest

pytest.importorskip("numba.cuda")
from tests.gpu.be_runtime.kernels.numba.gpu import numba_suite

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
"""Each of Numba's tests on what `numba_kernels` has no kernel of, with those of its kernels that only read so many of
their first arrays."""

ALL = {f"doc_examples.{name}": inputs for name, inputs in DOCUMENTATION.items()} | {
    f"cudapy.{name}": inputs for name, inputs in TESTS.items()
}


@pytest.mark.parametrize("name", ALL)
def test_numbas_own_test_passes(name: str, monkeypatch: pytest.MonkeyPatch):
    launched = numba_suite.run(monkeypatch, name, ALL[name])
    assert launched, "no launch was exchanged"
    assert set(ALL[name]) <= set(launched)
