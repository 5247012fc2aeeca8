"""``z = x + y`` for cuTile."""

# ruff: noqa: ANN001, D103, N803 - cuTile finds the types of a kernel's parameters
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import cuda.tile as ct


@ct.kernel
def add_kernel(x, y, z, BLOCK: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(z, index=(i,), tile=ct.load(x, index=(i,), shape=(BLOCK,)) + ct.load(y, index=(i,), shape=(BLOCK,)))
