"""An author's nvcc flags as clang takes them: translated, left out where clang needs no telling, or refused. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from be_runtime.errors import ArgumentError

FAST_MATH = (
    "-fcuda-approx-transcendentals",
    "-fcuda-flush-denormals-to-zero",
    *("-mllvm", "-nvptx-prec-divf32=0", "-mllvm", "-nvptx-prec-sqrtf32=0"),
)
"""Equivalent of nvcc's ``--use_fast_math``. Unlike clang's ``-ffast-math``, it keeps NaN and infinity."""

_DEVICE, _HOST, _PTXAS = "-Xarch_device", "-Xarch_host", "-Xcuda-ptxas"

_NEEDLESS = frozenset(
    (
        *("expt-relaxed-constexpr", "extended-lambda", "expt-extended-lambda"),
        *("allow-unsupported-compiler", "display-error-number", "generate-dependencies-with-compile"),
    )
)
"""Clang does so always, or has nothing of the kind."""

_NEEDLESS_WITH_VALUE = frozenset(("Xcudafe", "cudafe-options", "diag-suppress", "t", "threads", "split-compile"))
"""They speak to nvcc's own front end, or divide its work, which is divided here anyway."""

LINES = (_DEVICE, "-gline-tables-only", _PTXAS, "-lineinfo")
"""Equivalent of nvcc's ``-lineinfo``."""

_SWITCHES: dict[str, tuple[str, ...]] = {
    "use_fast_math": FAST_MATH,
    "lineinfo": LINES,
    "generate-line-info": LINES,
    "G": (_DEVICE, "-g", "--cuda-noopt-device-debug", _PTXAS, "-g"),
    "device-debug": (_DEVICE, "-g", "--cuda-noopt-device-debug", _PTXAS, "-g"),
    "debug": ("-g",),
    "res-usage": (_PTXAS, "-v"),
    "resource-usage": (_PTXAS, "-v"),
    "disable-warnings": ("-w",),
}

_VALUES: dict[str, dict[str, tuple[str, ...]]] = {
    "ftz": {"true": ("-fcuda-flush-denormals-to-zero",), "false": ()},
    "prec-div": {"true": (), "false": ("-mllvm", "-nvptx-prec-divf32=1")},
    "prec-sqrt": {"true": (), "false": ("-mllvm", "-nvptx-prec-sqrtf32=0")},
    "fmad": {"true": (), "false": (_DEVICE, "-ffp-contract=off")},
    "default-stream": {"legacy": (), "null": ()},
    "rdc": {"false": ()},
    "relocatable-device-code": {"false": ()},
    "Werror": {
        "all-warnings": ("-Werror",),
        "cross-execution-space-call": (),
        "deprecated-declarations": ("-Werror=deprecated-declarations",),
        "reorder": ("-Werror=reorder",),
    },
}

_SPELT: dict[str, str] = {
    "include-path": "-I",
    "system-include": "-isystem",
    "define-macro": "-D",
    "undefine-macro": "-U",
    "pre-include": "-include",
    "std": "-std=",
    "optimize": "-O",
}
"""Nvcc's long options, as every compiler has them."""

_LISTS = {
    "Xptxas": _PTXAS,
    "ptxas-options": _PTXAS,
    "Xcompiler": _HOST,
    "compiler-options": _HOST,
}
"""Options that pass comma-separated words on."""

_REGISTERS = frozenset(("maxrregcount",))
_ARCHS = frozenset(("arch", "gpu-architecture", "gencode", "generate-code"))

_REFUSED: dict[str, str] = {
    **dict.fromkeys(
        ("rdc", "relocatable-device-code", "dc", "device-c", "dlto", "lto", "dlink-time-opt"),
        "relocatable device code needs nvlink, which the CUDA 12 wheels lack",
    ),
    **dict.fromkeys(("ccbin", "compiler-bindir"), "clang compiles both sides; BE_CXX names another clang"),
    **dict.fromkeys(("code", "gpu-code"), "use compute_capability= instead"),
    **dict.fromkeys(("default-stream",), "clang has no default stream for each thread; use the stream argument"),
    **dict.fromkeys(
        ("keep", "save-temps", "ptx", "cubin", "fatbin", "optf", "options-file", "dryrun", "run", "Xnvlink", "Xfatbin"),
        "it changes the output of nvcc, and there is no nvcc here",
    ),
}

_TAKES_VALUE = frozenset((*_NEEDLESS_WITH_VALUE, *_VALUES, *_SPELT, *_LISTS, *_REGISTERS, *_ARCHS))


def translate(flags: Sequence[str]) -> tuple[str, ...]:
    """The flags for clang; those that nvcc shares with other compilers stay as they are.

    Parameters
    ----------
    flags : sequence of str
        As they are given to nvcc.

    Raises
    ------
    ArgumentError
        A flag has no counterpart, or a value that nvcc does not know.

    Examples
    --------
    >>> translate(["-maxrregcount=64", "-Xcompiler", "-march=native", "--expt-relaxed-constexpr", "-DN=2"])
    ('-Xcuda-ptxas', '--maxrregcount=64', '-Xarch_host', '-march=native', '-DN=2')
    """
    found: list[str] = []
    rest = iter(flags)
    for flag in rest:
        name, equals, value = flag.lstrip("-").partition("=")
        if not flag.startswith("-"):
            found.append(flag)
        elif name in _TAKES_VALUE and not flag.startswith("-std="):
            found += _with_value(flag, name, value if equals else next(rest, ""))
        elif name in _NEEDLESS:
            continue
        elif name in _SWITCHES:
            found += _SWITCHES[name]
        elif name in _REFUSED:
            raise _refused(flag, name)
        else:
            found.append(flag)
    return tuple(found)


def _with_value(flag: str, name: str, value: str) -> Iterator[str]:
    """An option of nvcc's and its value."""
    if name in _LISTS:
        for word in _words(flag, name, value):
            yield from (_LISTS[name], word)
    elif name in _SPELT:
        option = _SPELT[name]
        yield from (f"{option}{value}",) if option in {"-std=", "-O"} else (option, value)
    elif name in _REGISTERS:
        yield from (_PTXAS, f"--maxrregcount={value}")
    elif name in _ARCHS:
        yield from _archs(flag, value)
    elif name in _VALUES:
        if value not in _VALUES[name]:
            raise _refused(flag, name)
        yield from _VALUES[name][value]


def _words(flag: str, name: str, value: str) -> list[str]:
    """The words that nvcc passes on, which its shell reads."""
    try:
        return shlex.split(value.replace(",", " "))
    except ValueError:
        raise _refused(flag, name) from None


def _archs(flag: str, value: str) -> Iterator[str]:
    """The architectures of ``-arch=sm_90`` or ``-gencode=arch=compute_90,code=[sm_90,compute_90]``."""
    codes = re.findall(r"\b(sm|compute)_(\d+[af]?)\b", value.partition("code=")[2] or value)
    if not codes:
        raise _refused(flag, "code")
    for number in dict.fromkeys(number for _, number in codes):
        yield f"--cuda-gpu-arch=sm_{number}"
    for kind, number in codes:
        if kind == "compute":
            yield f"--cuda-include-ptx=sm_{number}"


def _refused(flag: str, name: str) -> ArgumentError:
    """The error for a flag without a counterpart."""
    reason = _REFUSED.get(name, "nvcc does not know its value")
    return ArgumentError(
        f"extra_cuda_cflags contains {flag!r}, and clang compiles CUDA here: {reason}",
        hints=("leave it out, or use a toolkit with nvcc: python -m be_toolchain doctor says what is here",),
    )
