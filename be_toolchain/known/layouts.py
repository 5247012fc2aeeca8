"""Facts about CUDA toolkits: folder layouts, names of their parts in each packaging, and names of distributions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from be_toolchain.named import NamedTuple

if TYPE_CHECKING:
    from packaging.requirements import Requirement


MIN_CUDA_RELEASE = (11, 0)
"""The first nvcc that compiles C++17."""

MIN_CXX_MAJOR = {"gcc": 8, "clang": 7}
"""The first major versions with a usable C++17."""

MIN_DRIVER_FOR_CUDA = {13: 580, 12: 525, 11: 450}
"""The first driver branch that runs any release of a CUDA major version (CUDA compatibility guide, table 1)."""

PROC_DRIVER = Path("/proc/driver/nvidia")
"""The folder in which the kernel shows NVIDIA's driver and its GPUs."""


class Layout(NamedTuple):
    """The folders of one kind of CUDA installation, relative to its root.

    ``{target}`` stands for NVIDIA's target (``x86_64-linux``), ``{multiarch}`` for Debian's (``x86_64-linux-gnu``).
    Each tuple is tried in order; ``/``-rooted entries are absolute.

    Parameters
    ----------
    name : str
        The name in messages.
    marker : tuple of str
        The paths below the root that must all exist for this layout.
    tools, cicc, libdevice : tuple of str
        Folders of nvcc's tools, of cicc, and of ``libdevice.10.bc``.
    includes, libraries : tuple of str
        Folders of headers and libraries.
    """

    name: str
    includes: tuple[str, ...]
    libraries: tuple[str, ...]
    marker: tuple[str, ...] = ()
    tools: tuple[str, ...] = ("bin",)
    cicc: tuple[str, ...] = ("nvvm/bin",)
    libdevice: tuple[str, ...] = ("nvvm/libdevice",)


LAYOUTS = (
    Layout(
        name="conda",
        marker=("conda-meta",),
        includes=("targets/{target}/include", "targets/{target}/include/cccl"),
        libraries=("targets/{target}/lib", "targets/{target}/lib/stubs", "lib"),
    ),
    Layout(
        name="debian",
        marker=("bin/nvcc", "libdevice"),
        cicc=("bin",),
        libdevice=("libdevice",),
        includes=("/usr/include",),
        libraries=("/usr/lib/{multiarch}",),
    ),
    Layout(
        name="pip",
        marker=("bin/nvcc", "../../nvidia"),
        includes=("include", "include/cccl"),
        libraries=("lib",),
    ),
    Layout(
        name="nvidia",
        includes=("targets/{target}/include", "targets/{target}/include/cccl", "include", "include/cccl"),
        libraries=("targets/{target}/lib", "lib64", "lib", "targets/{target}/lib/stubs", "lib64/stubs"),
    ),
)
"""The layouts, in the order in which they are tried; the last one fits any root."""

PIP_ROOTS = ("nvidia/cu14", "nvidia/cu13")
"""Below a site-packages folder: wheels of one CUDA major version share one root, newest first."""

MANAGED_STEPS = ("managed", "python -m be_toolchain use")
"""The search steps that find a managed toolkit: the newest, or the one that ``use`` selected."""

PIP_NVCC_WITHOUT_COMPILER = "nvidia/cuda_nvcc"
"""The CUDA 12 wheel of this name: ptxas and libnvvm, but no nvcc, cicc, cudafe++ or fatbinary."""

CUDA12_PARTS = ("nvidia/cuda_nvcc", "nvidia/cuda_runtime", "nvidia/cuda_cccl")
"""Below a site-packages folder: each CUDA 12 wheel has a folder of its own. These are the ones that clang needs."""

CLANG_ROOT = "nvidia/cu12"
"""Below a managed toolchain: the CUDA 12 wheels joined into one folder, as clang takes it for a CUDA installation."""

MIN_CLANG_FOR_CUDA = 16
"""The first clang that compiles with the headers of CUDA 12: 14 and 15 fail in their texture functions."""

ROCM_ROOT = "/opt/rocm"
"""AMD's own packages of ROCm, unless ``ROCM_PATH`` names another folder."""

