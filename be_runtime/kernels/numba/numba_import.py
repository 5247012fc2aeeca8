"""Explanations and hints for a failed import of Numba."""

from __future__ import annotations

import importlib.metadata
import re
import traceback
import types

_NUMPY_LACKS = re.compile(r"module 'numpy(?:\.[\w.]+)?' has no attribute '(\w+)'")
_NUMPY_TOO_NEW = re.compile(r"Numba needs NumPy (\d+)\.(\d+) or less")
_FIRST_REFUSED = (2, 5)
"""The first numpy with which numba-cuda fails without a reason."""

_TITLES = {"numba": "Numba", "numba-cuda": "Numba with CUDA support"}


def import_error(function: str, package: str, error: BaseException) -> ImportError:
    """Make the error for a function of this package that needs Numba.

    Parameters
    ----------
    function : str
        Name of the function.
    package : {"numba", "numba-cuda"}
        Package that it needs.
    error : BaseException
        Exception from the import.
    """
    hint = _explain(package, error) or "pip install 'brainevent-toolchain[numba]'"
    return ImportError(f"{function} needs {_TITLES[package]}, which can't be imported: {error}\nhint: {hint}")


def explain_compilation(package: str, error: BaseException) -> str:
    """Return a hint if Numba fails to compile because parts of it don't work with the installed numpy; else empty.

    These parts are imported by the first compilation. A numpy name that the kernel itself uses is the kernel's mistake.
    """
    return _explain(package, error) if _asked_by_numba(error) else ""


def _asked_by_numba(error: BaseException) -> bool:
    """Return whether Numba's own code uses the name that numpy lacks: a kernel's names are looked up as values."""
    lacking = _NUMPY_LACKS.search(str(error))
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if _package(frame) != "numpy"]
    if lacking is None or not frames:
        return False
    return _package(frames[-1]) == "numba" and lacking[1] in frames[-1].f_code.co_names


def _package(frame: types.FrameType) -> str:
    """Return the package whose code runs in a frame."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _explain(package: str, error: BaseException) -> str:
    """Apply `numpy_mismatch` to the installed versions."""
    return numpy_mismatch(error, f"{package} {installed_version(package)}", installed_version("numpy"))


def numpy_mismatch(error: BaseException, package: str, numpy: str) -> str:
    """Return a hint if Numba refuses the installed numpy, or uses a name that it lacks; else empty.

    Parameters
    ----------
    error : BaseException
        Exception that Numba raised.
    package : str
        Package of Numba and its version.
    numpy : str
        Version of numpy.

    Examples
    --------
    >>> numpy_mismatch(AttributeError("module 'numpy' has no attribute 'row_stack'"), "numba-cuda 0.30.4", "2.5.0")
    "numba-cuda 0.30.4 does not work with numpy 2.5.0; pip install 'numpy<2.5', or a newer numba-cuda"
    >>> numpy_mismatch(ImportError("Numba needs NumPy 2.3 or less. Got NumPy 2.4."), "numba 0.62.0", "2.4.1")
    "numba 0.62.0 does not work with numpy 2.4.1; pip install 'numpy<2.4', or a newer numba"
    >>> numpy_mismatch(AttributeError("module 'numpy' has no attribute 'trapz'"), "numba 0.59.0", "2.4.1")
    'numba 0.59.0 does not work with numpy 2.4.1; install a newer numba'
    """
    refused = _NUMPY_TOO_NEW.search(str(error)) if isinstance(error, ImportError) else None
    if refused is None and not (isinstance(error, AttributeError) and _NUMPY_LACKS.search(str(error))):
        return ""
    name, remedy = package.partition(" ")[0], ""
    if refused is not None:
        remedy = f"'numpy<{refused[1]}.{int(refused[2]) + 1}', or "
    elif _release(numpy) >= _FIRST_REFUSED:
        remedy = "'numpy<{}.{}', or ".format(*_FIRST_REFUSED)
    return f"{package} does not work with numpy {numpy}; {'pip ' if remedy else ''}install {remedy}a newer {name}"


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, without pre-release and other suffixes; empty if nothing is installed."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version).release
    except InvalidVersion:
        return ()


def installed_version(package: str) -> str:
    """Return the version of an installed package; ``"none"`` if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
