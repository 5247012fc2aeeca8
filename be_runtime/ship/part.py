"""The share of one module or kernel of a package in its bundle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from be_runtime.bundle.index import CodeImage, ImageTarget


class Part(NamedTuple):
    """The share of one module or kernel in a bundle.

    Parameters
    ----------
    images : dict of str to (CodeImage, bytes)
    targets : dict of str to ImageTarget
    kernels, modules, functions : dict
        See `Index`.
    """

    images: Mapping[str, tuple[CodeImage, bytes]]
    targets: Mapping[str, ImageTarget] = {}
    kernels: Mapping[str, Any] = {}
    modules: Mapping[str, Any] = {}
    functions: Mapping[str, Any] = {}