HIP_VARIABLES = ("ROCM_PATH", "HIP_PATH", "HIP_CLANG_PATH", "DEVICE_LIB_PATH", "HIP_DEVICE_LIB_PATH", "HIP_PLATFORM")
"""Variables that change the output of hipcc, or of clang for HIP."""

SYSTEM_ROOTS = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/nvidia-cuda-toolkit", "/usr/lib/cuda")
"""The folders of NVIDIA's installer, of Arch Linux, and of Debian and Ubuntu."""

VERSIONED_ROOTS = (("/usr/local", "cuda-"), ("/opt", "cuda-"))
"""A folder and the prefix of the toolkits side by side in it, tried newest first."""

HPC_SDK_ROOT = "/opt/nvidia/hpc_sdk"
"""NVIDIA HPC SDK: ``<root>/<system>/<version>/cuda/<release>``."""

TARGETS = {"x86_64": ("x86_64-linux",), "aarch64": ("sbsa-linux", "aarch64-linux")}
"""The folder below ``targets/`` for a machine, likeliest first."""


class ComponentRow(NamedTuple):
    """A part of a toolkit and the names it has in each packaging.

    Parameters
    ----------
    name : str
        The name in be_toolchain, and the extra of ``cuda-toolkit`` that pulls its wheel.
    pip : str
        Its CUDA 13 wheel.
    conda : tuple of str
        Packages that carry it.
    debian : tuple of str
        Packages of Debian and Ubuntu.
    version_json : tuple of str
        Keys of a toolkit's ``version.json``.
    same_release : bool
        Whether the part must be of nvcc's release.
    """

    name: str
    pip: str
    conda: tuple[str, ...]
    version_json: tuple[str, ...]
    debian: tuple[str, ...] = ("nvidia-cuda-toolkit",)
    same_release: bool = True


COMPONENTS = (
    ComponentRow("nvcc", "nvidia-cuda-nvcc", ("cuda-nvcc-tools",), ("cuda_nvcc",)),
    ComponentRow("nvvm", "nvidia-nvvm", ("cuda-nvvm-tools", "cuda-nvvm-impl"), ("libnvvm", "cuda_nvvm", "cuda_nvcc")),
    ComponentRow(
        name="crt",
        pip="nvidia-cuda-crt",
        conda=("cuda-crt-dev_linux-64", "cuda-crt-dev_linux-aarch64", "cuda-crt-dev"),
        version_json=("cuda_crt", "cuda_nvcc"),
    ),
    ComponentRow(
        name="cudart",
        pip="nvidia-cuda-runtime",
        conda=("cuda-cudart-dev_linux-64", "cuda-cudart-dev_linux-aarch64", "cuda-cudart-dev"),
        debian=("nvidia-cuda-dev",),
        version_json=("cuda_cudart",),
    ),
    ComponentRow(
        name="cccl",
        pip="nvidia-cuda-cccl",
        conda=("cuda-cccl_linux-64", "cuda-cccl_linux-aarch64", "cuda-cccl"),
        debian=("libthrust-dev",),
        version_json=("cuda_cccl", "cuda_thrust"),
        same_release=False,
    ),
)

CCCL_VERSION_HEADERS = ("cuda/std/__cccl/version.h", "cuda/__cccl_config", "cub/version.cuh", "thrust/version.h")
"""Below CCCL's include folder: the first one that is there names its release."""

TOOLS = ("ptxas", "cudafe++", "fatbinary", "nvlink")
"""nvcc's tools that print their version."""

PIP_TOOLKIT = f"cuda-toolkit[{','.join(row.name for row in COMPONENTS)}]"
"""The requirement that pins all parts of one release; leaving an extra out lets that part float."""

PIP_RELEASES = ("12.9", "13.0", "13.1", "13.2", "13.3", "13.4", "13.5")
"""Releases that PyPI had in November 2026, offered when a command line is completed; `install` takes newer ones too."""

