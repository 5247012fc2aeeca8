"""Parsers of files and of the tools' output. They return versions, limits and paths. Pure."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from be_toolchain.arch import Arch
from be_toolchain.values import Family, HostLimits


def release_of(version: str) -> str:
    """Return the CUDA release that a component's version belongs to; empty for an empty version.

    Examples
    --------
    >>> release_of("13.0.88")
    '13.0'
    """
    return ".".join(version.split(".")[:2])


def version_key(version: str) -> tuple[int, ...]:
    """Return the numbers in the version of a compiler, a driver or a CUDA release, for comparing.

    Versions of Python distributions, which may be pre-releases, are compared by `packaging`.

    Examples
    --------
    >>> version_key("12.9.86") < version_key("13.0")
    True
    """
    return tuple(int(number) for number in re.findall(r"\d{1,18}", version))


class ToolVersion(NamedTuple):
    """The version that nvcc, or one of its tools, prints for ``--version``."""

    version: str
    build: str = ""


def parse_tool_version(text: str) -> ToolVersion | None:
    """Read the ``--version`` text of nvcc, ptxas, cudafe++, fatbinary or nvlink.

    Returns
    -------
    ToolVersion or None
        The version; None if the text names no release.

    Examples
    --------
    >>> parse_tool_version("Cuda compilation tools, release 13.0, V13.0.88").version
    '13.0.88'
    """
    match = re.search(r"release (\d+\.\d+), V(\d+\.\d+\.\d+)", text)
    if match is None:
        return None
    build = re.search(r"^Build (\S+)", text, re.MULTILINE)
    return ToolVersion(version=match[2], build=build[1] if build else "")


class HostVersion(NamedTuple):
    """The version and target that a C++ compiler prints for ``-v``."""

    family: Family
    version: str
    target: str
    banner: str
    install_file: Path | None = None


def parse_host_version(text: str) -> HostVersion | None:
    r"""Read the ``-v`` text of a gcc or clang.

    Returns
    -------
    HostVersion or None
        The version; None if the text is of neither compiler.

    Examples
    --------
    >>> parse_host_version("Target: x86_64-linux-gnu\ngcc version 12.2.0 (Debian 12.2.0-14)").version
    '12.2.0'
    """
    match = re.search(r"^.*?\b(gcc|clang) version (\d+(?:\.\d+)*).*$", text, re.MULTILINE)
    target = re.search(r"^Target: (\S+)", text, re.MULTILINE)
    if match is None:
        return None
    family: Family = "clang" if match[1] == "clang" else "gcc"
    wrapper = re.search(r"^COLLECT_LTO_WRAPPER=(.+)$", text, re.MULTILINE)
    folder = re.search(r"^InstalledDir: (.+)$", text, re.MULTILINE)
    installed = Path(wrapper[1].strip()) if wrapper else Path(folder[1].strip()) / "clang" if folder else None
    zig = " (zig)" if folder and "zig" in Path(folder[1]).name and "zig" not in match[0] else ""
    return HostVersion(
        family=family,
        version=match[2],
        target=target[1] if target else "",
        banner=match[0].strip() + zig,
        install_file=installed,
    )


class DryRun(NamedTuple):
    """The folders of nvcc's parts according to ``nvcc --dryrun``; empty or None if the output lacks them."""

    here: Path | None = None
    top: Path | None = None
    cicc_dir: Path | None = None
    libdevice_dir: Path | None = None
    include_dirs: tuple[Path, ...] = ()
    library_dirs: tuple[Path, ...] = ()


def parse_dryrun(text: str) -> DryRun:
    r"""Read the variables that ``nvcc --dryrun`` prints before its commands.

    Examples
    --------
    >>> parse_dryrun("#$ _HERE_=/opt/cuda/bin\n#$ TOP=/opt/cuda/bin/..").top.as_posix()
    '/opt/cuda'
    """
    values = dict(re.findall(r"^#\$ ([A-Z_]+)=(.*)$", text, re.MULTILINE))
    return DryRun(
        here=_clean_path(values.get("_HERE_")),
        top=_clean_path(values.get("TOP")),
        cicc_dir=_clean_path(values.get("CICC_PATH")),
        libdevice_dir=_clean_path(values.get("NVVMIR_LIBRARY_DIR")),
        include_dirs=_flag_paths("-I", values.get("INCLUDES")) + _flag_paths("-isystem", values.get("SYSTEM_INCLUDES")),
        library_dirs=_flag_paths("-L", values.get("LIBRARIES")),
    )


def _clean_path(text: str | None) -> Path | None:
    """Return an absolute path without its `..`; None for no text."""
    import os.path

    return Path(os.path.normpath(text.strip())) if text and text.strip().startswith("/") else None


def _flag_paths(flag: str, text: str | None) -> tuple[Path, ...]:
    """Return the absolute folders that follow `flag` in a shell-quoted list."""
    import shlex

    try:
        words = shlex.split(text or "")
    except ValueError:
        return ()
    joined = [word.removeprefix(flag) for word in words if word.startswith(flag) and word != flag]
    apart = [after for word, after in pairwise(words) if word == flag]
    cleaned = (_clean_path(word) for word in joined + apart)
    return tuple(path for path in cleaned if path is not None)


def parse_archs_listed(text: str) -> tuple[Arch, ...]:
    r"""Find every ``compute_XX`` in the text of ``nvcc --list-gpu-arch`` or ``nvcc --help``, sorted.

    Examples
    --------
    >>> [arch.sm for arch in parse_archs_listed("compute_90\n'compute_90a'")]
    ['sm_90', 'sm_90a']
    """
    return tuple(sorted({Arch.parse(number) for number in re.findall(r"\bcompute_(\d{2,3}[af]?)\b", text)}))


