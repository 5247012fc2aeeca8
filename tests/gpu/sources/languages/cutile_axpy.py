"""``2 * x + y`` in cuTile, and a kernel that does not write the last element of all but the last tile."""

# ruff: noqa: ANN001, N803 - cuTile finds the types of a kernel's parameters
# mypy: disable-error-code="untyped-decorator"

import cuda.tile as ct


@ct.kernel
def axpy(x, y, out, BLOCK: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(out, index=(i,), tile=2 * ct.load(x, index=(i,), shape=(BLOCK,)) + ct.load(y, index=(i,), shape=(BLOCK,)))


@ct.kernel
def lacking(x, y, out, BLOCK: ct.Constant[int]):
    i = ct.bid(0)
    if i > 0:
        sums = 2 * ct.load(x, index=(i,), shape=(BLOCK,)) + ct.load(y, index=(i,), shape=(BLOCK,))
        ct.store(out, index=(i,), tile=sums)
