"""A notebook tells what a script tells: ipykernel asks for colours by the environment, and has threads of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import requirements
from tests.support.runtime import ROOT

nbclient = pytest.importorskip("nbclient", reason=requirements.OPTIONAL + "nbclient")
nbformat = pytest.importorskip("nbformat", reason=requirements.OPTIONAL + "nbformat")

SOURCE = """
import jax, jax.numpy as jnp, be_runtime
be_runtime.load_cpp_inline("noted", '''#include "brainevent/common.h"
// @BE f
void f(BE::Tensor out) {
  out.data_ptr<float>()[0] = %s;
}''')
print(jax.ffi.ffi_call("noted.f", jax.ShapeDtypeStruct((1,), jnp.float32))())
"""


@pytest.mark.full
def test_a_notebook_shows_why_a_build_failed_and_runs_what_is_corrected(
    tmp_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    cells = [nbformat.v4.new_code_cell(SOURCE % text) for text in ("no_such_name", "7")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3", allow_errors=True).execute()
    (error,), (printed,) = (cell.outputs for cell in notebook.cells)
    assert error.ename == "BuildError"
    assert error.evalue.startswith("compiling noted failed"), error.evalue
    assert "noted:4:30: error: 'no_such_name' was not declared" in error.evalue
    assert "  out.data_ptr<float>()[0] = no_such_name;" in error.evalue
    assert "\33" not in error.evalue
    assert printed.text.startswith("[7.]"), printed
