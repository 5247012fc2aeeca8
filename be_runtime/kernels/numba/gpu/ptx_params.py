"""The parameters of a Numba kernel in PTX: those that it never reads are left out. Pure.

Numba passes an array as its owner, its parent, the number of elements, the bytes of one, the data, the shape and the
strides, one word each. A launch takes longer the more words it passes, and most kernels read the data and the shape
alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from be_runtime.errors import BuildError

_ENTRY = re.compile(r"\.visible\s+\.entry\s+[\w$]+\s*\(([^)]*)\)")
_WORD = re.compile(r"\.param\s+\.[bsu]64\s[^,]*?([\w$]+)")
_NAME = re.compile(r"[\w$]+")
_COUNT, _SHAPE = 2, 5
"""Where the number of elements and the shape are among an array's words."""


def array_words(ndim: int) -> int:
    """How many words an array is passed in."""
    return _SHAPE + 2 * ndim


def pack_params(ptx: str, ndims: Sequence[int]) -> tuple[str, tuple[int, ...]]:
    """PTX that takes only the words which its kernel reads, and their places among all words.

    Parameters
    ----------
    ptx : str
        With one kernel.
    ndims : sequence of int
        The dimensions of the arrays that the kernel takes.

    Raises
    ------
    BuildError
        The kernel does not take such arrays.

    Examples
    --------
    >>> words = ", ".join(f".param .u64 k_param_{i}" for i in range(7))
    >>> ptx = f".visible .entry k({words}) {{ ld.param.u64 %rd1, [k_param_4]; }}"
    >>> pack_params(ptx, [1])
    ('.visible .entry k(.param .u64 k_param_4) { ld.param.u64 %rd1, [k_param_4]; }', (4,))
    """
    entry = _ENTRY.search(ptx)
    declared = [each.strip() for each in entry[1].split(",") if each.strip()] if entry is not None else []
    words = [_WORD.fullmatch(each) for each in declared]
    names = [word[1] for word in words if word is not None]
    if entry is None or len(names) != len(declared) or len(names) != sum(map(array_words, ndims)):
        raise BuildError(
            f"Numba made a kernel of {len(declared)} parameters for arrays of {tuple(ndims)} dimensions: it passes "
            "arrays in a way that is not known here",
            hints=("pip install 'numba-cuda==0.30.*', which is tested",),
        )
    body = _merge_counts(ptx[entry.end() :], names, ndims)
    read = set(_NAME.findall(body)).intersection(names)
    kept = tuple(place for place, name in enumerate(names) if name in read)
    return f"{ptx[: entry.start(1)]}{', '.join(declared[place] for place in kept)}){body}", kept


def _merge_counts(body: str, names: Sequence[str], ndims: Sequence[int]) -> str:
    """The body with one name for what is one number: the count and the length of an array of one dimension."""
    first, same = 0, {}
    for ndim in ndims:
        if ndim == 1:
            same[names[first + _COUNT]] = names[first + _SHAPE]
        first += array_words(ndim)
    return _NAME.sub(lambda name: same.get(name[0], name[0]), body)
