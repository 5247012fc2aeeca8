"""Check of the words that a Numba kernel takes, from its PTX. Pure.

Numba passes an array as its owner, its parent, the number of elements, the size of one, the data, the shape and the
strides. Each number is one word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from be_runtime.errors import BuildError

_ENTRY = re.compile(r"\.visible\s+\.entry\s+[\w$]+\s*\(([^)]*)\)")
_WORD = re.compile(r"\.param\s+\.[bsu]64\s[^,]*")
_BESIDE_THE_SHAPE = 5


def check_words(ptx: str, ndims: Sequence[int]) -> None:
    """Refuse a kernel that takes arrays in a different form.

    Parameters
    ----------
    ptx : str
        PTX with one kernel.
    ndims : sequence of int
        Numbers of dimensions of the arrays that the kernel takes.

    Raises
    ------
    BuildError
        The kernel does not take such arrays.

    Examples
    --------
    >>> words = ", ".join(f".param .u64 k_param_{i}" for i in range(7))
    >>> check_words(f".visible .entry k({words}) {{ }}", [1])
    """
    entry = _ENTRY.search(ptx)
    declared = [each.strip() for each in entry[1].split(",") if each.strip()] if entry is not None else []
    are_words = entry is not None and all(map(_WORD.fullmatch, declared))
    if not are_words or len(declared) != sum(_BESIDE_THE_SHAPE + 2 * ndim for ndim in ndims):
        raise BuildError(
            f"Numba made a kernel of {len(declared)} parameters for arrays of {tuple(ndims)} dimensions: it passes "
            "arrays in a way that is not known here",
            hints=("pip install 'numba-cuda==0.30.*', which is tested",),
        )
