"""Functions that a Numba kernel's machine code needs, and why it can't be built ahead of time with them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from be_runtime.errors import BuildError

VALUE_RAISED = "be_value_raised"
"""Function of no library that code asks for where it raises an exception with a value of run time."""

ADDRESSES = "numba.dynamic.globals"
"""Beginning of the names by which Numba's code refers to addresses of the process that compiled it."""

UNUSED = "NRT_MemInfo_call_dtor"
"""Function that frees an array that was allocated: without such arrays it is never called."""

_MEANINGS = (
    (re.escape(ADDRESSES), "it uses a C function by its address, or a global array of more than a megabyte",
     "pass the array as an input"),
    (r"numba_parallel|(numba_)?[gs]et_num_threads|(get_|numba_.*)thread|do_sched",
     "it runs in threads of Numba", "compile it without parallel=True"),
    (r"numba_(x|ez_|raw_)", "it calls linear algebra of SciPy", "write the loops, or use jnp for that part"),
    (r"NRT_MemInfo_(alloc\w*aligned|new_varsize)", "it allocates an array",
     "write into its outputs, or declare scratch[bytes] in the signature"),
    (r"_?Py|numba_(gil|unpickle|do_raise|runtime)", "it calls Python: it prints, or uses objects",
     "remove print and what needs objects"),
    (VALUE_RAISED, "it raises an exception with a value of run time",
     "raise it with a constant text, as in ValueError('text')"),
    (r"__svml|_ZGV", "it calls Intel's SVML", "uninstall icc_rt where it is built"),
    (r"numba_|NRT_(?!MemInfo_call_dtor)", "it calls a function of Numba's own library", "compute that in the kernel"),
)  # fmt: skip
"""Names of functions that a C library lacks: their beginning, what they mean, and what to do. The first that fits."""


def check_needs(kernel: str, needed: Sequence[str]) -> None:
    """Refuse a kernel whose code needs more than the C library.

    Raises
    ------
    BuildError
        It does; the message has the first such function and its meaning.

    Examples
    --------
    >>> check_needs("f", ["sinf", "__svml_sinf8"])
    Traceback (most recent call last):
    be_runtime.errors.BuildError: the kernel f can't be built ahead of time: it calls Intel's SVML (__svml_sinf8)
    hint: uninstall icc_rt where it is built
    see docs/errors.md#be301, or run: python -m be_runtime explain BE301
    """
    for pattern, meaning, advice in _MEANINGS:
        name = next((each for each in needed if re.match(pattern, each)), None)
        if name is not None:
            raise refusal(kernel, f"{meaning} ({name})", advice)


def refusal(kernel: str, reason: str, *hints: str) -> BuildError:
    """Make the error of a kernel that works only in the process that compiled it."""
    return BuildError(f"the kernel {kernel} can't be built ahead of time: {reason}", hints=hints)
