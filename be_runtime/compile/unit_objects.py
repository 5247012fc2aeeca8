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
from be_runtime.compile.inputs.observe import LookedAt
from be_runtime.compile.plan.build_plan import UnitBuild
from be_runtime.own_files import by_name
from be_runtime.request.options import BuildRequest
from be_toolchain import Toolchain

_OBJECT = "unit.o"


class UnitObjects(NamedTuple):
    """The kept objects of one request's units.

    Parameters
    ----------
    request : BuildRequest
    toolchain : Toolchain
    programs : tuple of str
        The assembler and linkers that PATH finds.
    module_store : Store
        Holds them, as it holds the module.
    force : bool
        Whether everything is compiled again.
    """

    request: BuildRequest
    toolchain: Toolchain
    programs: tuple[str, ...]
    module_store: Store
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
        found = ((stem, self._place(build, staging / build.unit.object)) for stem, build in units.items())
        return {stem: looked_at for stem, looked_at in found if looked_at is not None}

    def _place(self, build: UnitBuild, target: Path) -> LookedAt | None:
        entry = self.module_store.get(self._key(build))
        if entry is None:
            return None
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(entry.output(_OBJECT), target)
        except FileNotFoundError:  # cleared away since it was found
            return None
        return LookedAt.of(entry.manifest)

    def publish(self, build: UnitBuild, folder: Path, looked_at: LookedAt, recorded: Recorded) -> None:
        """Keep one unit's object.

        Parameters
        ----------
        build : UnitBuild
            The unit.
        folder : Path
            The build folder, with its object.
        looked_at : LookedAt
            What its commands looked at.
        recorded : Recorded
            What was hashed of it.
        """

        def copy(staging: Path) -> BuildOutput:
            shutil.copyfile(folder / build.unit.object, staging / _OBJECT)
            return BuildOutput((_OBJECT,), *looked_at, recorded=recorded)

        self.module_store.keep(self._key(build), copy, force=self.force)

    def _key(self, build: UnitBuild) -> CacheKey:
        return make_key(
            "object",
            ("name", self.request.name),
            ("commands", [by_name(part) for edge in build.edges for part in (*edge.argv, "")]),
            ("files", [part for file in build.files for part in file]),
            ("library_path", build.library_path),
            ("toolchain", self.toolchain.fingerprint),
            ("programs", self.programs),
        )
