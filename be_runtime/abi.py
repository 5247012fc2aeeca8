"""Placeholder until the branch abi is merged."""

from __future__ import annotations

from be_runtime.errors import LoadError

ABI = 1
FFI_CLAIM = "0.1"


def check_abi(number: int, what: str) -> None:
    """Check."""
    if number != ABI:
        raise LoadError(f"{what} has ABI {number}, and this be_runtime has ABI {ABI}", hints=("update",))
