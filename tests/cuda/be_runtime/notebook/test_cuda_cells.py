"""Cells of CUDA, in a stand-in for IPython: the kernel of a notebook runs those of C++ elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

import be_runtime
from be_runtime.notebook.magics import load_ipython_extension, unload_ipython_extension

CELL = """#include "brainevent/common.h"
__global__ void kernel(float* y) { y[0] = VALUE; }
// @BE f ret stream
void f(BE::Tensor y, int64_t stream) {
  kernel<<<1, 1, 0, reinterpret_cast<cudaStream_t>(stream)>>>(y.data_ptr<float>());
}
"""


class Shell:
    """As much of IPython's shell as an extension uses."""

    def __init__(self) -> None:
        self.magics: dict[str, Callable[[str, str], None]] = {}
        self.user_ns: dict[str, Any] = {}
        self.shown: list[dict[str, str]] = []
        self.callbacks: list[Callable[[object], None]] = []
        self.display_pub = SimpleNamespace(publish=self.shown.append)
        self.events = SimpleNamespace(
            register=lambda _event, callback: self.callbacks.append(callback),
            unregister=lambda _event, callback: self.callbacks.remove(callback),
        )

    def register_magic_function(self, function: Callable[[str, str], None], _kind: str, name: str) -> None:
        self.magics[name] = function


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Generator[Shell]:
    monkeypatch.setenv("BE_COMPUTE_CAPABILITIES", "9.0")
    made = Shell()
    load_ipython_extension(made)
    yield made
    unload_ipython_extension(made)
    assert made.callbacks == []


def test_a_cell_of_cuda(shell: Shell, capsys: pytest.CaptureFixture[str]):
    run = shell.magics["cuda_kernel"]
    run("cuda_cell -O 2 --fast-math --flag=-DVALUE=1 --line-info", CELL)
    assert shell.user_ns["cuda_cell"].function_names == ["f"]
    assert capsys.readouterr().out.startswith("cuda_cell: f, ")
    run("cuda_cell --flag=-DVALUE=2", CELL)
    with pytest.raises(be_runtime.BuildError, match=r"cuda_cell\(3\): error") as caught:
        run("cuda_cell", CELL)
    assert caught.value._render_traceback_() == [f"BuildError: {caught.value.message}"]  # type: ignore[attr-defined]
    (page,) = shell.shown
    assert "VALUE" in page["text/html"]
    assert "<details>" in page["text/html"]
