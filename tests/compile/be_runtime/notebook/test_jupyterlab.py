"""Cells of kernels in JupyterLab, as a person sees them in a browser; `make test-jupyterlab` takes a picture."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support import requirements
from tests.support.runtime import environment

nbformat = pytest.importorskip("nbformat", reason=requirements.OPTIONAL + "nbformat")
webdriver = pytest.importorskip("selenium.webdriver", reason=requirements.OPTIONAL + "selenium")
pytest.importorskip("jupyterlab", reason=requirements.OPTIONAL + "jupyterlab")
pytestmark = pytest.mark.needs("chromium", "chromedriver")

KERNEL = """%%cpp_kernel scale
#include "brainevent/common.h"

// @BE scale arg[n] attr.by:float32 ret[n]:like(0)
void scale(const BE::Tensor x, float by, BE::Tensor y) {{
  for (int64_t i = 0; i < x.numel(); ++i)
    y.data_ptr<float>()[i] = {by} * x.data_ptr<float>()[i];
}}"""
CELLS = (
    "%load_ext be_runtime\nimport jax.numpy as jnp",
    KERNEL.format(by="by"),
    "scale.scale(jnp.arange(5.0), by=3)",
    KERNEL.format(by="bye"),
    "print('Run All goes on')",
)
PICTURE = os.environ.get("BE_PICTURE", "")


def until(found: Callable[[], Any], seconds: float = 90) -> Any:
    """Return what a page has at last."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "the page has not come so far"
        time.sleep(0.1)
    return value


@pytest.fixture
def address(tmp_path: Path) -> Generator[str]:
    """Serve a notebook of the cells, and return its address."""
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, CELLS)), metadata=spec)
    nbformat.write(notebook, tmp_path / "kernels.ipynb")
    options = ["--ServerApp.port=0", "--IdentityProvider.token=", f"--ServerApp.root_dir={tmp_path}", "--allow-root"]
    argv = [sys.executable, "-m", "jupyterlab", "--no-browser", "--LabApp.expose_app_in_browser=True", *options]
    own = {name: str(tmp_path / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    log = tmp_path / "server.log"
    with (
        log.open("w") as output,
        subprocess.Popen(argv, env=environment(**own), stdout=output, stderr=output) as server,
    ):
        try:
            found = until(lambda: re.search(r"http://(?:localhost|127\.0\.0\.1):\d+", log.read_text()))
            yield f"{found[0]}/lab/tree/kernels.ipynb"
        finally:
            server.terminate()


@pytest.fixture
def browser(tmp_path: Path) -> Generator[Any]:
    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--window-size=1000,1000", f"--user-data-dir={tmp_path / 'user'}"):
        options.add_argument(option)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def test_a_cell_that_does_not_compile_in_jupyterlab(address: str, browser: Any):
    browser.get(address)
    run = "return window.jupyterapp && document.querySelectorAll('.jp-CodeCell').length"
    until(lambda: browser.execute_script(run))
    browser.execute_script("window.jupyterapp.commands.execute('application:toggle-left-area')")
    kernel = "return window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status"
    until(lambda: browser.execute_script(kernel) == "idle")
    browser.execute_script("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    until(lambda: browser.find_elements("css selector", ".jp-OutputArea details"))
    cells = browser.find_elements("css selector", ".jp-CodeCell")
    outputs = [cell.find_element("css selector", ".jp-Cell-outputArea").text for cell in cells]
    assert re.fullmatch(r"scale: scale, [\d.]+ s", outputs[1])
    assert outputs[2].endswith("Array([ 0.,  3.,  6.,  9., 12.], dtype=float32)")
    shown = outputs[3]
    assert "BuildError: compiling scale failed\nscale:7:30: error: 'bye' was not declared" in shown
    assert "In function" not in shown, "what else the compiler said is folded"
    assert "Traceback" not in shown
    assert outputs[4] == "", "Run All stops"
    if PICTURE:
        browser.execute_script("document.querySelectorAll('.Toastify').forEach(each => each.remove())")  # its news
        browser.save_screenshot(PICTURE)
    folded = browser.find_element("css selector", ".jp-OutputArea details")
    folded.find_element("css selector", "summary").click()
    assert "In function 'void scale(" in folded.text
