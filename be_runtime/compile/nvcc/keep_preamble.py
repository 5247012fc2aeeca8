"""What all CUDA sources begin with, preprocessed and precompiled, in the cache: made for flags used a second time.

A kernel that is built once gains nothing from it, and making it takes a processor as long as a small kernel takes. Who
builds with the same flags again is in an edit loop, and so is, sooner or later, who builds a folder of several files.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.cache import BuildOutput, CacheKey, Entry, Store, make_key
from be_runtime.cache.validity.examine import proven_records
from be_runtime.cache.validity.manifest import FileRecord
from be_runtime.compile.inputs.dependencies import read_from_outside
from be_runtime.compile.inputs.observe import LookedAt, Observer
from be_runtime.compile.machine import Machine
from be_runtime.compile.nvcc.keep_headers import HeaderSearch, KeptHeaders
from be_runtime.compile.nvcc.keep_phases import is_known, phases_for
from be_runtime.compile.nvcc.plan_headers import preprocessing, use_kept_headers
from be_runtime.compile.nvcc.plan_preamble import (
    DEPFILE,
    FILES,
    FOLDER,
    UNIT,
    make_preamble,
    preamble_text,
    use_preamble,
)
from be_runtime.compile.plan.build_plan import UnitBuild
from be_runtime.compile.run.execute import Runner
from be_runtime.own_files import INCLUDE_DIR, NATIVE_DIR
from be_runtime.request.options import BuildRequest
from be_runtime.request.tools import Tools

_FILES_OF_A_PROJECT = 4
"""With this many sources the preamble is made at once: beside them it costs little."""


class Preamble(NamedTuple):
    """What a build does about the preamble.

    Parameters
    ----------
    key : CacheKey
    entry : Entry or None
        Where it is kept; None when there is none.
    phases : tuple of str
        Those whose headers are kept there as text and macros.
    making : UnitBuild or None
        The commands that make it beside the module, if they are worth it.
    headers : KeptHeaders
        Writes the text and macros.
    """

    key: CacheKey
    entry: Entry | None
    phases: tuple[str, ...]
    making: UnitBuild | None
    headers: KeptHeaders

    def use(self, build: UnitBuild) -> UnitBuild:
        """A unit's commands with the preamble, if there is one."""
        if self.entry is None or not build.edges:
            return build
        folder = str(self.entry.path)
        precompiled = use_preamble(build, str(NATIVE_DIR / "with_preamble.sh"), folder)
        return use_kept_headers(precompiled, str(NATIVE_DIR / "with_kept_headers.sh"), folder, self.phases)

    @property
    def looked_at(self) -> LookedAt:
        """What a source depends on that is compiled with it: its headers, and where others would come first.

        Our own headers are searched before all but the author's, so that what is not among them was asked for.
        """
        if self.entry is None:
            return LookedAt()
        made_from, own = LookedAt.of(self.entry.manifest), f"{INCLUDE_DIR}/"
        names = [path.removeprefix(own) for path in made_from.absent if path.startswith(own)]
        authors = (f"{folder}/{name}" for folder in self.headers.search.authors for name in names)
        return made_from._replace(absent=(*made_from.absent, *authors))

    @property
    def records(self) -> Mapping[str, FileRecord]:
        """What is known of the files it was made from, by path."""
        return {} if self.entry is None else proven_records(self.entry.manifest)

    def keep(self, toolchain_store: Store, runner: Runner, observer: Observer) -> None:
        """Keep what the commands have made; `runner` runs more of them there."""
        staging = runner.folder
        if self.making is None or not all((staging / FOLDER / name).is_file() for name in FILES):
            return
        read, making = read_from_outside((DEPFILE,), staging), observer.looked_at(self.making.edges)

        def collect(target: Path) -> BuildOutput:
            written, nowhere = self.headers.write(runner, read)
            listed = LookedAt(read=tuple(map(str, read)), absent=tuple(map(str, nowhere)))
            looked_at = LookedAt.merged((listed, making))
            for name in (*FILES, *written):
                shutil.move(staging / FOLDER / name, target / name)
            return BuildOutput((*FILES, *written), *looked_at)

        toolchain_store.keep(self.key, collect)


def find_preamble(command: Sequence[str], request: BuildRequest, tools: Tools, machine: Machine) -> Preamble | None:
    """The preamble for nvcc's flags, None where nvcc has to be run as a whole.

    Parameters
    ----------
    command : sequence of str
        Nvcc with its flags, without files.
    request : BuildRequest
    tools : Tools
        With a CUDA toolkit.
    machine : Machine
    """
    assert tools.cuda is not None, "only nvcc has such a preamble"
    is_worth_it = len(request.units) >= _FILES_OF_A_PROJECT or is_known(command, machine)
    phases = phases_for(command, UNIT, machine)
    if phases is None:
        return None
    search = HeaderSearch.of(request.compile, tools, machine.system)
    headers = KeptHeaders(preprocessing(phases), search, tools.cuda.root, machine.system)
    dropped = [f"-I{path}" for path in request.compile.include_paths]
    key = make_key(
        "preamble",
        ("name", UNIT.stem),
        ("commands", preamble_text(phases, dropped)),
        ("library_path", phases.library_path),
        ("toolchain", machine.toolchain.fingerprint),
    )
    entry = machine.toolchain_store.get(key)
    return Preamble(
        key=key,
        entry=entry,
        phases=() if entry is None else headers.usable(entry),
        making=make_preamble(phases, dropped) if entry is None and is_worth_it else None,
        headers=headers,
    )
