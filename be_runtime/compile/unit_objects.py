"""The compiled units of a folder, kept in the cache one by one: an edited file costs its own compile and the link.

A unit's object is found by the commands and the generated text that make it, and is valid while every file that its
compiler read is unchanged, as a module is. It serves the modules that are built from it and is never loaded itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from be_runtime.cache import BuildOutput, CacheKey, Recorded, Store, make_key
from be_runtime.cache.publish import record_files
from be_runtime.compile.graph import object_path
from be_runtime.compile.inputs.observe import LookedAt, Observer
from be_runtime.compile.plan.build_plan import Edge, UnitBuild
from be_runtime.request.options import BuildRequest
from be_toolchain import Toolchain

_OBJECT = "unit.o"


class UnitObjects(NamedTuple):
    """The kept objects of one request's units.

    Parameters
    ----------
    request : BuildRequest
    observer : Observer
        Watches its commands.
    kept : LookedAt
        What was looked at to make what the commands take from the cache.
    toolchain : Toolchain
    programs : tuple of str
        The assembler and linkers that PATH finds.
    store : Store
        Holds them, as it holds the module.
    force : bool
        Whether everything is compiled again.
    """

    request: BuildRequest
    observer: Observer
    kept: LookedAt
    toolchain: Toolchain
    programs: tuple[str, ...]
    store: Store
    force: bool

    def reuse(self, units: Mapping[str, UnitBuild], staging: Path) -> dict[str, LookedAt]:
        """Put the objects that need not be compiled where the linker expects them.

        Returns
        -------
        dict of str to LookedAt
            For the stem of each such unit, what its compiler looked at.
        """
        if self.force:
            return {}
        found = ((stem, self._place(build, staging / object_path(stem))) for stem, build in units.items())
        return {stem: looked_at for stem, looked_at in found if looked_at is not None}

    def _place(self, build: UnitBuild, target: Path) -> LookedAt | None:
        entry = self.store.get(self._key(build))
        if entry is None:
            return None
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(entry.output(_OBJECT), target)
        except FileNotFoundError:  # cleared away since it was found
            return None
        return LookedAt.of(entry.manifest)

    def publish(self, build: UnitBuild, compiled: Path, looked_at: LookedAt, recorded: Recorded) -> None:
        """Keep one unit's object.

        Parameters
        ----------
        build : UnitBuild
            The unit.
        compiled : Path
            Its object.
        looked_at : LookedAt
            What its commands looked at.
        recorded : Recorded
            What was hashed of it.
        """

        def copy(staging: Path) -> BuildOutput:
            shutil.copyfile(compiled, staging / _OBJECT)
            return BuildOutput((_OBJECT,), *looked_at, recorded=recorded)

        self.store.keep(self._key(build), copy, force=self.force)

    def looked_at(self, build: UnitBuild) -> LookedAt:
        """What the commands of a unit looked at, and what was kept of that for them."""
        return LookedAt.merged((self.observer.looked_at(build.edges), self.kept))

    def _key(self, build: UnitBuild) -> CacheKey:
        return make_key(
            "object",
            ("name", self.request.name),
            ("commands", [part for edge in build.edges for part in (*edge.argv, "")]),
            ("files", [part for file in build.files for part in file]),
            ("library_path", build.library_path),
            ("toolchain", self.toolchain.fingerprint),
            ("programs", self.programs),
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
    recorded : Recorded
        What is known of files.

    Attributes
    ----------
    looked_at : dict of str to LookedAt
        By stem, what the commands of the kept units looked at.
    recorded : Recorded
        What was hashed of it, and before.
    """

    def __init__(self, objects: UnitObjects, units: Mapping[str, UnitBuild], staging: Path, recorded: Recorded) -> None:
        self.looked_at: dict[str, LookedAt] = {}
        self.recorded = recorded
        self._objects, self._staging = objects, staging
        self._units = {object_path(stem): (stem, build) for stem, build in units.items()}

    def keep(self, edge: Edge) -> None:
        """Keep the object that a command has made, if it is a unit's."""
        name = edge.outputs[0]
        if name in self._units:
            stem, build = self._units[name]
            looked_at = self._objects.looked_at(build)
            self.looked_at[stem] = looked_at
            self.recorded = record_files(looked_at.files, self.recorded)
            self._objects.publish(build, self._staging / name, looked_at, self.recorded)

    def check(self) -> None:
        """Notice what has changed since it was hashed: another unit may have been compiled with it."""
        self.recorded = record_files(LookedAt.merged(self.looked_at.values()).files, self.recorded)
