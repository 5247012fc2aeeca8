"""The machine's Linux distribution, and the commands that install compilers on it."""

from __future__ import annotations

import re
from pathlib import Path

from be_toolchain.machine.system import System

HOST_PACKAGES = (
    (("debian", "ubuntu"), "apt-get install g++"),
    (("fedora", "rhel", "centos"), "dnf install gcc-c++"),
    (("suse",), "zypper install gcc-c++"),
    (("arch",), "pacman -S gcc"),
    (("alpine",), "apk add g++"),
)
"""The system's own C++ compiler, by words of ``ID`` and ``ID_LIKE`` in ``/etc/os-release``."""

CLANG_PACKAGES = (
    (("debian", "ubuntu"), "apt-get install clang-19 (or another from clang-16 on)"),
    (("fedora", "rhel", "centos"), "dnf install clang"),
    (("suse",), "zypper install clang"),
    (("arch",), "pacman -S clang"),
    (("alpine",), "apk add clang"),
)
"""A clang that compiles CUDA, likewise."""


def distribution_of(system: System) -> str:
    """Return the machine's distribution and those that it is like, as words."""
    return parse_os_release(system.read_text(Path("/etc/os-release")) or "")


def parse_os_release(text: str) -> str:
    r"""Read ``ID`` and ``ID_LIKE`` from the text of ``/etc/os-release``, as words.

    Examples
    --------
    >>> parse_os_release('NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian')
    'ubuntu debian'
    """
    values = dict(re.findall(r"^(ID|ID_LIKE)=\"?([^\"\n]*)", text, re.MULTILINE))
    return " ".join(filter(None, (values.get("ID"), values.get("ID_LIKE"))))


def host_package(distribution: str) -> str:
    """Return the command that installs the system's C++ compiler.

    Examples
    --------
    >>> host_package("ubuntu debian")
    'apt-get install g++'
    """
    return _package_of(HOST_PACKAGES, distribution, "conda install gxx")


def clang_package(distribution: str) -> str:
    """Return the command that installs a clang that compiles CUDA.

    Examples
    --------
    >>> clang_package("fedora")
    'dnf install clang'
    """
    return _package_of(CLANG_PACKAGES, distribution, "conda install -c conda-forge clangxx")


def _package_of(rows: tuple[tuple[tuple[str, ...], str], ...], distribution: str, otherwise: str) -> str:
    """Return the command in the row of a distribution."""
    words = set(distribution.split())
    return next((command for names, command in rows if words.intersection(names)), otherwise)
