"""NVIDIA's CUDA wheels as conda-forge's packages: its names, its layout, its dependencies and its activation."""

from __future__ import annotations

import importlib.metadata
import os
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from tests.packaging.conda.channels.channel import Channel, Package, tree

WHEELS = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
TARGET = "targets/x86_64-linux"
GCC = "gcc_impl_linux-64 >=6,<16.0a0"
"""What nvcc 13 takes."""
TOOLS = ("nvcc", "ptxas", "nvlink", "fatbinary", "bin2c", "cudafe++", "__nvcc_device_query")
OTHERS_HEADERS = frozenset({"crt", "cccl", "nv", "nvvm.h", "fatbinary_section.h"})
"""Of the wheels' one include folder, what belongs to other packages than cudart's."""

ACTIVATE = """\
_be_target="${CONDA_PREFIX}/targets/x86_64-linux"
export CFLAGS="${CFLAGS:-} -I${_be_target}/include -I${_be_target}/include/cccl"
export CXXFLAGS="${CXXFLAGS:-} -I${_be_target}/include -I${_be_target}/include/cccl"
export LDFLAGS="${LDFLAGS:-} -L${_be_target}/lib -L${_be_target}/lib/stubs"
export NVCC_PREPEND_FLAGS="${NVCC_PREPEND_FLAGS:-} -ccbin=${CXX}"
unset _be_target
"""
PROFILE = """
TOP              = $(_HERE_)/../$(_TARGET_DIR_)

CICC_PATH        = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice

LD_LIBRARY_PATH += $(TOP)/lib:
PATH            += $(TOP)/bin:$(CICC_PATH):$(TOP)/../../bin:$(TOP)/../../$(_NVVM_BRANCH_)/bin:

INCLUDES        +=  "-I$(TOP)/include" $(_SPACE_)
SYSTEM_INCLUDES +=  "-isystem" "$(TOP)/include/cccl" $(_SPACE_)

LIBRARIES        =+ $(_SPACE_) "-L$(TOP)/lib/stubs" "-L$(TOP)/lib"

CUDAFE_FLAGS    +=
PTXAS_FLAGS     +=
"""


NONE: Mapping[str, str] = {}


class Row(NamedTuple):
    """A package: the source of each of its files in the wheels, the target of each of its links."""

    name: str
    files: Mapping[str, str] = NONE
    links: Mapping[str, str] = NONE
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    noarch: Literal["generic"] | None = None


