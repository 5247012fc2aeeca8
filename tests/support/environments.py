"""The rows of environments.toml, and the machines in memory that they describe."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from be_toolchain import ToolchainRequest
from tests.support.machines import Libcuda, MemorySystem

TABLE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of environments.toml, which says what each field means."""

    name: str
    machine: list[list[Any]]
    arch: str = "x86_64"
    environ: dict[str, str] = field(default_factory=dict)
    prefixes: list[str] = field(default_factory=list)
    cwd: str = ""
    libc: str = "glibc 2.36"
    gpus: list[tuple[str, int, int]] = field(default_factory=list)
    driver: int = 0
    nvcc: str = ""
    cxx: str = ""
    verdict: dict[str, str] = field(default_factory=dict)
    code: str = ""
    says: list[str] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)
    warns: list[str] | None = None
    doctor: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    exit: int | None = None

    @property
    def request(self) -> ToolchainRequest:
        nvcc, cxx = (Path(text) if text else None for text in (self.nvcc, self.cxx))
        return ToolchainRequest(need_cuda=True, nvcc=nvcc, cxx=cxx)


ROWS = tuple(Row(**row) for row in tomllib.loads(TABLE.read_text(encoding="utf-8"))["environment"])


def machine_of(row: Row) -> MemorySystem:
    machine = MemorySystem(machine=row.arch, libc=row.libc, cwd=Path(row.cwd) if row.cwd else None)
    for method, *arguments in row.machine:
        named = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
        getattr(machine, method)(*arguments, **named)
    machine.environ = {**machine.environ, **row.environ}
    if row.prefixes:
        machine.prefixes = tuple(map(Path, row.prefixes))
    if row.gpus:
        machine.libraries["libcuda.so.1"] = Libcuda(gpus=tuple(row.gpus), version=row.driver)
    return machine
