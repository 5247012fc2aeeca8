"""The precompiled beginning of CUDA host sides, kept in the cache: made for flags that are used a second time.

A kernel that is built once gains nothing from it, and making it takes a processor as long as a small kernel takes. Who
builds with the same flags again is in an edit loop, and so is, sooner or later, who builds a folder of several files.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from be_toolchain import Toolchain
from be_toolchain.system import System

from .build.dependencies import read_from_outside
from .build.plan import UnitBuild
from .build.preamble import DEPFILE, FILES, FOLDER, STEM, make_preamble, preamble_text, use_preamble
from .cache import BuildOutput, CacheKey, Store, make_key
from .nvcc_phases import is_known, phases_for
from .options import BuildRequest

_FILES_OF_A_PROJECT = 4
"""With this many sources the preamble is made at once: beside them it costs little."""

_SCRIPT = Path(__file__).parent / "native" / "with_preamble.sh"


class Preamble(NamedTuple):
    """What a build does about the preamble.

    Parameters
    ----------
    key : CacheKey
    folder : Path or None
        Where it is kept; None when there is none.
    making : UnitBuild or None
        The commands that make it beside the module, if they are worth it.
    """

    key: CacheKey
    folder: Path | None
    making: UnitBuild | None

    def use(self, build: UnitBuild) -> UnitBuild:
        """A unit's commands with the preamble, if there is one."""
        return build if self.folder is None else use_preamble(build, str(_SCRIPT), str(self.folder))

    def keep(self, store: Store, staging: Path) -> None:
        """Keep what the commands have made."""

        def copy(target: Path) -> BuildOutput:
            for name in FILES:
                shutil.move(staging / FOLDER / name, target / name)
            return BuildOutput(outputs=FILES, dependencies=read_from_outside((DEPFILE,), staging))

        if self.making is not None and all((staging / FOLDER / name).is_file() for name in FILES):
            store.get_or_build(self.key, copy)


def find_preamble(
    command: Sequence[str],
    request: BuildRequest,
    *,
    toolchain: Toolchain,
    system: System,
    store: Store,
) -> Preamble | None:
    """The preamble for nvcc's flags, None where nvcc has to be run as a whole.

    Parameters
    ----------
    command : sequence of str
        Nvcc with its flags, without files.
    request : BuildRequest
    """
    is_worth_it = len(request.units) >= _FILES_OF_A_PROJECT or is_known(command, toolchain=toolchain, store=store)
    phases = phases_for(command, STEM, toolchain=toolchain, system=system, store=store)
    if phases is None:
        return None
    dropped = [f"-I{path}" for path in request.compile.include_paths]
    key = make_key(
        "preamble",
        ("name", STEM),
        ("commands", preamble_text(phases, dropped)),
        ("library_path", phases.library_path),
        ("toolchain", toolchain.fingerprint),
    )
    entry = store.get(key)
    return Preamble(
        key=key,
        folder=None if entry is None else entry.path,
        making=make_preamble(phases, dropped) if entry is None and is_worth_it else None,
    )
