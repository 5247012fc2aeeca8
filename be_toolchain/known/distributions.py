"""Names, versions and requirements of Python distributions, read by `packaging`. Pure: text in, values out.

`packaging` takes some milliseconds to load, so a search does without it wherever records are named as wheels name them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

JAX_PLUGIN = re.compile(r"jax-cuda(\d+)-plugin")
"""jax's CUDA plugin by its normalized name, and the CUDA major version that it is for."""

OWNERS = ("jax", "nvidia")
"""How the names of all distributions begin that a search looks for."""

_WHEEL_NAME = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
"""A name as the specification of wheels has it: normalized, with underscores."""


def normalize(name: str, version: str) -> tuple[str, str]:
    """A distribution's name and version in the one spelling that can be compared.

    Examples
    --------
    >>> normalize("nvidia_CUDA.nvcc", "13.0.0-RC1")
    ('nvidia-cuda-nvcc', '13.0.0rc1')
    """
    from packaging.utils import canonicalize_name, canonicalize_version

    try:
        return canonicalize_name(name), canonicalize_version(version, strip_trailing_zero=False)
    except ValueError:  # a number that Python does not convert
        return canonicalize_name(name), version


def parse_dist_info(folder: str) -> tuple[str, str] | None:
    """The normalized name and the version in the name of a ``*.dist-info`` folder; None for any other folder.

    Examples
    --------
    >>> parse_dist_info("nvidia_nvvm-13.0.88.dist-info")
    ('nvidia-nvvm', '13.0.88')
    """
    name, dash, version = folder.removesuffix(".dist-info").rpartition("-")
    if not dash or not folder.endswith(".dist-info"):
        return None
    if _WHEEL_NAME.fullmatch(name):
        return name.replace("_", "-"), version
    from packaging.utils import InvalidName, canonicalize_name

    try:
        return canonicalize_name(name, validate=True), version
    except InvalidName:  # such as a folder that pip has put aside
        return None


def parse_dist_infos(folders: tuple[str, ...]) -> dict[str, str]:
    """NVIDIA's and JAX's distributions, with their versions, from the names in a folder of packages.

    Examples
    --------
    >>> parse_dist_infos(("nvidia_nvvm-13.0.88.dist-info", "numpy-2.3.0.dist-info", "nvidia"))
    {'nvidia-nvvm': '13.0.88'}
    """
    rows = (parse_dist_info(folder) for folder in folders if folder.lower().startswith(OWNERS))
    return dict(filter(None, rows))


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
    except (InvalidRequirement, RecursionError):
        return None
