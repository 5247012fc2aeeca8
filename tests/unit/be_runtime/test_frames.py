"""Frames of errors that leave the package: the last one is the user's, unless JAX's option keeps all."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

import be_runtime
from be_runtime import frames
from be_runtime.errors import BeRuntimeError

OURS = frames._OURS  # noqa: SLF001


def ours(error: BaseException) -> int:
    """The frames of the package in an error and those that it follows from."""
    shown = "".join(traceback.format_exception(error)).splitlines()
    return sum(line.startswith(tuple(f'  File "{folder}' for folder in OURS)) for line in shown)


def caught(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(Exception) as found:
        call()
    return found.value


def inner(source: str) -> Callable[..., Any]:
    """A public function whose file is the package's."""
    known: dict[str, Any] = {"public": frames.public, "BeRuntimeError": BeRuntimeError}
    exec(compile(source, f"{OURS[0]}made_up.py", "exec"), known)  # noqa: S102
    function: Callable[..., Any] = known["f"]
    return function


BAD_LOADS = {
    "file": lambda: be_runtime.load_cpp_file("/nowhere/k.cc"),
    "spec": lambda: be_runtime.load_cpp_inline("k", "void f(BE::Tensor y) {}", {"f": ["rat"]}),
    "keyword": lambda: be_runtime.load_cpp_file("/nowhere/k.cc", nonsense=1),  # type: ignore[call-arg]
    "option": lambda: be_runtime.load_cpp_inline("k", "", optimization_level=7),
    "package": lambda: be_runtime.package_kernels("json"),
    "control": lambda: be_runtime.register_ffi_target("a b", object()),
}


@pytest.mark.usefixtures("tmp_cache")
@pytest.mark.parametrize("way", BAD_LOADS)
def test_an_error_ends_at_the_users_line(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error = caught(BAD_LOADS[way])
    assert ours(error) == 0
    assert traceback.extract_tb(error.__traceback__)[-1].filename == __file__
    monkeypatch.setattr(frames, "filtering", lambda: "off")
    assert ours(caught(BAD_LOADS[way])) >= 2


@pytest.mark.parametrize(("mode", "loaded"), [("off", True), ("remove_frames", True), ("off", False), ("auto", False)])
def test_the_option_is_jaxs_also_where_jax_is_not_loaded(
    mode: str, loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    import jax

    if loaded:
        before = frames.filtering()
        jax.config.update("jax_traceback_filtering", mode)
        try:
            assert frames.filtering() == mode
        finally:
            jax.config.update("jax_traceback_filtering", before)
    else:
        monkeypatch.delitem(sys.modules, "jax")
        monkeypatch.setenv("JAX_TRACEBACK_FILTERING", mode)
        assert frames.filtering() == mode


def test_frames_of_a_users_function_stay() -> None:
    def callback() -> None:
        raise ValueError("mine")

    f = inner("@public\ndef f(callback):\n    return callback()\n")
    error = caught(lambda: f(callback))
    assert ours(error) == 0
    assert traceback.extract_tb(error.__traceback__)[-1].name == "callback"
    assert not hasattr(error, "__notes__"), "nothing of interest was removed"


def test_an_error_that_is_no_message_says_where_its_frames_are() -> None:
    error = caught(inner("@public\ndef f():\n    return {}['key']\n"))
    assert ours(error) == 0
    assert error.__notes__ == [frames._NOTE]  # noqa: SLF001
    assert not hasattr(caught(inner("@public\ndef f():\n    raise BeRuntimeError('text')\n")), "__notes__")


CAUSE = """
@public
def f():
    try:
        {}['key']
    except KeyError as error:
        raise BeRuntimeError('text')%s
"""


def test_what_an_error_follows_from_has_no_frames_either() -> None:
    implicit = caught(inner(CAUSE % ""))
    assert "KeyError" not in "".join(traceback.format_exception(implicit)), "it adds nothing"
    explicit = caught(inner(CAUSE % " from error"))
    assert isinstance(explicit.__cause__, KeyError)
    assert ours(explicit) == 0
    try:
        raise OSError("the user's")  # noqa: TRY301
    except OSError:
        handled = caught(inner(CAUSE % " from None"))
    context = handled.__context__
    assert isinstance(context, KeyError), "from None"
    try:
        raise OSError("the user's")  # noqa: TRY301
    except OSError:
        plain = caught(inner("@public\ndef f():\n    raise BeRuntimeError('text')\n"))
    assert "the user's" in "".join(traceback.format_exception(plain))
