"""Functions of arrays that JAX compiles, one for each combination of the keyword arguments of a call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

from be_runtime.call.resolve import as_argument
from be_runtime.xla import jax_port
from be_runtime.xla.attribute_values import Value

_MOST_PROGRAMS = 256
"""Combinations of attributes whose programs are kept; the oldest goes first."""

Program = Callable[..., Any]
Converted = tuple[tuple[str, Value], ...]
Zeros = tuple[tuple[str, float], ...]
"""Attributes that are 0, and their signs: Python takes 0.0 and -0.0 for one value."""


class KeywordPrograms:
    """The compiled functions of one kernel.

    Parameters
    ----------
    label : str
        Name of the kernel, for messages.
    convert : callable
        Function that checks the attributes of a call and converts them.
    trace : callable
        Function of described results, attributes and converted attributes; it makes a function of arrays.
    """

    def __init__(
        self,
        label: str,
        convert: Callable[[Mapping[str, Any]], Converted],
        trace: Callable[[Any, Mapping[str, Any], Converted], Program],
    ) -> None:
        self._label = label
        self._convert = convert
        self._trace = trace
        self._known: dict[object, tuple[Program, Zeros]] = {}
        self._exact: dict[object, Program] = {}
        self.plain = self._first

    def clear(self) -> None:
        """Forget the compiled functions, so that they are made anew."""
        self._known.clear()
        self._exact.clear()
        self.plain = self._first

    def _first(self, *arrays: Any) -> Any:
        """Call the function without attributes; the next calls of `plain` go to what JAX has compiled."""
        result = self.call(arrays, {})
        self.plain = self._find(None, {})
        return result

    def call(self, arrays: Sequence[Any], attributes: Mapping[str, Any], outs: Any = None) -> Any:
        """Call the function for some attributes, made on their first use.

        Raises
        ------
        ArgumentError
            An attribute or an array is not as declared.
        """
        try:
            program, zeros = self._known[(*attributes.items(),) if outs is None else (outs, *attributes.items())]
        except (KeyError, TypeError):
            program, zeros = self._find(outs, attributes), ()
        if zeros and any(math.copysign(1.0, attributes[name]) != sign for name, sign in zeros):
            program = self._find(outs, attributes)
        try:
            return program(*arrays)
        except TypeError:
            for number, each in enumerate(arrays):
                as_argument(self._label, number, each, jax_port.as_array)
            raise

    def _find(self, outs: Any, attributes: Mapping[str, Any]) -> Program:
        converted = self._convert(attributes)
        exact = (tuple(outs) if isinstance(outs, list) else outs, converted)
        program = self._exact.get(exact)
        if program is None:
            from be_runtime.xla import jax_call

            program = self._exact[exact] = jax_call.compiled(self._trace(outs, dict(attributes), converted))
            if len(self._exact) > _MOST_PROGRAMS:
                self._exact.pop(next(iter(self._exact)))
                self._known.clear()
        zeros = _zeros(attributes)
        if zeros is not None and not isinstance(outs, list):
            self._known[(*attributes.items(),) if outs is None else (outs, *attributes.items())] = program, zeros
        return program


def _zeros(attributes: Mapping[str, Any]) -> Zeros | None:
    """Return the attributes that are 0 with their signs; None if equal attributes may differ in another way."""
    zeros = []
    for name, value in attributes.items():
        if isinstance(value, str):
            continue
        if not isinstance(value, Real) or math.isnan(value):
            return None
        if value == 0:
            zeros.append((name, math.copysign(1.0, value)))
    return tuple(zeros)
