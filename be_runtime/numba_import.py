"""Why Numba can't be imported, and what to do."""

from __future__ import annotations

import importlib.metadata
import re

_NUMPY_LACKS = re.compile(r"module 'numpy(?:\.[\w.]+)?' has no attribute")
_NUMPY_TOO_NEW = re.compile(r"Numba needs NumPy (\d+)\.(\d+) or less")
_FIRST_REFUSED = "2.5"
"""The numpy from which on numba-cuda fails without saying why."""

_TITLES = {"numba": "Numba", "numba-cuda": "Numba with CUDA support"}


def import_error(function: str, package: str, error: BaseException) -> ImportError:
    """The error for a function of ours that needs Numba.

    Parameters
    ----------
    function : str
        Its name.
    package : {"numba", "numba-cuda"}
        What it needs.
    error : BaseException
        What importing that raised.
    """
    hint = explain_numpy(package, error) or "pip install 'brainevent-toolchain[numba]'"
    return ImportError(f"{function} needs {_TITLES[package]}, which can't be imported: {error}\nhint: {hint}")


def explain_numpy(package: str, error: BaseException) -> str:
    """`numpy_mismatch` for what is installed."""
    return numpy_mismatch(error, f"{package} {installed_version(package)}", installed_version("numpy"))


def numpy_mismatch(error: BaseException, package: str, numpy: str) -> str:
    """What to do where Numba refuses the installed numpy, or asks it for what it no longer has; else empty.

    Parameters
    ----------
    error : BaseException
        What Numba raised.
    package : str
        Which part of Numba, and its version.
    numpy : str
        The version of numpy.

    Examples
    --------
    >>> numpy_mismatch(AttributeError("module 'numpy' has no attribute 'row_stack'"), "numba-cuda 0.30.4", "2.5.0")
    "numba-cuda 0.30.4 does not work with numpy 2.5.0; pip install 'numpy<2.5', or a newer numba-cuda"
    >>> numpy_mismatch(ImportError("Numba needs NumPy 2.3 or less. Got NumPy 2.4."), "numba 0.62.0", "2.4.1")
    "numba 0.62.0 does not work with numpy 2.4.1; pip install 'numpy<2.4', or a newer numba"
    """
    refused = _NUMPY_TOO_NEW.search(str(error)) if isinstance(error, ImportError) else None
    if refused is not None:
        bound = f"{refused[1]}.{int(refused[2]) + 1}"
    elif isinstance(error, AttributeError) and _NUMPY_LACKS.search(str(error)):
        bound = _FIRST_REFUSED
    else:
        return ""
    name = package.partition(" ")[0]
    return f"{package} does not work with numpy {numpy}; pip install 'numpy<{bound}', or a newer {name}"


def installed_version(package: str) -> str:
    """The version of an installed package; ``"none"`` where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
