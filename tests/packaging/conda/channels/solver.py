"""What a conda client does with channels: solve under some driver, install into a prefix, activate it."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import rattler
from rattler.shell import ActivationVariables, Shell, activate

Records = dict[str, rattler.RepoDataRecord]

SYSTEM_PATH = "/usr/bin:/bin"


def virtual_packages(cuda: str | None) -> list[rattler.GenericVirtualPackage]:
    """A Linux machine, with a driver for some CUDA or without one."""
    versions = {"__unix": "0", "__linux": "6.1", "__glibc": "2.36"} | ({"__cuda": cuda} if cuda else {})
    return [
        rattler.GenericVirtualPackage(rattler.PackageName(name), rattler.Version(version), rattler.BuildString("0"))
        for name, version in versions.items()
    ]


def solve(channels: Sequence[str], specs: Sequence[str], *, cuda: str | None = None) -> Records:
    """What would be installed, by name.

    Raises
    ------
    rattler.exceptions.SolverError
        Nothing satisfies the specs; the message says what stands against what.
    """

    async def answer() -> list[rattler.RepoDataRecord]:
        virtual = virtual_packages(cuda)
        found: list[rattler.RepoDataRecord] = await rattler.solve(channels, specs, virtual_packages=virtual)
        return found

    return {record.name.normalized: record for record in asyncio.run(answer())}


class Prefix(NamedTuple):
    """An environment in a folder.

    Parameters
    ----------
    path : Path
        The folder.
    home : Path
        The home folder of who uses it; caches are kept there.
    """

    path: Path
    home: Path

    def run(self, *command: str, activated: bool = False, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs as somebody who has nothing else; `activated`, in a shell that activated it."""
        variables: dict[str, str] = {"HOME": str(self.home), "PATH": SYSTEM_PATH, "LANG": "C.UTF-8", **environ}
        words = [str(self.path / "bin" / command[0]), *command[1:]]
        if activated:
            before = ActivationVariables(None, SYSTEM_PATH.split(os.pathsep))
            script = activate(self.path, before, Shell.bash).script
            words = ["bash", "--norc", "-c", f'{script}\nexec "$@"', "bash", *command]
        return subprocess.run(
            words, env=variables, cwd=self.home, capture_output=True, text=True, check=False, timeout=840
        )


def install(records: Records, path: Path, home: Path, cache: Path) -> Prefix:
    """Install what was solved into a fresh folder."""
    home.mkdir(exist_ok=True)
    asyncio.run(rattler.install(list(records.values()), path, cache_dir=cache, show_progress=False))
    return Prefix(path=path, home=home)


def selection(records: Mapping[str, rattler.RepoDataRecord], *names: str) -> dict[str, str]:
    """The versions of some packages, with ``cpu`` or the CUDA release of jaxlib's build."""
    found = {}
    for name in names:
        if name in records:
            record = records[name]
            found[name] = str(record.build).split("_", 1)[0] if name == "jaxlib" else str(record.version)
    return found
