"""Errors: their texts and last frames; brainevent's names for them, and the public names."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest

import be_runtime
import be_toolchain
from be_runtime import frames
from be_runtime.errors import ArgumentError, BeRuntimeError, BuildError

NOISE = "\n".join(f"/inc/macros.h:{line}:1: note: in expansion of macro" for line in range(400)) + "\n"
LONG, SHORT = (Path(__file__).parent / "golden" / "errors.txt").read_text().rstrip().split("\n\n")


def test_the_output_of_compilers_is_in_the_field_and_in_the_text_if_it_is_short():
    output = f"m:1:1: error: first\n{NOISE}m:2:1: error: second\n"
    first, further = output.splitlines()[0], output.splitlines()[-1]
    command, hints = ("g++", "m.cc"), ("do this",)
    error = BuildError("failed", output=output, first_error=first, further=further, command=command, hints=hints)
    assert str(error) == LONG
    assert NOISE in error.output
    assert str(BuildError("failed", output="one\ntwo\n", first_error="one")) == SHORT
    assert "output" not in str(BuildError("failed", output="one\n", first_error="one"))
    frame = "In file included from src/m.cc:1:\nm: In function 'void f()':\n{}\n\n1 error generated.\n"
    first = "m:1:1: error: one\n    1 | one;\n      | ^"
    assert "output" not in str(BuildError("failed", output=frame.format(first), first_error=first))
    assert "m:2:1: warning: two" in str(
        BuildError("failed", output=frame.format(f"{first}\nm:2:1: warning: two"), first_error=first)
    )
    assert len(str(BuildError("failed", output="x" * 10_000))) < 500, "few lines that fill a screen"
    assert len(str(BuildError("failed", output=NOISE)).splitlines()) < 20


def test_an_argument_that_is_a_whole_source_is_quoted_in_part():
    error = ArgumentError(f"name={'code ' * 1000!r} is not allowed: it holds a space", hints=("a hint",))
    first, *rest = str(error).splitlines()
    assert len(str(error)) < 450
    assert first.startswith("name='code code")
    assert first.endswith("is not allowed: it holds a space")
    assert rest == ["hint: a hint", "causes and remedies: python -m be_runtime explain BE101"]
    assert len(error.message) > 5000


OURS = frames._OURS  # noqa: SLF001


def ours(error: BaseException) -> int:
    """The frames of the package in an error and those that it follows from."""
    shown = "".join(traceback.format_exception(error)).splitlines()
    return sum(line.startswith(tuple(f'  File "{folder}' for folder in OURS)) for line in shown)


def caught(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(Exception) as found:
        call()
    return found.value


def public(body: str) -> Callable[..., Any]:
    """A public function of this body, whose file is the package's."""
    known: dict[str, Any] = {"public": frames.public, "BeRuntimeError": BeRuntimeError}
    source = f"@public\ndef f(call=None):\n    {body}\n"
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
def test_an_error_ends_at_the_users_line(way: str, monkeypatch: pytest.MonkeyPatch):
    error = caught(BAD_LOADS[way])
    assert ours(error) == 0
    assert traceback.extract_tb(error.__traceback__)[-1].filename == __file__
    monkeypatch.setattr(frames, "filtering", lambda: "off")
    assert ours(caught(BAD_LOADS[way])) >= 2


def test_the_option_is_jaxs_also_where_jax_is_not_loaded(monkeypatch: pytest.MonkeyPatch):
    before = frames.filtering()
    try:
        for mode in ("off", "remove_frames"):
            jax.config.update("jax_traceback_filtering", mode)
            assert frames.filtering() == mode
    finally:
        jax.config.update("jax_traceback_filtering", before)
    monkeypatch.delitem(sys.modules, "jax")
    for mode in ("off", "auto"):
        monkeypatch.setenv("JAX_TRACEBACK_FILTERING", mode)
        assert frames.filtering() == mode


def test_frames_of_a_users_function_stay():
    def callback():
        raise ValueError("mine")

    error = caught(lambda: public("return call()")(callback))
    assert (ours(error), traceback.extract_tb(error.__traceback__)[-1].name) == (0, "callback")
    assert not hasattr(error, "__notes__"), "nothing of interest was removed"