CUDA12_WHEELS = {
    "nvidia-cuda-nvcc-cu12": "ptxas",
    "nvidia-cuda-runtime-cu12": "cudart",
    "nvidia-cuda-cccl-cu12": "cccl",
}
"""The CUDA 12 wheels that clang compiles with, each with its component."""

PIP_TOOLKIT_12 = "cuda-toolkit[nvcc,cudart,cccl]"
"""The requirement that pins these wheels to one release of CUDA 12."""

CONDA_TRIPLETS = {
    "x86_64": ("x86_64-conda-linux-gnu", "x86_64-conda_cos6-linux-gnu"),
    "aarch64": ("aarch64-conda-linux-gnu",),
}
"""The prefixes of conda's compilers."""

CXX_FAMILIES = ((("g++", "c++"), "g++-"), (("clang++",), "clang++-"))
"""Names of C++ compilers and the prefix of their versioned names, in the order in which they are tried.

A versioned g++ comes before clang++: it is likelier to build what the machine's g++ builds.
"""

MODULE_VARIABLES = (
    *("CUDA_ROOT", "CUDA_DIR", "CUDATOOLKIT_HOME", "CUDAToolkit_ROOT"),
    *("CRAY_CUDATOOLKIT_DIR", "EBROOTCUDA", "NVHPC_CUDA_HOME"),
)
"""Variables of environment modules, Spack, CMake's users, Cray, EasyBuild and HPC SDK modules."""

PLACE_VARIABLES = ("PATH", *MODULE_VARIABLES, "CONDA_PREFIX", "LD_LIBRARY_PATH")
"""Variables with the folders of programs and libraries, which other programs set."""

COMPILE_VARIABLES = (
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CUDAHOSTCXX"),
    *("INCLUDES", "SYSTEM_INCLUDES", "LIBRARIES", "CUDAFE_FLAGS", "PTXAS_FLAGS"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    *("LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LD_RUN_PATH"),
    *("DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "CCC_OVERRIDE_OPTIONS", "SOURCE_DATE_EPOCH"),
)
"""Variables that change the output of nvcc, gcc or clang for one command line.

``INCLUDES`` to ``PTXAS_FLAGS`` are extended, not replaced, by ``nvcc.profile``, so that nvcc honors the
environment's values.
"""

PROBE_UNSET = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES")
"""Variables that are unset while a tool prints its version: flags in them may stop it, or make it write files."""

OUTPUT_VARIABLES = ("DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES")
"""Variables that make gcc write files beside its output."""

JAX_PLUGIN = re.compile(r"jax-cuda(\d+)-plugin")
"""jax's CUDA plugin by its normalized name, and the CUDA major version that it is for."""

OWNERS = ("jax", "nvidia")
"""Name prefixes of the distributions to search for."""

_WHEEL_NAME = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
"""A distribution's name in the name of a wheel's folder: normalized, with underscores."""


def normalize(name: str, version: str) -> tuple[str, str]:
    """Return a distribution's name and version in the one spelling that can be compared.

    Examples
    --------
    >>> normalize("nvidia_CUDA.nvcc", "13.0.0-RC1")
    ('nvidia-cuda-nvcc', '13.0.0rc1')
    """
    from packaging.utils import canonicalize_name, canonicalize_version

    try:
        return canonicalize_name(name), canonicalize_version(version, strip_trailing_zero=False)
    except ValueError:  # a number that Python can't convert
        return canonicalize_name(name), version


def parse_dist_info(folder: str) -> tuple[str, str] | None:
    """Return the normalized name and the version in the name of a ``*.dist-info`` folder; None for other folders.

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
    """Return NVIDIA's and JAX's distributions, with their versions, from the names in a folder of packages.

    Examples
    --------
    >>> parse_dist_infos(("nvidia_nvvm-13.0.88.dist-info", "numpy-2.3.0.dist-info", "nvidia"))
    {'nvidia-nvvm': '13.0.88'}
    """
    rows = (parse_dist_info(folder) for folder in folders if folder.lower().startswith(OWNERS))
    return dict(filter(None, rows))


def parse_requirement(text: str) -> Requirement | None:
    """Parse a requirement as pip and METADATA files write it; return None for any other text.

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
