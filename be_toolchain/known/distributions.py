"""Names, versions and requirements of Python distributions, read by `packaging`. Pure: text in, values out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

JAX_PLUGIN = re.compile(r"jax-cuda(\d+)-plugin")
"""jax's CUDA plugin by its normalized name, and the CUDA major version that it is for."""


def normalize(name: str, version: str) -> tuple[str, str]:
    """A distribution's name and version in the one spelling that can be compared.

    Examples
    --------
    >>> normalize("nvidia_CUDA.nvcc", "13.0.0-RC1")
    ('nvidia-cuda-nvcc', '13.0.0rc1')
    """
    from packaging.utils import canonicalize_name, canonicalize_version

    return canonicalize_name(name), canonicalize_version(version, strip_trailing_zero=False)


def parse_dist_info(folder: str) -> tuple[str, str] | None:
    """The distribution, and its version, in the name of a ``*.dist-info`` folder; None for any other name.

    Examples
    --------
    >>> parse_dist_info("nvidia_nvvm-13.0.88.dist-info")
    ('nvidia-nvvm', '13.0.88')
    """
    from packaging.utils import InvalidName, canonicalize_name

    name, dash, version = folder.removesuffix(".dist-info").rpartition("-")
    if not dash or not folder.endswith(".dist-info"):
        return None
    try:
        canonicalize_name(name, validate=True)
    except InvalidName:  # such as a folder that pip has put aside
        return None
    return normalize(name, version)


def parse_dist_infos(folders: tuple[str, ...]) -> dict[str, str]:
    """Installed distributions and versions from the names in a folder of packages.

    Examples
    --------
    >>> parse_dist_infos(("nvidia_nvvm-13.0.88.dist-info", "pip"))
    {'nvidia-nvvm': '13.0.88'}
    """
    return dict(filter(None, map(parse_dist_info, folders)))


def parse_requirement(text: str) -> Requirement | None:
    """A requirement as pip and METADATA files write it; None for any other text.

    Examples
    --------
    >>> str(parse_requirement('nvidia-nvvm >=13.0.48; extra == "with-cuda"').specifier)
    '>=13.0.48'
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except InvalidRequirement:
        return None
