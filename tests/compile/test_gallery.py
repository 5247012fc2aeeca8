"""The pages of the gallery run, with their C++ kernels: each compares its kernel with plain JAX, and times both."""

from __future__ import annotations

import importlib.metadata
import json
import os
from pathlib import Path

import pytest

from benchmarks.gallery import NOTEBOOKS, PAGES
from benchmarks.gallery.__main__ import main
from benchmarks.gallery.measure import operations
from benchmarks.gallery.notebook import INSTALL
from tests.support import requirements
from tests.support.gallery import SHORT, run_short
from tests.support.runtime import ROOT

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def no_windows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")


@pytest.mark.parametrize("name", [name for name in PAGES if name not in NOTEBOOKS])
def test_a_page_runs_and_times_its_kernel_beside_plain_jax(name: str):
    records = [each for operation in operations(run_short(name)["result"]) for each in operation["records"]]
    backends = {each["backend"] for each in records}
    assert "cpp" in backends
    assert len(backends) > 1
    assert [each["error"] for each in records if each["error"]] == []
    assert all(len(each["seconds"]) == 1 for each in records)


def test_a_measurement_is_written_and_names_no_folder(tmp_path: Path):
    out = tmp_path / "found.json"
    parameters = f"{SHORT['photons']}; ROUNDS, CALLS = 2, 1"
    assert main(["measure", "photons", "--out", str(out), "--commit", "c", "--parameters", parameters]) == 0
    text = out.read_text()
    found = json.loads(text)
    assert found["commit"] == "c"
    assert found["machine"]["gpu"] is None
    assert [len(each["seconds"]) for each in found["pages"]["photons"]["operations"][0]["records"]] == [2] * 2
    assert str(ROOT) not in text


def test_a_page_that_fails_is_left_out_and_is_the_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "found.json"
    assert main(["measure", "photons", "--out", str(out), "--commit", "c", "--parameters", "LANES = None"]) == 1
    assert "TypeError" in capsys.readouterr().err


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    nbclient = pytest.importorskip("nbclient", reason=requirements.OPTIONAL + "nbclient")
    nbformat = pytest.importorskip("nbformat", reason=requirements.OPTIONAL + "nbformat")
    assert main(["notebooks", str(tmp_path)]) == 0
    notebook = nbformat.read(tmp_path / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    shortened = []
    for cell in notebook.cells:
        if cell.source == INSTALL and not _is_installed():
            continue  # a checkout that is on PYTHONPATH alone
        if "figure" in cell.metadata.get("tags", ()) and not requirements.has_matplotlib():
            continue
        shortened.append(cell)
        if "parameters" in cell.metadata.get("tags", ()):
            shortened.append(nbformat.v4.new_code_cell(f"{SHORT[name]}; ROUNDS, CALLS = 1, 1"))
    notebook.cells = shortened
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # it is installed: nothing is fetched
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3").execute()
    printed = "".join(
        out.get("text", "") for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs
    )
    assert "median us" in printed
    assert "Error" not in printed, "a form that fails is a row of the table"


def _is_installed() -> bool:
    try:
        importlib.metadata.version("brainevent-toolchain")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
