"""Names of a module's functions and of its own attributes: a function comes first."""

from __future__ import annotations

import copy
import ctypes
import warnings
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.call.function import KernelFunction
from be_runtime.generate.contents import Handlers
from be_runtime.load.module import OWN, CompiledModule, Made, ModuleInfo, Remaker
from be_runtime.load.registry import Registry

INTERNALS = ["carry", "current", "entry_point", "identity", "maker", "mode", "of", "platform", "_functions"]


def unused(*_: Any) -> Any:
    raise AssertionError


def module(*names: str) -> CompiledModule:
    functions = {
        name: Handlers(f"be_ffi_{name}", f"be_graph_{name}", spec=("arg", "ret"), names=("x", "y")) for name in names
    }
    made = Made("ops", "cpp", Path("/m.so"), functions, "content", "origin")
    info = ModuleInfo(made, ctypes.CDLL(None), Registry(unused), Remaker(unused, unused), captures_graphs=True)
    return CompiledModule(info)


@pytest.mark.filterwarnings("error")
def test_names_of_our_own_making_are_free_for_kernels() -> None:
    ops = module(*INTERNALS)
    for name in INTERNALS:
        assert isinstance(getattr(ops, name), KernelFunction), name
        assert getattr(ops, name) is ops[name]
    assert (ops.name, ops.path, ops.content_hash, ops.function_names) == ("ops", Path("/m.so"), "content", INTERNALS)
    assert ops.info is be_runtime.ModuleInfo.of(ops) is copy.deepcopy(ops).info
    assert ops.info.platform == "cpu"
    assert repr(ops).startswith("CompiledModule(name='ops', functions=['carry', ")


def test_names_that_python_itself_looks_up_are_reached_by_brackets() -> None:
    with pytest.warns(UserWarning, match=r"hide functions: call module\['__class__'\], module\['__info__'\]$"):
        ops = module("__class__", "f", "__info__")
    assert isinstance(ops["__class__"], KernelFunction)
    assert isinstance(ops["__info__"], KernelFunction)


@pytest.mark.parametrize("names", [*((name,) for name in OWN), OWN, ("path", "f", "report")])
def test_a_kernel_hides_the_modules_own_which_one_warning_tells(names: tuple[str, ...]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ops = module(*names)
    (message,) = [str(each.message) for each in caught]
    assert all(isinstance(getattr(ops, name), KernelFunction) for name in names)
    assert isinstance(ops.info, KernelFunction) == ("info" in names)
    info = ModuleInfo.of(ops)
    for own in message.removesuffix("'").rpartition(" are now ")[2].split(", "):
        known = {"module": ops, "be_runtime": be_runtime}
        assert eval(own, known) is not None  # noqa: S307 - what the warning says can be written
    assert (info.name, info.path, info.content_hash, info.function_names) == ("ops", Path("/m.so"), "content", [*names])
    for name in {*OWN} - {*names, "info"}:
        assert getattr(ops, name) == getattr(info, name)


def test_dir_lists_what_there_is() -> None:
    with pytest.warns(UserWarning, match=r"are now module\.info\.path$"):
        ops = module("path", "f", "a.f", "__odd")
    assert {*OWN, "f", "a.f", "__odd"} <= {*dir(ops)}
    for name in dir(ops):
        getattr(ops, name)
    with pytest.raises(AttributeError, match="module 'ops' has no function 'mode'; it has path, f"):
        _ = ops.mode
