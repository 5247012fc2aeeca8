"""Numba's own tests of CUDA, with every launch of theirs made by `be_runtime.numba_cuda_kernel`.

They come with numba-cuda, and most of their kernels are local to a test. So a test runs as it is, and only the launch
is exchanged: it still makes the data, and still says what the result has to be.
"""

from __future__ import annotations

import importlib
import sys
import unittest
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import be_runtime
from be_runtime.dtypes import BY_NAME


class Launches:
    """Takes the launches of Numba kernels until the test is over.

    Parameters
    ----------
    monkeypatch : MonkeyPatch
    inputs : dict of str to int
        How many of its leading arrays a kernel only reads, where it writes the others as a whole. It is then launched
        as it is. Any other kernel is launched in place: each of its arrays is an output that begins with an input.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, inputs: dict[str, int]) -> None:
        from numba.cuda.dispatcher import CUDADispatcher

        self.names: list[str] = []
        self._inputs = inputs
        self._functions: dict[object, tuple[Callable[..., Any], Any]] = {}

        def call(kernel: Any, arguments: Sequence[Any], how: Any) -> None:
            self._launch(kernel, arguments, how)

        # A test may look at what Numba compiles, and Numba chooses blocks by it; it only doesn't launch.
        monkeypatch.setattr(CUDADispatcher, "call", call)

    def _launch(self, kernel: Any, arguments: Sequence[Any], how: Any) -> None:
        from tests.support.jax_names import enable_x64

        name = kernel.py_func.__name__
        self.names.append(name)
        places = [place for place, argument in enumerate(arguments) if _is_jax_array(argument)]
        arrays = [arguments[place] for place in places]
        read = self._inputs.get(name)
        written = arrays[read or 0 :]
        with enable_x64(True):
            function = self._function(kernel, arguments, places, how)
            results = function(*map(_on_host, arrays if read is None else arrays[:read]))
            for array, result in zip(written, results, strict=True):
                _replace(array, np.asarray(result))

    def _function(self, kernel: Any, arguments: Sequence[Any], places: Sequence[int], how: Any) -> Callable[..., Any]:
        """A function of the arrays at some places, made once: what a kernel reads of its surroundings is a constant."""
        import jax

        constants = {place: value for place, value in enumerate(arguments) if place not in places}
        specs = [jax.ShapeDtypeStruct(arguments[place].shape, arguments[place].dtype) for place in places]
        geometry = (how.griddim, how.blockdim, how.sharedmem)
        known = (kernel, repr(specs), *((place, id(value)) for place, value in constants.items()), geometry)
        if known not in self._functions:
            read = self._inputs.get(kernel.py_func.__name__)
            called = kernel if read is not None else _in_place(kernel, len(arguments), constants)
            aliases = None if read is not None else {index: index for index in range(len(places))}
            grid, block, shared_mem = geometry
            function = be_runtime.numba_cuda_kernel(
                called, specs[read or 0 :], grid=grid, block=block, shared_mem=shared_mem, input_output_aliases=aliases
            )
            self._functions[known] = (function, constants)
        return self._functions[known][0]


def run(monkeypatch: pytest.MonkeyPatch, name: str, inputs: dict[str, int]) -> list[str]:
    """Run one of Numba's tests.

    Parameters
    ----------
    monkeypatch : MonkeyPatch
        Of the test that this is part of.
    name : str
        Below ``numba.cuda.tests``, such as ``"doc_examples.test_vecadd.TestVecAdd.test_ex_vecadd"``.
    inputs : dict of str to int
        See `Launches`.

    Returns
    -------
    list of str
        The names of the kernels that were launched, once for each launch.
    """
    for part in ("", ".matcher", ".options", ".parser", ".finput"):
        # Compares assembler texts. Numba's tests import it, few use it, and numba-cuda does not bring it.
        monkeypatch.setitem(sys.modules, f"filecheck{part}", _Absent(f"filecheck{part}"))
    folder, module, *path = name.split(".")
    found: Any = importlib.import_module(f"numba.cuda.tests.{folder}.{module}")
    for each in path[:-1]:
        found = getattr(found, each)
    launches = Launches(monkeypatch, inputs)
    test = found(path[-1]) if path[:-1] else unittest.FunctionTestCase(getattr(found, path[-1]))
    outcome = unittest.TestResult()
    test.run(outcome)
    for _, reason in outcome.skipped:
        pytest.skip(f"Numba's own reason: {reason}")
    problems = [text for _, text in (*outcome.failures, *outcome.errors)]
    assert not problems, "\n".join(problems)
    return launches.names


class _Absent(ModuleType):
    """A module that is imported from and never used."""

    def __getattr__(self, name: str) -> object:
        return None


def _is_jax_array(value: Any) -> bool:
    """Whether an argument of a kernel is an array that JAX can hold; states of random numbers are none."""
    return hasattr(value, "shape") and bool(value.shape) and str(value.dtype) in BY_NAME


def _on_host(array: Any) -> np.ndarray:
    return np.array(array if isinstance(array, np.ndarray) else array.copy_to_host())


def _replace(array: Any, content: np.ndarray) -> None:
    """Let a test find a result in its array, on the host or on the device."""
    if isinstance(array, np.ndarray):
        array[...] = content
    else:
        array.copy_to_device(content)


def _in_place(kernel: Any, count: int, constants: dict[int, Any]) -> Any:
    """A kernel that takes its arrays twice and works on the second ones; the other arguments are its globals."""
    from numba import cuda

    arrays = [f"a{place}" for place in range(count) if place not in constants]
    values = {f"constant{place}": value for place, value in constants.items()}
    called = ", ".join(f"constant{place}" if place in constants else f"a{place}" for place in range(count))
    name = f"{kernel.py_func.__name__}_in_place"
    source = f"def {name}({', '.join([*(f'before_{each}' for each in arrays), *arrays])}):\n    kernel({called})\n"
    namespace: dict[str, Any] = {"kernel": cuda.jit(device=True)(kernel.py_func), "__name__": __name__, **values}
    exec(source, namespace)  # noqa: S102 - names of our own, and a function's
    return cuda.jit(namespace[name])
