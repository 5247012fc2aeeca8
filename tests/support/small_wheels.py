"""Wheels with the names, versions and layout of NVIDIA's, of which a search takes the programs for real; a few KB each.

Installing them takes pip little more than its own time, so that an installer can be killed in it many times.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

PATCH = {"13.0": "13.0.88", "13.5": "13.5.37"}
FILLER = {"nvidia-cuda-cccl": 600}
"""Files without a use, after the others: pip unpacks this wheel last, and all that time a whole toolkit seems there."""

VERSION = 'echo "Cuda compilation tools, release {release}, V{version}"'
NVCC = """#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
case "$*" in
  *--version*) {version} ;;
  *--list-gpu-arch*) echo compute_90 ;;
  *--help*) echo "Allowed values: 'compute_90'" ;;
  *--dryrun*)
    echo "#\\$ _HERE_=$here" >&2
    echo "#\\$ TOP=$here/.." >&2
    echo "#\\$ NVVMIR_LIBRARY_DIR=$here/../nvvm/libdevice" >&2
    echo "#\\$ INCLUDES=\\"-I$here/../include\\"" >&2
    echo "#\\$ LIBRARIES= \\"-L$here/../lib\\"" >&2 ;;
esac
"""
ROOT = "nvidia/cu13"


def contents(release: str) -> dict[str, dict[str, str]]:
    """The files of each wheel; those in a folder called bin are programs."""
    version = VERSION.format(release=release, version=PATCH[release])
    tool = f"#!/bin/sh\n{version}\n"
    number = int(release.replace(".", "")) * 10 + 11700
    return {
        "nvidia-cuda-nvcc": {
            "bin/nvcc": NVCC.replace("{version}", version),
            "bin/nvcc.profile": "TOP = $(_HERE_)/..\n",
            **{f"bin/{name}": tool for name in ("ptxas", "cudafe++", "fatbinary", "nvlink")},
        },
        "nvidia-nvvm": {"nvvm/bin/cicc": tool, "nvvm/libdevice/libdevice.10.bc": "BC"},
        "nvidia-cuda-crt": {"include/crt/host_config.h": "", "include/crt/math_functions.h": ""},
        "nvidia-cuda-runtime": {
            "include/cuda_runtime.h": "",
            "include/cuda_runtime_api.h": f"#define CUDART_VERSION {number}\n",
            "lib/libcudart_static.a": "",
            "lib/libcudart.so.13": "",
        },
        "nvidia-cuda-cccl": {"include/cccl/nv/target": ""},
    }


def write_wheels(folder: Path) -> Path:
    """Write a whole release 13.0, with the package that pins it, and three parts of 13.5."""
    parts = contents("13.0")
    extras = {"nvcc": "nvidia-cuda-nvcc", "nvvm": "nvidia-nvvm", "crt": "nvidia-cuda-crt"}
    extras |= {"cudart": "nvidia-cuda-runtime", "cccl": "nvidia-cuda-cccl"}
    pins = "".join(f"Requires-Dist: {name}=={PATCH['13.0']}; extra == '{extra}'\n" for extra, name in extras.items())
    provided = "".join(f"Provides-Extra: {extra}\n" for extra in extras)
    _write(folder, "cuda-toolkit", "13.0.2", {}, provided + pins)
    for name, files in parts.items():
        _write(folder, name, PATCH["13.0"], files)
    for name, files in contents("13.5").items():
        if name in ("nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime"):
            _write(folder, name, PATCH["13.5"], files)
    return folder


def _write(folder: Path, name: str, version: str, files: dict[str, str], metadata: str = "") -> None:
    """Write one wheel."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    rows = {f"{ROOT}/{path}": text for path, text in files.items()}
    rows |= {f"{ROOT}/filler/{name}/{number}.h": f"// {version}\n" for number in range(FILLER.get(name, 0))}
    rows[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}"
    rows[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in rows.items())
    rows[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for path, text in rows.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100755 if "/bin/" in path else 0o100644) << 16
            wheel.writestr(entry, text)


def _digest(text: str) -> str:
    """As a RECORD has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
