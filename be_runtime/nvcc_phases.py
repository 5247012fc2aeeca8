"""Nvcc's dry run for a set of flags, asked once and kept in the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from be_toolchain import Toolchain
from be_toolchain.system import System

from .build.dryrun import parse_dryrun
from .build.phases import rename, split_phases
from .build.plan import UnitBuild
from .cache import BuildOutput, Store, make_key


class _NoAnswerError(Exception):
    """The dry run failed: nothing is kept, and nvcc itself says why when it is run."""


_PLACEHOLDER = "be_dry_run_source"
_TEXT = "dryrun.txt"


def phases_for(
    command: Sequence[str],
    source: str,
    target: str,
    *,
    toolchain: Toolchain,
    system: System,
    store: Store,
) -> UnitBuild | None:
    """The phases of nvcc for one source, or None when it has to be run as a whole.

    Parameters
    ----------
    command : sequence of str
        Nvcc with its flags, without files.
    source, target : str
        The CUDA file and the object, relative to the build folder.
    toolchain : Toolchain
        Holds a CUDA toolkit.
    """
    toolkit = toolchain.cuda
    assert toolkit is not None, "only nvcc has phases"
    stem = Path(source).stem
    placeholder = Path(source).with_name(f"{_PLACEHOLDER}{Path(source).suffix}")
    made = str(Path(target).with_name(f"{_PLACEHOLDER}.o"))
    keep = f"{made}.phases"
    argv = (*command, "--dryrun", "--keep", "--keep-dir", keep, "-c", str(placeholder), "-o", made)

    def ask(staging: Path) -> BuildOutput:
        answer = system.run(argv)
        if answer.returncode != 0:
            raise _NoAnswerError
        (staging / _TEXT).write_text(answer.text, encoding="utf-8", errors="surrogateescape")
        profile = toolkit.nvcc.parent / "nvcc.profile"
        return BuildOutput(outputs=(_TEXT,), dependencies=(toolkit.nvcc, *((profile,) if profile.is_file() else ())))

    key = make_key("dryrun", ("name", "nvcc"), ("argv", argv), ("toolchain", toolchain.fingerprint))
    try:
        text = store.get_or_build(key, ask).output(_TEXT).read_text(encoding="utf-8", errors="surrogateescape")
    except _NoAnswerError:
        return None
    dry = parse_dryrun(text)
    tools = {
        "cudafe++": str(toolkit.cudafe),
        "cicc": str(toolkit.cicc),
        "ptxas": str(toolkit.ptxas),
        "fatbinary": str(toolkit.fatbinary),
    }
    phases = None if dry is None else split_phases(dry, tools, str(placeholder), made, _module_id(stem))
    return None if phases is None else rename(phases, _PLACEHOLDER, stem)


def _module_id(stem: str) -> str:
    """A module id in nvcc's form, which no other unit of the library has."""
    digest = hashlib.sha256(stem.encode()).hexdigest()
    name = "".join(char if char.isascii() and char.isalnum() else "_" for char in f"{stem}.cu")
    return f"_{digest[:8]}_{len(name)}_{name}_{digest[8:16]}"
