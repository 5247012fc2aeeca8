"""The machine's Linux distribution, and the commands that install compilers on it."""

from __future__ import annotations

import re
from pathlib import Path

from be_toolchain.machine.system import System

_COMMANDS = (
    (("debian", "ubuntu"), "apt-get install g++", "apt-get install clang-19 (or another from clang-16 on)"),
    (("fedora", "rhel", "centos"), "dnf install gcc-c++", "dnf install clang"),
    (("suse",), "zypper install gcc-c++", "zypper install clang"),
    (("arch",), "pacman -S gcc", "pacman -S clang"),
    (("alpine",), "apk add g++", "apk add clang"),
)
"""By words of ``ID`` and ``ID_LIKE`` in ``/etc/os-release``: for the system's own C++ compiler, and for a clang that
compiles CUDA."""

_CONDA = ("conda install gxx", "conda install -c conda-forge clangxx")
"""The same for all other distributions."""


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
    return _commands(distribution)[0]


def clang_package(distribution: str) -> str:
    """Return the command that installs a clang that compiles CUDA.

    Examples
    --------
    >>> clang_package("fedora")
    'dnf install clang'
    """
    return _commands(distribution)[1]


def _commands(distribution: str) -> tuple[str, str]:
    """Return the commands in the row of a distribution."""
    words = set(distribution.split())
    return next(((host, clang) for names, host, clang in _COMMANDS if words.intersection(names)), _CONDA)
