"""The code of a target as an exported program carries it, and the demand for it. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from be_runtime.bundle.index import CodeImage, ImageTarget, target_name


class Demand(NamedTuple):
    """The machines that a target's code is asked for.

    Parameters
    ----------
    baseline : str
        Level of instructions of host code, such as ``"x86-64-v3"``; empty for that of every such machine.
    archs : tuple of str
        Architectures of device code, such as ``"9.0"``; empty for those that it was compiled for.
    kernel : str
        Id of the kernel that a call of the launcher names; empty for other targets.
    """

    baseline: str
    archs: tuple[str, ...] = ()
    kernel: str = ""


class Carried(NamedTuple):
    """The code of a target.

    Parameters
    ----------
    library : str
        Hash of the library that has the handlers.
    stages : dict of str to str
        Symbol of the handler for each stage.
    images : dict of str to (CodeImage, bytes)
        The library, and images of the kernel, by hash.
    symbol : str
        Last part of the target's name; by default the symbol of its handler.
    kernel : str
        Id of the kernel, by its content.
    kernels : dict
        Its row in the index.
    """

    library: str
    stages: Mapping[str, str]
    images: Mapping[str, tuple[CodeImage, bytes]]
    symbol: str = ""
    kernel: str = ""
    kernels: Mapping[str, object] = {}

    @property
    def target(self) -> str:
        """The name of the target."""
        return target_name(self.library, self.symbol or self.stages["execute"])

    @property
    def row(self) -> ImageTarget:
        """The row of the target in an index."""
        return ImageTarget(self.library, self.images[self.library][0].platform, self.stages)


Carry = Callable[[Demand], Carried]
"""Function that makes a target's code for a demand."""


def carried_library(image: CodeImage, data: bytes, stages: Mapping[str, str]) -> Carried:
    """Return the code of a target that needs one library."""
    digest = hashlib.sha256(data).hexdigest()
    return Carried(digest, stages, {digest: (image, data)})
