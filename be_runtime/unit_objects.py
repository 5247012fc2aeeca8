"""The compiled units of a folder, kept in the cache one by one: an edited file costs its own compile and the link.

A unit's object is found by the commands and the generated text that make it, and is valid while every file that its
compiler read is unchanged, as a module is. It serves the modules that are built from it and is never loaded itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from be_toolchain import Toolchain

from .build.dependencies import read_from_outside
from .build.graph import object_path
from .build.plan import Edge, UnitBuild
from .cache import BuildOutput, CacheKey, Recorded, Store, make_key
from .cache.publish import record_files
from .looked_for import HeaderSearch
from .options import BuildRequest

_OBJECT = "unit.o"


class UnitObjects(NamedTuple):
    """The kept objects of one request's units.

    Parameters
    ----------
    request : BuildRequest
    headers : HeaderSearch
        Where its compilers look for headers.
    toolchain : Toolchain
    store : Store
        Holds them, as it holds the module.
    force : bool
        Whether everything is compiled again.
    """

    request: BuildRequest
    headers: HeaderSearch
    toolchain: Toolchain
    store: Store
    force: bool

    def reuse(self, units: Mapping[str, UnitBuild], staging: Path) -> dict[str, tuple[Path, ...]]:
        """Put the objects that need not be compiled where the linker expects them.

        Returns
        -------
        dict of str to tuple of Path
            For the stem of each such unit, what its compiler read.
        """
        if self.force:
            return {}
        found = ((stem, self._place(build, staging / object_path(stem))) for stem, build in units.items())
        return {stem: read for stem, read in found if read is not None}

    def _place(self, build: UnitBuild, target: Path) -> tuple[Path, ...] | None:
        entry = self.store.get(self._key(build))
        if entry is None:
            return None
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(entry.output(_OBJECT), target)
        except FileNotFoundError:  # cleared away since it was found
            return None
        return tuple(map(Path, entry.manifest.dependencies.paths))

    def publish(self, stem: str, build: UnitBuild, compiled: Path, read: Sequence[Path], recorded: Recorded) -> None:
        """Keep one unit's object.

        Parameters
        ----------
        stem, build : str, UnitBuild
            The unit.
        compiled : Path
            Its object.
        read : sequence of Path
            What its compiler read.
        recorded : Recorded
            What was hashed of it.
        """
        units = [unit for unit in self.request.units if unit.stem == stem]
        headers = self.headers.of_units(units, read)

        def copy(staging: Path) -> BuildOutput:
            shutil.copyfile(compiled, staging / _OBJECT)
            dependencies = (*read, *headers.present)
            return BuildOutput(outputs=(_OBJECT,), dependencies=dependencies, absent=headers.absent, recorded=recorded)

        self.store.keep(self._key(build), copy, force=self.force)

    def _key(self, build: UnitBuild) -> CacheKey:
        return make_key(
            "object",
            ("name", self.request.name),
            ("commands", [part for edge in build.edges for part in (*edge.argv, "")]),
            ("files", [part for file in build.files for part in file]),
            ("library_path", build.library_path),
            ("toolchain", self.toolchain.fingerprint),
        )


class Keeper:
    """Keeps the objects of one build as they are compiled, while others still are.

    Parameters
    ----------
    objects : UnitObjects
    units : mapping of str to UnitBuild
        Those that are compiled, by stem.
    staging : Path
        The build folder.
    began_ns : int
        When the build began.

    Attributes
    ----------
    read : dict of str to tuple of Path
        By stem, what the compilers of the kept units read.
    recorded : Recorded or None
        What was hashed of it.
    """

    def __init__(self, objects: UnitObjects, units: Mapping[str, UnitBuild], staging: Path, began_ns: int) -> None:
        self.read: dict[str, tuple[Path, ...]] = {}
        self.recorded: Recorded | None = None
        self._objects, self._staging, self._began_ns = objects, staging, began_ns
        self._units = {object_path(stem): (stem, build) for stem, build in units.items()}

    def keep(self, edge: Edge) -> None:
        """Keep the object that a command has made, if it is a unit's."""
        name = edge.outputs[0]
        if name in self._units:
            stem, build = self._units[name]
            self.read[stem] = read_from_outside(build.depfiles, self._staging)
            self.recorded = record_files(self.read[stem], self._began_ns, self.recorded)
            self._objects.publish(stem, build, self._staging / name, self.read[stem], self.recorded)

    def check(self) -> None:
        """Notice what has changed since it was hashed: another unit may have been compiled with it."""
        paths = dict.fromkeys(path for read in self.read.values() for path in read)
        self.recorded = record_files(paths, self._began_ns, self.recorded)
