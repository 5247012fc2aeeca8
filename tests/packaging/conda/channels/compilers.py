"""Stand-ins for conda-forge's C++ compilers: their names, dependencies and activation, this machine's behind them."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.packaging.conda.channels.channel import Channel, Package

VERSION = "14.3.0"
TRIPLET = "x86_64-conda-linux-gnu"
_ACTIVATE = """\
export {variable}="${{CONDA_PREFIX}}/bin/{triplet}-{program}"
export {variable}FLAGS="-ftree-vectorize -fPIC -fstack-protector-strong -O2 -pipe -isystem ${{CONDA_PREFIX}}/include"
export LDFLAGS="-Wl,-O2 -Wl,--as-needed -Wl,-rpath,${{CONDA_PREFIX}}/lib -L${{CONDA_PREFIX}}/lib"
"""


def missing() -> str | None:
    """Why there can be no stand-ins here, or None."""
    absent = [name for name in ("gcc", "g++") if shutil.which(name) is None]
    return f"conda's compilers are stood in for by gcc and g++; not on PATH: {', '.join(absent)}" if absent else None


def add_compilers(channel: Channel) -> None:
    """Add ``gxx`` and what it depends on."""
    same = f"{VERSION}.*"
    programs = _forwarders(channel, "gcc", "cc", "gcc") | _forwarders(channel, "g++", "c++", "g++")
    channel.add(Package("gcc_impl_linux-64", VERSION), programs)
    depends = (f"gcc_impl_linux-64 {same}",)
    channel.add(Package("gcc_linux-64", VERSION, depends), _activation(channel, "gcc", "CC", "cc"))
    channel.add(Package("gxx_linux-64", VERSION, (f"gcc_linux-64 {same}",)), _activation(channel, "gxx", "CXX", "c++"))
    plain = {f"bin/{name}": channel.link(f"{TRIPLET}-{name}") for name in ("g++", "c++")}
    channel.add(Package("sysroot_linux-64", "2.28", noarch="generic"))  # this machine's C library is used
    channel.add(Package("gxx", VERSION, (f"gxx_linux-64 {same}",)), plain)


def _forwarders(channel: Channel, program: str, *names: str) -> dict[str, Path]:
    """Programs under conda's names that hand over to one of PATH."""
    found = shutil.which(program)
    assert found is not None, missing()
    script = channel.text(f'#!/bin/sh\nexec {found} "$@"\n', program=True)
    return {f"bin/{TRIPLET}-{name}": script for name in names}


def _activation(channel: Channel, package: str, variable: str, program: str) -> dict[str, Path]:
    """The script that a shell runs when the environment is activated."""
    text = _ACTIVATE.format(variable=variable, program=program, triplet=TRIPLET)
    return {f"etc/conda/activate.d/activate-{package}_linux-64.sh": channel.text(text)}
