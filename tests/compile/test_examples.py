"""The examples that are programs of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax
import pytest

from tests.support.requirements import in_full

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("by_hand", [False, in_full(True)], ids=["alone", "beside ffi.h"])
def test_the_fft_is_that_of_jax(by_hand: bool, tmp_path: Path):
    if by_hand and not hasattr(jax.ffi, "register_ffi_type"):
        pytest.skip("this JAX knows no types of states from Python")
    command = [sys.executable, str(EXAMPLES / "fft" / "fft.py"), "--repeat", "1", *(["--ffi"] if by_hand else [])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=840)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the results are those of jnp.fft") == 1 + by_hand
