"""The table of an operation's kernels."""

from __future__ import annotations

from typing import Any

import pytest

from be_runtime import ArgumentError
from be_runtime.kernels.operation.backends import KernelEntry, Kernels, check_name, check_platform


def generator() -> Any:
    return print


def other() -> Any:
    return print


def kernels(*pairs: str) -> Kernels:
    table = Kernels()
    for pair in pairs:
        backend, platform = pair.split("@")
        table = table.with_entry(KernelEntry(backend, platform, generator))
    return table


def test_the_first_one_is_tried_first():
    table = kernels("a@cpu", "x@gpu", "b@cpu", "c@cpu")
    assert table.backends("cpu") == ("a", "b", "c")
    assert table.backends("tpu") == ()


def test_a_default_goes_before_the_others_in_their_order():
    table = kernels("a@cpu", "b@cpu", "c@cpu").with_default("cpu", "c")
    assert table.backends("cpu") == ("c", "a", "b")
    assert table.with_default("cpu", "b").backends("cpu") == ("b", "a", "c")


def test_a_default_is_of_one_platform():
    table = kernels("a@cpu", "b@cpu", "a@gpu", "b@gpu").with_default("gpu", "b")
    assert table.backends("cpu") == ("a", "b")
    assert table.backends("gpu") == ("b", "a")


def test_a_kernel_that_is_defined_again_keeps_its_place():
    table = kernels("a@cpu", "b@cpu").with_entry(KernelEntry("a", "cpu", other))
    assert table.backends("cpu") == ("a", "b")
    assert table.candidates("cpu", "a") == (KernelEntry("a", "cpu", other),)


def test_a_default_without_a_kernel_says_what_there_is():
    with pytest.raises(ArgumentError, match="no 'z' kernel for cpu; it has kernels for cpu: a, b; gpu: x"):
        kernels("a@cpu", "b@cpu", "x@gpu").with_default("cpu", "z")


@pytest.mark.parametrize(("given", "name"), [("cpu", "cpu"), ("gpu", "gpu"), ("cuda", "gpu"), ("rocm", "gpu")])
def test_platforms(given: str, name: str):
    assert check_platform(given) == name


@pytest.mark.parametrize("given", ["CPU!", "", None, 3])
def test_what_is_no_platform(given: Any):
    with pytest.raises(ArgumentError, match="platform must be one of cpu, gpu, tpu"):
        check_platform(given)


@pytest.mark.parametrize("given", ["", None, 3, b"a"])
def test_what_is_no_name(given: Any):
    with pytest.raises(ArgumentError, match="expected, not"):
        check_name(given)
