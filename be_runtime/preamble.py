"""What all CUDA sources begin with, preprocessed and precompiled, in the cache: made for flags used a second time.

A kernel that is built once gains nothing from it, and making it takes a processor as long as a small kernel takes. Who
builds with the same flags again is in an edit loop, and so is, sooner or later, who builds a folder of several files.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from be_toolchain import Toolchain
from be_toolchain.system import System

from .build.dependencies import read_from_outside
from .build.kept_headers import (
    defines_file,
    header_macros,
    headers_text,
    is_shadowed,
    names_asked_for,
    preprocessing,
    searched_folders,
    use_kept_headers,
)
from .build.plan import Edge, UnitBuild
from .build.preamble import DEPFILE, FILES, FOLDER, MESSAGES, SOURCE, STEM, make_preamble, preamble_text, use_preamble
from .cache import BuildOutput, CacheKey, Entry, Store, make_key
from .nvcc_phases import is_known, phases_for
from .options import BuildRequest

_FILES_OF_A_PROJECT = 4
"""With this many sources the preamble is made at once: beside them it costs little."""

_NATIVE = Path(__file__).parent / "native"
_ASKED = "asked"
_HEADERS = "headers"
_MACROS = ".macros"


class Preamble(NamedTuple):
    """What a build does about the preamble.

    Parameters
    ----------
    key : CacheKey
    folder : Path or None
        Where it is kept; None when there is none.
    headers : tuple of str
        The phases whose headers are kept there as text and macros.
    making : UnitBuild or None
        The commands that make it beside the module, if they are worth it.
    preprocessors : mapping of str to Edge
        By phase, those among these commands.
    """

    key: CacheKey
    folder: Path | None
    headers: tuple[str, ...]
    making: UnitBuild | None
    preprocessors: Mapping[str, Edge]

    def use(self, build: UnitBuild) -> UnitBuild:
        """A unit's commands with the preamble, if there is one."""
        if self.folder is None:
            return build
        folder = str(self.folder)
        precompiled = use_preamble(build, str(_NATIVE / "with_preamble.sh"), folder)
        return use_kept_headers(precompiled, str(_NATIVE / "with_kept_headers.sh"), folder, self.headers)

    def keep(self, store: Store, staging: Path) -> None:
        """Keep what the commands have made."""

        def collect(target: Path) -> BuildOutput:
            for name in FILES:
                shutil.move(staging / FOLDER / name, target / name)
            files = kept_files(self.preprocessors, staging, read)
            for name, text in files.items():
                _write(target / name, text)
            return BuildOutput(outputs=(*FILES, *files), dependencies=read)

        if self.making is not None and all((staging / FOLDER / name).is_file() for name in FILES):
            read = read_from_outside((DEPFILE,), staging)
            store.get_or_build(self.key, collect)


def kept_files(preprocessors: Mapping[str, Edge], staging: Path, read: Sequence[Path]) -> dict[str, str]:
    """The headers of each phase as text and macros, by file name; nothing where that would not be all.

    Parameters
    ----------
    preprocessors : mapping of str to Edge
        By phase.
    staging : Path
        Where they and the probes left their outputs.
    read : sequence of Path
        The headers.
    """
    asked = None if _read(staging / MESSAGES) else names_asked_for(map(_read, read))
    if asked is None:
        return {}
    files = {_ASKED: "\n".join(asked)}
    for phase, edge in preprocessors.items():
        text = headers_text(_read(staging / edge.outputs[0]), SOURCE)
        macros = header_macros(_read(staging / defines_file(FOLDER, phase)))
        if text is None or macros is None:
            return {}
        files |= {f"{_HEADERS}{phase}": text, f"{_HEADERS}{phase}{_MACROS}": macros}
    return files


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
    includes = request.compile.include_paths
    dropped = [f"-I{path}" for path in includes]
    key = make_key(
        "preamble",
        ("name", STEM),
        ("commands", preamble_text(phases, dropped)),
        ("library_path", phases.library_path),
        ("toolchain", toolchain.fingerprint),
    )
    entry = store.get(key)
    preprocessors = preprocessing(phases)
    return Preamble(
        key=key,
        folder=None if entry is None else entry.path,
        headers=() if entry is None else _usable_headers(entry, preprocessors, includes, system),
        making=make_preamble(phases, dropped) if entry is None and is_worth_it else None,
        preprocessors=preprocessors,
    )


def _usable_headers(
    entry: Entry, preprocessors: Mapping[str, Edge], includes: Sequence[Path], system: System
) -> tuple[str, ...]:
    """The phases whose kept headers are those that would be read: no folder of the author's has others."""
    if _ASKED not in entry.manifest.outputs.paths:
        return ()

    asked = _read(entry.output(_ASKED)).split("\n")
    if any(system.stat(folder / name) is not None for folder in includes for name in asked if name):
        return ()

    def list_dir(folder: str) -> Sequence[str]:
        return system.list_dir(Path(folder))

    headers = entry.manifest.dependencies.paths
    for folders in {searched_folders(edge.argv, system.environ) for edge in preprocessors.values()}:
        if folders is None or is_shadowed(folders, headers, list_dir, lambda path: system.stat(str(path))):
            return ()
    return tuple(phase for phase in preprocessors if f"{_HEADERS}{phase}" in entry.manifest.outputs.paths)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
