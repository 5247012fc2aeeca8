"""The types of the errors that the packages raise."""

from __future__ import annotations

from typing import TypeVar

from be_runtime.errors import BeRuntimeError
from be_toolchain.errors import ToolchainError

E = TypeVar("E", BeRuntimeError, ToolchainError)


def error_types(base: type[E]) -> tuple[type[E], ...]:
    """A type and all below it, by code."""
    types = [base]
    for child in base.__subclasses__():
        types += error_types(child)
    return tuple(sorted(types, key=lambda kind: kind.code))
