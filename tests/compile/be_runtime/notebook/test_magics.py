"""The extension of IPython in a real kernel: cells of C++, their errors, and files that are saved in between."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.compile.be_runtime.scaling import scaling
from tests.support import requirements
from tests.support.runtime import ROOT

nbclient = pytest.importorskip("nbclient", reason=requirements.OPTIONAL + "nbclient")
nbformat = pytest.importorskip("nbformat", reason=requirements.OPTIONAL + "nbformat")

EDIT = f"""
from pathlib import Path
path = Path("edited.cc")
def save(by):
    path.write_text({scaling("g", "BY")!r}.replace("BY", str(by)))
"""


def cell(line: str, by: object) -> str:
    return f"%%cpp_kernel {line}\n{scaling('f', by)}"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the cells of a notebook, and return the outputs of each."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.chdir(tmp_path)

    def execute(*cells: str) -> list[list[Any]]:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3", allow_errors=True).execute()
        return [cell.outputs for cell in notebook.cells]

    return execute


def text(outputs: list[Any]) -> str:
    """The text that a cell printed, showed and raised."""
    parts = [[each.get("text"), each.get("data", {}).get("text/plain"), each.get("evalue")] for each in outputs]
    return "\n".join(part for each in parts for part in each if part)


def html(outputs: list[Any]) -> str:
    return "".join(each.get("data", {}).get("text/html", "") for each in outputs)


def test_cells_are_compiled_and_compiled_again(run: Any):
    load, first, called, second, again, options, off, gone = run(
        "%load_ext be_runtime\nimport jax, jax.numpy as jnp\nx = jnp.arange(3.0)",
        cell("scale", 2),
        "jitted = jax.jit(scale.f)\nprint(scale.f(x), jitted(x))",
        cell("scale -O 1 --fast-math --flag=-DBY=3", "BY"),
        "print(scale.f(x), jitted(x))",
        "print(get_ipython().magics_manager.magics['cell']['cpp_kernel'].__doc__)",
        "%unload_ext be_runtime",
        cell("scale", 5),
    )
    assert text(load) == ""
    assert text(first).startswith("scale: f, ")
    assert text(called) == "[0. 2. 4.] [0. 2. 4.]\n"
    assert text(second).startswith("scale: f, ")
    assert text(again) == "[0. 3. 6.] [0. 2. 4.]\n"
    assert "--fast-math" in text(options)
    assert text(off) == ""
    assert "scale.f" in text(gone)
    assert gone[-1].ename == "RegistrationError", "nothing is followed any more"


@pytest.mark.full
def test_a_finding_names_the_cell_that_calls(run: Any):
    *_, called, found = run(
        "%load_ext be_runtime\nimport be_runtime, jax.numpy as jnp\nx = jnp.arange(3.0)",
        cell("scale", "x.at<float>(3)"),
        "with be_runtime.debug():\n    scale.f(x)",
        "with be_runtime.debug(on_finding='collect') as found:\n    pass\nfound",
    )
    assert called[-1].ename == "FindingError"
    assert "called at Cell In[3]:2 in <module>" in called[-1].evalue
    assert text(found) == "no findings"


@pytest.mark.full
def test_errors_show_the_line_of_the_cell_and_fold_the_rest(run: Any):
    failed, kept, bad_line, bad_spec, python = run(
        "%load_ext be_runtime\nimport jax.numpy as jnp\nbroken = 7",
        "print(broken)",
        cell("", 1),
        cell("broken", 1).replace("ret[n]", "rte[n]"),
        cell("if", 1),
    )
    assert text(failed) == ""
    assert text(kept) == "7\n"
    assert "the following arguments are required: NAME" in text(bad_line)
    assert "usage: %%cpp_kernel" in text(bad_line)
    assert "--flag=-march=native" in text(bad_line)
    assert "broken:3:" in text(bad_spec)
    assert "if" in text(python)
    (outputs,) = run("%load_ext be_runtime\n", cell("broken", "&lt<b>"))[1:]
    assert [each.output_type for each in outputs] == ["display_data", "error"]
    shown, error = outputs
    assert error.ename == "BuildError"
    assert "broken:5:69: error:" in error.evalue, "the fifth line of the cell"
    assert error.traceback == ["BuildError: compiling broken failed"], "without frames"
    page = html(outputs)
    assert "broken:5:69: error: " in page
    assert "<b>" not in page.replace('<b style="color', "")
    assert "&amp;lt&lt;b&gt; * x" in page
    assert "<details><summary>output of the compiler, " in page
    assert "broken:5:69: error:" in shown.data["text/plain"]


@pytest.mark.full
def test_files_that_are_saved_between_cells(run: Any):
    _, loaded, broken, mended, traced = run(
        "%load_ext be_runtime\nimport be_runtime, jax, jax.numpy as jnp\nx = jnp.arange(3.0)" + EDIT,
        "save(2)\nmodule = be_runtime.load_cpp_file(path)\nprint(module.g(x))",
        "save('no_such_name')\nprint(module.g(x))",
        "save(3)\nprint(module.g(x))\nbe_runtime.watch(retrace=True)\n"
        "jitted = jax.jit(lambda x: module.g(x))\nprint(jitted(x))\nsave(4)",
        "print(jitted(x))",
    )
    assert text(loaded) == "[0. 2. 4.]\n"
    assert "[0. 2. 4.]" in text(broken)
    assert "edited was saved, but the previous code stays in use" in html(broken)
    assert "no_such_name" in html(broken)
    assert "was saved, but fails to load, so the previous code runs" in text(broken)
    assert text(mended).count("[0. 3. 6.]") == 2
    assert text(traced) == "[0. 4. 8.]\n", "a cell begins with what was saved before it"


@pytest.mark.full
@pytest.mark.parametrize("filtering", ["auto", "off"])
def test_a_cell_shows_no_frame_of_ours(filtering: str, run: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAX_TRACEBACK_FILTERING", filtering)
    source = scaling("f", 1)
    load = "be_runtime.load_cpp_inline('framed', SOURCE"
    _, *failing = run(
        f"%load_ext be_runtime\nimport be_runtime, jax, numpy as np\nSOURCE = '''{source}'''",
        f"{load}.replace('ret[n]', 'rte[n]'))",
        f"{load}.replace('1 *', 'oops *'))",
        f"{load}).f('text')",
        f"m = {load})\njax.jit(lambda x: m.f(x, k=1))(np.ones(3))",
        cell("framed", "oops"),
    )
    for outputs in failing:
        shown = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(outputs[-1].traceback))
        assert outputs[-1].output_type == "error"
        assert bool(re.search(r"^File .*/be_runtime/", shown, re.MULTILINE)) == (filtering == "off"), shown
        assert (len(shown.splitlines()) > 20) == (filtering == "off"), shown
