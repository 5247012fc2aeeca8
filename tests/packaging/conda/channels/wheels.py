"""Installed distributions as conda packages, under the names and with the contents that conda-forge gives them."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.conda.channels.channel import Channel, Package
from tests.packaging.conda.channels.interpreter import SITE, VERSION

BUILD = f"py{VERSION.replace('.', '')}_0"
UNDERSCORED = frozenset({"ml-dtypes", "opt-einsum"})
"""conda-forge writes these names with an underscore."""

OTHERWISE = {"flatbuffers": "python-flatbuffers"}
"""conda-forge gives these names to another language's package."""

_SCRIPT = """\
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
exec "$here/python" -c 'import sys; from {module} import {function}; sys.exit({function}())' "$@"
"""


def add_with_requirements(channel: Channel, *names: str) -> None:
    """Add distributions and all that they require; ``jaxlib`` in two builds, ``ninja`` as a program."""
    pending, seen = list(names), set()
    while pending:
        name = canonicalize_name(pending.pop())
        if name in seen:
            continue
        seen.add(name)
        distribution = importlib.metadata.distribution(name)
        requirements = tuple(_requirements(distribution))
        pending += [requirement.name for requirement in requirements]
        specs = (f"{conda_name(requirement.name)} {requirement.specifier}".strip() for requirement in requirements)
        depends = (f"python {VERSION}.*", *specs)
        if name == "ninja":
            _add_ninja(channel, distribution)
        elif name == "jaxlib":
            _add_jaxlib(channel, distribution, depends)
        else:
            package = Package(conda_name(name), distribution.version, depends, build=BUILD)
            channel.add(package, dict(_files(channel, distribution)))


def conda_name(name: str) -> str:
    """What conda-forge calls a distribution."""
    canonical = canonicalize_name(name)
    return canonical.replace("-", "_") if canonical in UNDERSCORED else OTHERWISE.get(canonical, canonical)


def _requirements(distribution: importlib.metadata.Distribution) -> Iterator[Requirement]:
    """What a distribution needs without any of its extras."""
    for requirement in map(Requirement, distribution.requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def _files(channel: Channel, distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Each file's path in a package and its source; programs that start Python are made anew, without its folder."""
    root = Path(str(distribution.locate_file(""))).resolve()
    scripts = {entry.name: entry.value for entry in distribution.entry_points.select(group="console_scripts")}
    for file in distribution.files or ():
        source = Path(os.path.normpath(root / file))
        if file.suffix == ".pyc" or not source.is_file():
            continue
        if source.is_relative_to(root):
            yield f"{SITE}/{source.relative_to(root).as_posix()}", source
        elif source.name not in scripts:
            yield source.relative_to(sys.prefix).as_posix(), source
    for name, value in scripts.items():
        module, _, function = value.partition(":")
        yield f"bin/{name}", channel.text(_SCRIPT.format(module=module, function=function), program=True)


def _add_ninja(channel: Channel, distribution: importlib.metadata.Distribution) -> None:
    """conda-forge's ninja is the program alone: neither module nor metadata for pip."""
    root = Path(str(distribution.locate_file(""))).resolve()
    places = (Path(os.path.normpath(root / file)) for file in distribution.files or () if file.name == "ninja")
    program = next(path for path in places if path.is_file())
    channel.add(Package("ninja", distribution.version.partition(".post")[0]), {"bin/ninja": program})


def _add_jaxlib(channel: Channel, distribution: importlib.metadata.Distribution, depends: tuple[str, ...]) -> None:
    """conda-forge builds it for the CPU and for each CUDA, with higher numbers; here they share their files."""
    version, shared = distribution.version, "_jaxlib-files"
    channel.add(Package(shared, version, build=BUILD), dict(_files(channel, distribution)))
    depends = (*depends, f"{shared} =={version}")
    channel.add(Package("jaxlib", version, depends, build=f"cpu_{BUILD}"))
    cuda = ("__cuda", "cuda-nvcc-tools", "cuda-version >=13.0,<14")
    name = f"cuda130_{BUILD.removesuffix('_0')}_200"
    channel.add(Package("jaxlib", version, (*depends, *cuda), build=name, number=200))