def parse_sm_listed(text: str) -> tuple[Arch, ...]:
    r"""Find every ``sm_XX`` that ``ptxas --help`` or ``clang --target=nvptx64 --print-supported-cpus`` prints, sorted.

    Examples
    --------
    >>> [arch.sm for arch in parse_sm_listed("\tsm_90\n\tsm_90a\n")]
    ['sm_90', 'sm_90a']
    """
    return tuple(sorted({Arch.parse(number) for number in re.findall(r"\bsm_(\d{2,3}[af]?)\b", text)}))


def parse_host_limits(text: str) -> HostLimits:
    r"""Read the limits in a toolkit's ``crt/host_config.h``.

    Examples
    --------
    >>> parse_host_limits("#if __GNUC__ > 15\n").gcc_max
    15
    """
    gcc = re.search(r"^#\s*if\s+\(?__GNUC__\s*>\s*(\d{1,9})\b", text, re.MULTILINE)
    clang = re.search(
        r"^#\s*if\s+\(__clang_major__\s*>=\s*(\d{1,9})\)\s*\|\|\s*\(__clang_major__\s*<\s*(\d{1,9})\)[^\n]*\n"
        r"#error\s+-- unsupported clang version",
        text,
        re.MULTILINE,
    )
    return HostLimits(
        gcc_max=int(gcc[1]) if gcc else None,
        clang_min=int(clang[2]) if clang else None,
        clang_max=int(clang[1]) - 1 if clang else None,
    )


LIBC_CLASHES = (("cospi", "2.41"), ("rsqrt", "2.42"))
"""Functions that CUDA declared first, and the glibc that declares them with ``noexcept``.

See https://github.com/NVIDIA/cuda-samples/issues/378 and https://github.com/NixOS/nixpkgs/pull/498678.
"""


def parse_libc_below(text: str) -> str:
    r"""Return the first glibc that a toolkit's ``crt/math_functions.h`` contradicts; empty for none.

    nvcc then fails in any source that includes ``math.h``: ``exception specification is incompatible``.

    Examples
    --------
    >>> parse_libc_below("extern double  rsqrt(double x);\nextern double cospi(double x) __NV_SPECIFIER;")
    '2.42'
    """
    for function, libc in LIBC_CLASHES:
        if re.search(rf"^extern\b[^\n(]*\bdouble\s+{function}\(double x\);", text, re.MULTILINE):
            return libc
    return ""


def parse_cccl_version(text: str) -> str:
    """Read the release in ``#define CCCL_VERSION``, or in older ``THRUST_VERSION`` and ``CUB_VERSION``.

    Examples
    --------
    >>> parse_cccl_version("#define CCCL_VERSION 3000001")
    '3.0.1'
    >>> parse_cccl_version("#define CUB_VERSION 200302")
    '2.3.2'
    """
    match = re.search(r"^#define\s+(CCCL|CUB|THRUST)_VERSION\s+(\d{1,9})\b", text, re.MULTILINE)
    if match is None:
        return ""
    number, thousand = int(match[2]), 1000 if match[1] == "CCCL" else 100
    major, minor = divmod(number // thousand, 1000)
    return f"{major}.{minor}.{number % thousand}"


def parse_dpkg_status(text: str) -> dict[str, str]:
    r"""Read the installed packages and their upstream versions from dpkg's ``status``.

    Examples
    --------
    >>> parse_dpkg_status("Package: nvidia-cuda-toolkit\nVersion: 12.4.131~12.4.1-2\n\nPackage: dash\nVersion: 1:0.5-1")
    {'nvidia-cuda-toolkit': '12.4.131', 'dash': '0.5'}
    """
    found = re.findall(r"^Package: (\S+)\n(?:[^\n]+\n)*?Version: (?:\d+:)?([0-9.]+)", text, re.MULTILINE)
    return dict(found)


def parse_cudart_version(text: str) -> str:
    """Read the release in ``#define CUDART_VERSION``; empty when there is none.

    Examples
    --------
    >>> parse_cudart_version("#define CUDART_VERSION  12090")
    '12.9'
    """
    match = re.search(r"^#define\s+CUDART_VERSION\s+(\d{1,9})\b", text, re.MULTILINE)
    return render_cuda_number(int(match[1])) if match else ""


def render_cuda_number(number: int) -> str:
    """Render CUDA's encoding of a release, ``13000``, as text.

    Examples
    --------
    >>> render_cuda_number(12090)
    '12.9'
    """
    return f"{number // 1000}.{number % 1000 // 10}"


def parse_version_json(text: str) -> dict[str, str]:
    """Read the versions in a toolkit's ``version.json`` by their keys; empty for any other text.

    Examples
    --------
    >>> parse_version_json('{"cuda_nvcc": {"name": "CUDA NVCC", "version": "12.9.86"}}')
    {'cuda_nvcc': '12.9.86'}
    """
    import json

    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    rows = data.items() if isinstance(data, dict) else ()
    return {key: row["version"] for key, row in rows if isinstance(row, dict) and isinstance(row.get("version"), str)}


def parse_conda_meta(names: tuple[str, ...]) -> dict[str, str]:
    """Read the installed packages and versions from the names in a prefix's ``conda-meta``.

    Examples
    --------
    >>> parse_conda_meta(("cuda-nvvm-tools-13.0.88-h4bc722e_0.json",))
    {'cuda-nvvm-tools': '13.0.88'}
    """
    found = (re.fullmatch(r"(.+)-([^-]+)-[^-]+\.json", name) for name in names)
    return {match[1]: match[2] for match in found if match}
