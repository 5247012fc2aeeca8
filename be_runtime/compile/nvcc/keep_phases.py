"""Nvcc's dry run for a set of flags, asked once and kept in the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from be_runtime.cache import BuildOutput, CacheKey, make_key
from be_runtime.compile.machine import Machine
from be_runtime.compile.nvcc.dry_run import parse_dryrun
from be_runtime.compile.nvcc.plan_phases import rename, split_phases
from be_runtime.compile.plan.build_plan import UnitBuild
from be_runtime.compile.plan.unit_files import UnitFiles, files_named
from be_toolchain import Toolchain
from be_toolchain.model import Nvcc


class _NoAnswerError(Exception):
    """The dry run failed: nothing is kept, and nvcc itself says why when it is run."""


_PLACEHOLDER = files_named("be_dry_run_source", "cuda")
_MODULE_ID = "be_dry_run_module"
_TEXT = "dryrun.txt"


def is_known(command: Sequence[str], machine: Machine) -> bool:
    """Whether nvcc was asked before about these flags."""
    return machine.toolchain_store.get(_key(_dry_run(command), machine.toolchain)) is not None


def phases_for(command: Sequence[str], unit: UnitFiles, machine: Machine) -> UnitBuild | None:
    """The phases of nvcc for one source, or None when it has to be run as a whole.

    Parameters
    ----------
    command : sequence of str
        Nvcc with its flags, without files.
    unit : UnitFiles
    machine : Machine
        Its toolchain's CUDA toolkit has an nvcc.
    """
    toolkit = machine.toolchain.cuda
    assert toolkit is not None, "only nvcc has a dry run"
    nvcc = toolkit.compiler
    assert isinstance(nvcc, Nvcc), "only nvcc has a dry run"
    argv = _dry_run(command)

    def ask(staging: Path) -> BuildOutput:
        answer = machine.system.run(argv)
        if answer.returncode != 0:
            raise _NoAnswerError
        (staging / _TEXT).write_text(answer.text, encoding="utf-8", errors="surrogateescape")
        profile = nvcc.path.parent / "nvcc.profile"
        return BuildOutput(outputs=(_TEXT,), dependencies=(nvcc.path, *((profile,) if profile.is_file() else ())))

    try:
        text = (
            machine.toolchain_store.get_or_build(_key(argv, machine.toolchain), ask)
            .output(_TEXT)
            .read_text(encoding="utf-8", errors="surrogateescape")
        )
    except _NoAnswerError:
        return None
    tools = (nvcc.cudafe, nvcc.cicc, toolkit.ptxas, toolkit.fatbinary)
    phases = _phases(text, *map(str, tools))
    return (
        None
        if phases is None
        else rename(rename(phases, _PLACEHOLDER.stem, unit.stem), _MODULE_ID, _module_id(unit.stem))
    )


@lru_cache(maxsize=8)
def _phases(text: str, cudafe: str, cicc: str, ptxas: str, fatbinary: str) -> UnitBuild | None:
    """The phases of the placeholder, which the sources of a folder share."""
    dry = parse_dryrun(text)
    tools = {"cudafe++": cudafe, "cicc": cicc, "ptxas": ptxas, "fatbinary": fatbinary}
    return None if dry is None else split_phases(dry, tools, _PLACEHOLDER, _MODULE_ID)


def _dry_run(command: Sequence[str]) -> tuple[str, ...]:
    """The command that asks nvcc what it would do."""
    target = _PLACEHOLDER.object
    return (*command, "--dryrun", "--keep", "--keep-dir", f"{target}.phases", "-c", _PLACEHOLDER.source, "-o", target)


def _key(argv: Sequence[str], toolchain: Toolchain) -> CacheKey:
    return make_key("dryrun", ("name", "nvcc"), ("argv", argv), ("toolchain", toolchain.fingerprint))


def _module_id(stem: str) -> str:
    """A module id in nvcc's form, which no other unit of the library has."""
    digest = hashlib.sha256(stem.encode()).hexdigest()
    name = "".join(char if char.isascii() and char.isalnum() else "_" for char in f"{stem}.cu")
    return f"_{digest[:8]}_{len(name)}_{name}_{digest[8:16]}"
