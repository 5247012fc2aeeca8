"""The error tree of be_toolchain: each error has a stable code and fields, and renders its text on demand."""

from __future__ import annotations

from typing import ClassVar

from be_toolchain.named import NamedTuple
from be_toolchain.terminal import printable


class Probe(NamedTuple):
    """One place that was searched, and the outcome.

    Parameters
    ----------
    found_via : str
        The search step, such as ``"CUDA_HOME"`` or ``"pip wheels"``.
    place : str
        The path, name or value that was tried.
    reason : str
        The reason for rejecting or choosing it.
    hint : str
        The repair, if something was found or named but can't be used.
    chosen : bool
        Whether this is the one in use.
    """

    found_via: str
    place: str
    reason: str = ""
    hint: str = ""
    chosen: bool = False


def render_probes(probes: tuple[Probe, ...]) -> str:
    """Lay probes out as aligned lines: the step, the place and the reason.

    Parameters
    ----------
    probes : tuple of Probe
        The probes, in the order in which they were tried.

    Returns
    -------
    str
        One line per probe, indented by two spaces; empty without probes.

    Examples
    --------
    >>> print(render_probes((Probe(found_via="PATH", place="nvcc", reason="not there"),)))
      PATH  nvcc: not there
    """
    width = max((len(probe.found_via) for probe in probes), default=0)
    lines = []
    for found_via, place, reason, _, chosen in probes:
        verdict = ", ".join(filter(None, ("chosen" if chosen else "", reason)))
        lines.append(f"  {found_via:<{width}}  {place}: {verdict}")
    return "\n".join(lines)


def name_explanation(code: str) -> str:
    """Return the last line of an error: the command that prints its section of the documentation.

    Examples
    --------
    >>> name_explanation("BE101")
    'causes and remedies: python -m be_runtime explain BE101'
    """
    package = "be_toolchain" if code.startswith("TC") else "be_runtime"
    return f"causes and remedies: python -m {package} explain {code}"


def correct(variable: str) -> str:
    """Return the hint for a variable, or a key of a project's settings file, that names something unusable.

    Examples
    --------
    >>> correct("CUDA_HOME")
    'correct CUDA_HOME, or leave it out'
    """
    return f"correct {variable}, or leave it out"


class KernelError(Exception):
    """Base class of the errors that ``be_runtime`` and ``be_toolchain`` define."""


class KernelCompilationError(KernelError):
    """Base class of errors about kernels that can't be compiled."""


class CompilationError(KernelCompilationError):
    """Base class of errors about compilers that failed or do not fit together."""


class ToolchainError(KernelError):
    """Base class of be_toolchain's own errors.

    Attributes
    ----------
    code : str
        Code of the error's class, such as ``"TC201"``. ``python -m be_toolchain explain TC201`` prints causes and
        remedies.
    message : str
        Failure, with the offending input.
    probes : tuple
        Places that were searched, each with a ``place`` and a ``reason``; empty unless a search failed.
    hints : tuple of str
        Next steps, the most likely first.

    See Also
    --------
    - :doc:`/errors`: each code with its causes and remedies.

    Examples
    --------
    >>> from be_toolchain import ToolchainError, parse_archs
    >>> try:
    ...     parse_archs("kepler")
    ... except ToolchainError as error:
    ...     print(error.code)
    TC101
    """

    code: ClassVar[str] = "TC000"

    def __init__(self, message: str, *, probes: tuple[Probe, ...] = (), hints: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.probes = probes
        self.hints = hints

    def __str__(self) -> str:
        parts = [self.message]
        if self.probes:
            parts.append(f"places searched:\n{render_probes(self.probes)}")
        parts.extend(f"hint: {hint}" for hint in self.hints)
        parts.append(name_explanation(self.code))
        return printable("\n".join(parts))


class ArchError(ToolchainError, ValueError):
    """A text is not a GPU architecture, or the toolkit cannot target it."""

    code = "TC101"


class PreferenceError(ToolchainError, ValueError):
    """A setting of be_toolchain has an invalid value."""

    code = "TC102"


class CudaNotFoundError(ToolchainError, RuntimeError):
    """No complete CUDA toolkit was found."""

    code = "TC201"


class IncoherentToolchainError(CudaNotFoundError):
    """The CUDA toolkits on this machine mix components of different releases."""

    code = "TC202"


class HeaderNotFoundError(ToolchainError, RuntimeError):
    """The headers of XLA's FFI are not installed."""

    code = "TC203"


class HipNotFoundError(ToolchainError, RuntimeError):
    """No compiler on this machine compiles HIP for an architecture of AMD GPUs."""

    code = "TC204"


class HostCompilerNotFoundError(ToolchainError, RuntimeError):
    """No working C++ compiler was found."""

    code = "TC301"


class UnsupportedHostCompilerError(ToolchainError, CompilationError, RuntimeError):
    """The CUDA toolkit does not accept the C++ compiler."""

    code = "TC302"


class InstallError(ToolchainError, RuntimeError):
    """An installation was not possible, or failed."""

    code = "TC401"


class CudaUnavailableError(InstallError):
    """PyPI has no nvcc for the CUDA release, or the driver is too old for JAX."""

    code = "TC402"


class StoreError(InstallError):
    """The folder of managed toolchains can't be used, or lacks the requested toolchain."""

    code = "TC403"
