"""In checked mode a module's calls go to a second library, which checks accesses through tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import be_runtime
from tests.support.runtime import libraries

SOURCE = """
#include "brainevent/common.h"
// @BE shifted arg[n] ret[n] attr.by:int64
void shifted(const BE::Tensor x, BE::Tensor y, int64_t by) {
  for (int64_t i = 0; i < x.numel(); ++i) y.at<float>(i) = i + by < x.numel() || BE_LAST ? x.at<float>(i + by) : 0;
}
"""
X = jnp.arange(4.0)
MESSAGE = "twin.shifted: argument 0: twin:5: at<float>(): index 0 is 4, and axis 0 has 4 elements"


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Any]:
    return partial(
        be_runtime.load_cpp_inline, "twin", SOURCE, extra_cflags=["-DBE_LAST=1"], build_directory=tmp_path,
        auto_register=False,
    )  # fmt: skip


def test_the_second_library_is_built_when_a_call_needs_it(load: Callable[..., Any], tmp_path: Path):
    module = load()
    module.shifted(X, by=1)
    for mode, count in (("guards", 1), ("bounds", 2)):
        with be_runtime.debug(mode):
            assert module.shifted(X, by=0).tolist() == X.tolist()
        assert len(libraries(tmp_path)) == count


def test_an_index_outside_is_an_error_of_the_call(load: Callable[..., Any]):
    module = load()
    for call in (lambda x: module.shifted(x, by=1), jax.jit(lambda x: module.shifted(x, by=1))):
        with pytest.raises(be_runtime.FindingError) as raised, be_runtime.debug():
            call(X)
        assert MESSAGE in str(raised.value)
        assert "test_checked_twins.py" in raised.value.findings[0].caller
        call(X)
    with pytest.raises(be_runtime.FindingError) as raised:
        load(debug=True).shifted(X, by=1)
    assert MESSAGE in str(raised.value)


def test_a_module_that_does_not_compile_checked_says_how_to_leave_it_out(tmp_path: Path):
    text = SOURCE.replace("#include", "#ifdef BE_INTERNAL_CHECKED\n#error only ordinary\n#endif\n#include")
    module = be_runtime.load_cpp_inline("only_ordinary", text, extra_cflags=["-DBE_LAST=0"], build_directory=tmp_path)
    with pytest.raises(be_runtime.BuildError, match=r"debug\('-bounds'\)"), be_runtime.debug():
        module.shifted(X, by=0)
    with be_runtime.debug("-bounds"):
        assert module.shifted(X, by=0).tolist() == X.tolist()


def test_a_note_says_what_was_built_ahead_of_time_and_so_has_none(
    tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    flags = ["-DBE_LAST=0"]
    be_runtime.load_cpp_inline("ahead", SOURCE, extra_cflags=flags)
    be_runtime.export_prebuilt(tmp_path / "prebuilt")
    monkeypatch.setenv("BE_PREBUILT_DIR", str(tmp_path / "prebuilt"))
    module = be_runtime.load_cpp_inline("ahead", SOURCE, extra_cflags=flags, auto_register=False)
    with be_runtime.debug("guards") as found:
        module.shifted(X, by=0)
    assert found.notes == ()
    with be_runtime.debug("all,-stream") as found:
        module.shifted(X, by=0)
    assert found.notes == ("ahead: its accesses through tensors were not checked, since it was built ahead of time",)


def test_where_nothing_may_be_compiled_an_error_says_how_to_leave_it_out(
    load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    load()
    monkeypatch.setenv("BE_JIT", "never")
    module = load()
    with pytest.raises(be_runtime.LoadError, match=r"debug\('-bounds'\)"), be_runtime.debug("bounds"):
        module.shifted(X, by=0)