NOARCH: Literal["generic"] = "generic"
STATIC = ("libcudart_static.a", "libcudadevrt.a")
ROWS = (
    Row("cuda-crt-tools", {"bin/crt": "bin/crt"}),
    Row("cuda-crt-dev_linux-64", {f"{TARGET}/include/crt": "include/crt"}, noarch=NOARCH),
    Row("cuda-nvvm-tools", {name: name for name in ("nvvm/bin", "nvvm/libdevice")}),
    Row("cuda-nvvm-impl", {"nvvm/include/nvvm.h": "include/nvvm.h", "nvvm/lib64/libnvvm.so.4": "lib/libnvvm.so.4"}),
    Row("cuda-nvvm-dev_linux-64", links={f"{TARGET}/nvvm": "../../nvvm"}, noarch=NOARCH),
    Row(
        "cuda-nvcc-tools",
        {f"bin/{tool}": f"bin/{tool}" for tool in TOOLS},
        depends=("cuda-crt-tools", "cuda-nvvm-tools"),
        constrains=(GCC,),
    ),
    Row(
        "cuda-nvcc-dev_linux-64",
        {f"{TARGET}/include/fatbinary_section.h": "include/fatbinary_section.h"},
        {f"{TARGET}/bin/nvcc": "../../../bin/nvcc"},
        ("cuda-crt-dev_linux-64", "cuda-nvvm-dev_linux-64"),
        (GCC,),
        NOARCH,
    ),
    Row("cuda-cudart_linux-64", {f"{TARGET}/lib/libcudart.so.13": "lib/libcudart.so.13"}, noarch=NOARCH),
    Row(
        "cuda-cudart",
        links={"lib/libcudart.so.13": f"../{TARGET}/lib/libcudart.so.13"},
        depends=("cuda-cudart_linux-64",),
    ),
    Row("cuda-cudart-static_linux-64", {f"{TARGET}/lib/{name}": f"lib/{name}" for name in STATIC}, noarch=NOARCH),
    Row("cuda-cccl_linux-64", {f"{TARGET}/include/cccl": "include/cccl"}, noarch=NOARCH),
    Row(
        "cuda-cudart-dev_linux-64",
        {f"{TARGET}/include": "include"},
        {f"{TARGET}/lib/libcudart.so": "libcudart.so.13"},
        ("cuda-cudart-static_linux-64", "cuda-cccl_linux-64", "cuda-cudart_linux-64"),
        noarch=NOARCH,
    ),
    Row(
        "cuda-cudart-dev",
        links={"lib/libcudart.so": f"../{TARGET}/lib/libcudart.so"},
        depends=("cuda-cudart", "cuda-cudart-dev_linux-64"),
    ),
    Row(
        "cuda-nvcc-impl",
        depends=("cuda-nvcc-tools", "cuda-nvcc-dev_linux-64", "cuda-nvvm-impl", "cuda-cudart-dev"),
        constrains=(GCC,),
    ),
    Row(
        "cuda-nvcc_linux-64",
        depends=("cuda-nvcc-dev_linux-64", "cuda-cudart-dev_linux-64", "cuda-nvcc-tools", "cuda-nvcc-impl"),
    ),
    Row("cuda-nvcc", depends=("cuda-nvcc_linux-64", "gcc_linux-64", "gxx_linux-64")),
)


def missing() -> str | None:
    """What of the wheels this environment lacks, or None."""
    installed = {distribution.name for distribution in importlib.metadata.distributions()}
    absent = [name for name in WHEELS if name not in installed]
    return f"not installed: {', '.join(absent)}; they come with the extra cuda13" if absent else None


def add_cuda(channel: Channel) -> None:
    """Add a CUDA toolkit and the packages that say its version."""
    root = Path(sysconfig.get_path("purelib"), "nvidia", "cu13")
    version = importlib.metadata.version("nvidia-cuda-nvcc")
    major, minor = map(int, version.split(".")[:2])
    release = f"{major}.{minor}"
    driver = (f"__cuda >={major}", f"cudatoolkit {release}|{release}.*")
    channel.add(Package("cuda-version", release, constrains=driver, noarch="generic"))
    same = f"cuda-version >={release},<{major}.{minor + 1}.0a0"
    texts = {
        "cuda-nvcc-tools": {"bin/nvcc.profile": channel.text(PROFILE)},
        "cuda-nvcc_linux-64": {"etc/conda/activate.d/~cuda-nvcc_activate.sh": channel.text(ACTIVATE)},
    }
    for row in ROWS:
        links = {path: channel.link(target) for path, target in row.links.items()}
        package = Package(row.name, version, (*row.depends, same), row.constrains, noarch=row.noarch)
        channel.add(package, _files(channel, root, row) | links | texts.get(row.name, {}))


def _files(channel: Channel, root: Path, row: Row) -> dict[str, Path]:
    """The files of a row; those that wheels hold without the run bit get it where it is needed."""
    found: dict[str, Path] = {}
    for path, source in row.files.items():
        place = root / source
        without = OTHERS_HEADERS if source == "include" else frozenset()
        found |= tree(place, path, without=without) if place.is_dir() else {path: place}
    for path, file in found.items():
        if path.startswith(("bin/", "nvvm/bin/")) and not os.access(file, os.X_OK):
            found[path] = channel.binary(file.read_bytes())
    return found
