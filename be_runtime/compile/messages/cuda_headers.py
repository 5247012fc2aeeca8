"""The wheels that have CUDA's headers."""

from __future__ import annotations

import re
from typing import NamedTuple


class HeaderWheel(NamedTuple):
    """The wheel that has a header.

    Parameters
    ----------
    cuda13, cuda12 : str
        Names of the wheel for CUDA 13 and CUDA 12.
    is_library : bool
        True for a wheel of a library, whose release need not be the compiler's.
    """

    cuda13: str
    cuda12: str
    is_library: bool = False


_LIBRARIES = {
    r"curand\w*\.h": "curand",
    r"cublas\w*\.h": "cublas",
    r"cusparse\w*\.h": "cusparse",
    r"cusolver\w*\.h": "cusolver",
    r"cufft\w*\.h": "cufft",
}
_WHEELS = (
    (r"(?:cuda|nv)/[\w/]+|(?:cub|thrust)/.*", HeaderWheel("nvidia-cuda-cccl", "nvidia-cuda-cccl-cu12")),
    (r"crt/.*", HeaderWheel("nvidia-cuda-crt", "nvidia-cuda-nvcc-cu12")),
    (
        r"cuda_\w+\.h|cooperative_groups.*|mma\.h|cuComplex\.h|math_constants\.h",
        HeaderWheel("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    ),
    *(
        (names, HeaderWheel(f"nvidia-{name}", f"nvidia-{name}-cu12", is_library=True))
        for names, name in _LIBRARIES.items()
    ),
)


def wheel_of(header: str) -> HeaderWheel | None:
    """Find the wheel that has a header, by the name in the ``#include``; None if the header is not CUDA's.

    Examples
    --------
    >>> wheel_of("curand_kernel.h").cuda13
    'nvidia-curand'
    """
    return next((wheel for names, wheel in _WHEELS if re.fullmatch(names, header)), None)
