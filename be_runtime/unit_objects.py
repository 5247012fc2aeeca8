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
from .build.plan import UnitBuild
from .build.timing import read_ninja_log
from .cache import BuildOutput, CacheKey, Recorded, Store, make_key, shadowing_paths
from .cache.publish import record_files
from .options import BuildRequest

_OBJECT = "unit.o"


class UnitObjects(NamedTuple):
    """The kept objects of one request's units.

    Parameters
    ----------
    request : BuildRequest
    toolchain : Toolchain
    store : Store
        Holds them, as it holds the module.
    force : bool
        Whether everything is compiled again.
    """

    request: BuildRequest
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

    def keep(
        self, units: Mapping[str, UnitBuild], staging: Path, began_ns: int
    ) -> tuple[dict[str, tuple[Path, ...]], Recorded]:
        """Keep the objects that a build has compiled; those of commands that failed are not there.

        Parameters
        ----------
        units : mapping of str to UnitBuild
            Those that were compiled.
        began_ns : int
            When the build began.

        Returns
        -------
        tuple of (dict of str to tuple of Path, Recorded)
            What each unit's compiler read, and what was hashed of it.
        """
        finished = read_ninja_log(staging)
        made = {stem: build for stem, build in units.items() if object_path(stem) in finished}
        read = {stem: read_from_outside(build.depfiles, staging) for stem, build in made.items()}
        recorded = record_files(dict.fromkeys(path for paths in read.values() for path in paths), began_ns)
        for stem, build in made.items():
            self._keep(stem, self._key(build), staging / object_path(stem), read[stem], recorded)
        return read, recorded

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

    def _keep(self, stem: str, key: CacheKey, compiled: Path, read: Sequence[Path], recorded: Recorded) -> None:
        own = [unit.path.parent for unit in self.request.units if unit.stem == stem and unit.path is not None]
        absent = shadowing_paths(read, (*own, *self.request.compile.include_paths))

        def copy(staging: Path) -> BuildOutput:
            shutil.copyfile(compiled, staging / _OBJECT)
            return BuildOutput(outputs=(_OBJECT,), dependencies=tuple(read), absent=absent, recorded=recorded)

        self.store.get_or_build(key, copy, force=self.force)

    def _key(self, build: UnitBuild) -> CacheKey:
        return make_key(
            "object",
            ("name", self.request.name),
            ("commands", [part for edge in build.edges for part in (*edge.argv, "")]),
            ("files", [part for file in build.files for part in file]),
            ("library_path", build.library_path),
            ("toolchain", self.toolchain.fingerprint),
        )
