"""Number of the ABI: of what compiled modules and Python share. Pure.

A compiled module depends on XLA's C API, of which XLA accepts each version for a year at least, and on what this number
stands for. It does not depend on the rest of our Python, nor on jaxlib's version.
"""

from __future__ import annotations

from be_runtime.errors import LoadError

ABI = 1
"""Raise it when a module that was compiled before would be called wrongly, or not at all, by the changed code: the
symbols of handlers, the fields of ``module.json``, the launcher's functions, its attributes or their order, or when
handlers claim another version of XLA's FFI. A new field or symbol that older modules do without is no reason.
"""

OLDEST = 1
"""The lowest ABI number whose modules this release still loads."""

FFI_CLAIM = "0.1"
"""The version of XLA's FFI that our handlers claim, the lowest that has what they use: ``native/ffi_versions.h``."""


def check_abi(number: int, what: str) -> None:
    """Check that something compiled can be loaded by this release.

    Parameters
    ----------
    number : int
        The ABI number that it was made for.
    what : str
        What it is, for the message.

    Raises
    ------
    LoadError
        It was made for a later ABI, or for one that is no longer supported.

    Examples
    --------
    >>> check_abi(ABI, "spikes")
    """
    if OLDEST <= number <= ABI:
        return
    old = number < OLDEST
    raise LoadError(
        f"{what} was made for ABI {number}, but this be_runtime has ABI {ABI}{f', and loads {OLDEST} on' * old}",
        hints=(
            f"build {what} again with this brainevent-toolchain"
            if old
            else "update brainevent-toolchain here: pip install --upgrade brainevent-toolchain",
        ),
    )
