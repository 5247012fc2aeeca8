"""The errors and warnings of be_runtime, each with a stable code, and with fields from which its text is rendered."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from be_toolchain import errors, terminal
from be_toolchain.named import NamedTuple

_INNER = ("be_runtime", "contextlib", "functools", "jax", "jaxlib")
"""Packages whose frames do not belong to a user."""

_SHORT_LINES, _WIDEST = 16, 240
"""Limits for the lines of output that an error's text shows in full, and for the characters of a line."""

_SURROUNDS_AN_ERROR = (
    r"\s*$|In file included from |\S.*: (?:In|At) |\d+ errors? (?:generated|detected)|compilation terminated"
)
"""Lines of g++, clang and nvcc around an error that repeat the error."""

_QUOTED = 160
"""Number of characters at each end of a shortened message."""


class SourceSpan(NamedTuple):
    """A place in a source text, which a message shows.

    Parameters
    ----------
    file : str
        Name for the user, a path, or the module's name for an inline source.
    line, column : int
        One-based position of the first character.
    length : int
        Number of characters to underline, at least one.
    text : str
        The whole source line, without its line ending.
    """

    file: str
    line: int
    column: int
    length: int
    text: str

    def render(self) -> str:
        """Return the location, the source line, which is cut if it is long, and carets under the span."""
        first = max(0, self.column - 1 - _WIDEST // 4) if len(self.text) > _WIDEST else 0
        shown = self.text[first : first + _WIDEST]
        before, after = self.text[first : self.column - 1], shown[self.column - 1 - first :]
        lead, rest = "... " * (first > 0), " ..." * (first + _WIDEST < len(self.text))
        pad = " " * len(lead) + "".join("\t" if char == "\t" else " " for char in before)
        carets = "^" + "~" * (min(max(self.length, 1), max(len(after), 1)) - 1)
        return f"{self.file}:{self.line}:{self.column}\n    {lead}{shown}{rest}\n    {pad}{carets}"


class BeRuntimeError(errors.KernelError):
    """Base class of be_runtime's own errors.

    Attributes
    ----------
    code : str
        Code of the error's class, such as ``"BE301"``. ``python -m be_runtime explain BE301`` prints causes and
        remedies.
    message : str
        Failure, with the offending input.
    span : SourceSpan or None
        Place in the user's source, with ``file``, ``line`` and ``column``; None if the error has no place in a source.
    hints : tuple of str
        Next steps, the most likely first.

    See Also
    --------
    - :doc:`/errors`: each code with its causes and remedies.

    Examples
    --------
    >>> import be_runtime
    >>> try:
    ...     be_runtime.set_compute_capabilities(9.0)
    ... except be_runtime.BeRuntimeError as error:
    ...     print(error.code)
    BE101
    """

    code: ClassVar[str] = "BE000"
    longest: ClassVar[int] = sys.maxsize
    """Limit for the characters of a message or a hint, which may quote the input; longer text is shortened."""

    def __init__(self, message: str, *, span: SourceSpan | None = None, hints: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.hints = hints

    def __str__(self) -> str:
        return terminal.printable(f"{self._text()}\n{errors.name_explanation(self.code)}")

    def _text(self) -> str:
        """Return the text without the page of the documentation."""
        parts = [self._shortened(self.message)]
        if self.span is not None:
            parts.append(self.span.render())
        parts.extend(f"hint: {self._shortened(hint)}" for hint in self.hints)
        return "\n".join(parts)

    def _shortened(self, text: str) -> str:
        return text if len(text) <= self.longest else f"{text[:_QUOTED]} ... {text[-_QUOTED:]}"


class ArgumentError(BeRuntimeError, ValueError):
    """An argument of a public function has a value that is not allowed."""

    code = "BE101"
    longest = 500


class SourceNotFoundError(BeRuntimeError, FileNotFoundError):
    """A source file or folder does not exist, or a folder contains no sources."""

    code = "BE102"

    def __str__(self) -> str:
        return BeRuntimeError.__str__(self)


class KernelNotAvailableError(ArgumentError):
    """An operation has no kernel for a platform, or no kernel of the requested backend."""

    code = "BE704"


class BenchmarkDataFnNotProvidedError(ArgumentError):
    """An operation has no function that makes the arguments of a benchmark."""

    code = "BE705"


class SpecError(BeRuntimeError, ValueError):
    """An arg_spec, a // @BE comment or a C++ signature is invalid."""

    code = "BE201"
    longest = 2000


class EntryPointNotFoundError(SpecError):
    """A named entry point is not in the source, or the source declares no entry point."""

    code = "BE202"


class DuplicateEntryPointError(SpecError):
    """Two entry points of one module would have the same name."""

    code = "BE203"


class BuildError(BeRuntimeError, errors.CompilationError, RuntimeError):
    """A compiler, the linker or ninja failed.

    Attributes
    ----------
    message : str
        Failure, in one line.
    command : tuple of str
        Command that failed; empty if no command was started.
    output : str
        Whole output of the command. The text of the error contains the output only if it is short.
    first_error : str
        First error in `output`, with its source lines.
    further : str
        Later errors in `output`, one line each.
    hints : tuple of str
        Next steps, the most likely first.
    """

    code = "BE301"

    def __init__(
        self,
        message: str,
        *,
        command: tuple[str, ...] = (),
        output: str = "",
        first_error: str = "",
        further: str = "",
        hints: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, hints=hints)
        self.command = command
        self.output = output
        self.first_error = first_error
        self.further = further

    def _text(self) -> str:
        import re
        import shlex

        parts = [self.message]
        if self.first_error:
            parts.append(self.first_error)
        parts.extend(f"hint: {hint}" for hint in self.hints)
        if self.command:
            parts.append(f"command: {shlex.join(self.command)}")
        shown = {line.strip() for line in self.first_error.splitlines()}
        rest = [line for line in self.output.splitlines() if line.strip() not in shown]
        if not all(re.match(_SURROUNDS_AN_ERROR, line) for line in rest):
            parts.append(self._shown_output())
        return "\n".join(parts)

    def _shown_output(self) -> str:
        """Return the whole output if it is short and names no internal symbol, otherwise the further errors."""
        lines = self.output.rstrip().splitlines()
        if len(lines) <= _SHORT_LINES and max(map(len, lines)) <= _WIDEST and "BE::detail" not in self.output:
            return "\n".join(("full output:", *lines))
        shown = [f"then: {line}" for line in self.further.splitlines()]
        if not self.first_error:
            shown = [line[:_WIDEST] for line in lines[:_SHORT_LINES]]
        printed = ", and on standard error with BE_VERBOSE=1" if self.command else ""
        return "\n".join((*shown, f"full output: {len(lines)} lines, in the error's `output`{printed}"))


class BuildTimeoutError(BuildError):
    """A build ran longer than its limit and was stopped."""

    code = "BE302"


class CacheError(BeRuntimeError, RuntimeError):
    """The cache, or a folder of prebuilt modules, can't be used."""

    code = "BE401"


class LoadError(BeRuntimeError, RuntimeError):
    """Compiled code or an exported program can't be loaded, or a setting forbids the compilation."""

    code = "BE501"


class RegistrationError(BeRuntimeError, ValueError):
    """A JAX FFI target can't be registered or exported, or is not available on a platform."""

    code = "BE601"


class TransformError(BeRuntimeError, RuntimeError):
    """A kernel, or the installed JAX, does not support a transformation such as batching or differentiation."""

    code = "BE701"


class GradientError(BeRuntimeError, AssertionError):
    """A derivative differs from finite differences."""

    code = "BE702"


class GeneratorError(BeRuntimeError, errors.KernelCompilationError, RuntimeError):
    """The generator of a kernel failed, or a kernel can't be exported for a GPU architecture."""

    code = "BE703"


class FindingError(BeRuntimeError, RuntimeError):
    """Checked mode found an error in a kernel.

    Attributes
    ----------
    message : str
        Findings, with the line that calls the kernel.
    findings : tuple of Finding
        All findings of the call.
    hints : tuple of str
        Next steps, the most likely first.
    """

    code = "BE801"

    def __init__(self, message: str, *, findings: tuple[Any, ...] = (), hints: tuple[str, ...] = ()) -> None:
        super().__init__(message, hints=hints)
        self.findings = findings


# brainevent's names for these errors, so that programs that catch them run with `import be_runtime as brainevent`.
BrainEventError = errors.KernelError
CUDANotInstalledError = NvccNotFoundError = errors.CudaNotFoundError
GpuArchDetectionError = UnsupportedArchError = errors.ArchError
HostCompilerIncompatibleError = errors.UnsupportedHostCompilerError
KernelExecutionError = FindingError
KernelFallbackExhaustedError = KernelNotAvailableError
KernelLoadError = LoadError
KernelRegistrationError = RegistrationError
KernelToolchainError = errors.ToolchainError


class MathError(errors.KernelError):
    """An error that only the library brainevent raises, about its array types."""


class UnsupportedOperationError(errors.KernelError):
    """An error that only the library brainevent raises, about its array types."""


class FindingWarning(UserWarning):
    """Checked mode reports a finding as a warning, because the finding is uncertain or ``on_finding="warn"`` is set."""


class GatherWarning(UserWarning):
    """Each device gathers a sharded argument, because the kernel needs all of an axis that is split over devices."""


class DeviceCodeWarning(UserWarning):
    """A problem in device code that nvcc warns about, such as a call of a host function.

    If device code calls a host function, nvcc may leave out the code of the kernel. The kernel then does nothing.
    """


class ExitWarning(UserWarning):
    """Host code of a function calls exit or abort, which ends the Python process."""


class StreamWarning(UserWarning):
    """A CUDA function launches work on CUDA's default stream, which XLA does not wait for."""


def shown_path(path: str) -> str:
    """Return a path for messages, relative to the working folder if the folder exists and contains the path."""
    try:
        return path.removeprefix(f"{Path.cwd()}/")
    except OSError:
        return path


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the user's line that led to this call. Python shows each text once."""
    frame, level = sys._getframe(), 1  # noqa: SLF001  # inspect takes 10 ms to import
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INNER:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def refuse_unknown(options: Iterable[str], known: type, function: str) -> None:
    """Raise Python's usual error for a keyword argument that a function does not take.

    Parameters
    ----------
    options : iterable of str
        Names of the given keyword arguments.
    known : type
        ``TypedDict`` of the function's keyword arguments.
    """
    for name in options:
        if name not in known.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def call_named(what: object, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Call an author's function, and name it by `what` in the error if it does not take the arguments.

    Examples
    --------
    >>> call_named("the rule of scale", lambda x: x, 1, by=2)
    Traceback (most recent call last):
    TypeError: the rule of scale: <lambda>() got an unexpected keyword argument 'by'
    """
    try:
        return function(*arguments, **keywords)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # the function itself raised it
        raise TypeError(f"{what}: {error}") from None