def test_an_error_that_is_no_message_says_where_its_frames_are():
    error = caught(public("return {}['key']"))
    assert (ours(error), error.__notes__) == (0, [frames._NOTE])  # noqa: SLF001
    assert not hasattr(caught(public("raise BeRuntimeError('text')")), "__notes__")


CAUSE = """try: {}['key']
    except KeyError as error: raise BeRuntimeError('text')"""


def test_what_an_error_follows_from_has_no_frames_either():
    implicit = caught(public(CAUSE))
    assert "KeyError" not in "".join(traceback.format_exception(implicit)), "it adds nothing"
    explicit = caught(public(f"{CAUSE} from error"))
    assert isinstance(explicit.__cause__, KeyError)
    assert ours(explicit) == 0
    try:
        raise OSError("the user's")  # noqa: TRY301
    except OSError:
        handled = caught(public(f"{CAUSE} from None"))
        plain = caught(public("raise BeRuntimeError('text')"))
    assert isinstance(handled.__context__, KeyError), "from None"
    assert "the user's" in "".join(traceback.format_exception(plain))


NAMES = (Path(__file__).parent / "golden" / "brainevent_names.txt").read_text()
"""Errors behind what catches them there."""


def test_every_name_is_here_and_an_error_is_caught_by_what_catches_it_there():
    """The package lists them, also those that are imported on first use; the modules that it is made of are none."""
    for parent, _, names in (line.partition(": ") for line in NAMES.splitlines()):
        assert {*names.split(), "warp_kernel"} <= set(be_runtime.__all__)
        for name in names.split():
            assert parent == "object" or issubclass(getattr(be_runtime, name), getattr(be_runtime, parent)), name
    assert sorted(dir(be_runtime)) == sorted(be_runtime.__all__)
    assert be_runtime.config.set_backend is be_runtime.set_backend
    assert be_runtime.config.get_backend("tpu") is None


@pytest.mark.parametrize("package", [be_runtime, be_toolchain])
def test_type_checkers_see_the_public_names(package: ModuleType):
    assert package.__file__ is not None
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text())
    declared = {
        each.asname: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for each in node.names
    }
    assert {*declared} | {"__version__", "config"} >= {*package.__all__}
    for name, home in declared.items():
        if name not in (None, "__version__"):
            assert name in package._HOMES[home].split()  # noqa: SLF001
    functions = [value for name in package.__all__ if inspect.isfunction(value := getattr(package, name))]
    assert [each.__name__ for each in functions if re.search(r"'[a-z_]+\.[A-Z]", str(inspect.signature(each)))] == []


SOURCE = """
#include "brainevent/common.h"
// @BE f arg[n] ret[n] %s
void f(const BE::Tensor x, BE::Tensor y) {}
"""


def test_what_a_load_raises_is_a_kernel_error_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_CXX", str(tmp_path / "none"))
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path))
    for name, more, error in (("b", "bogus", be_runtime.KernelError), ("n", "", be_runtime.KernelToolchainError)):
        with pytest.raises(error):
            be_runtime.load_cpp_inline(name, SOURCE % more, build_directory=str(tmp_path))


def test_an_operation_tells_its_defaults_and_what_it_lacks():
    operation = be_runtime.XLACustomKernel("names")
    operation.def_kernel("a", "cpu", lambda outs: lambda x: [x])
    operation.def_kernel("b", "gpu", lambda outs: lambda x: [x])
    assert operation.defaults == {"cpu": "a", "gpu": "b"}
    operation.def_tags("one", "two")
    assert [*be_runtime.get_primitives_by_tags({"two"})] == ["names"]
    assert not be_runtime.get_primitives_by_tags({"two", "three"})
    assert be_runtime.get_registry()["names"] is operation


def test_diagnostics_say_compilers_cache_and_targets(tmp_cache: Path, capsys: pytest.CaptureFixture[str]):
    be_runtime.print_diagnostics()
    said = capsys.readouterr().out
    assert "C++ compiler" in said
    assert f"cache: {tmp_cache}, 0 entries" in said
    assert f"registered targets: {', '.join(be_runtime.list_registered_targets()) or 'none'}" in said
