"""Nvcc's dry run for a set of flags, run once and kept in the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from be_runtime.cache import BuildOutput, CacheKey, make_key
from be_runtime.compile.build_order import BuildOrder
from be_runtime.compile.nvcc.dry_run import parse_dryrun
from be_runtime.compile.nvcc.plan_phases import rename, split_phases
from be_runtime.compile.plan.build_plan import UnitBuild
from be_runtime.compile.plan.unit_files import UnitFiles, files_named
from be_toolchain import Toolchain
from be_toolchain.model import Nvcc


class _NoAnswerError(Exception):
    """The dry run failed. Nothing is kept, and nvcc itself reports the reason when it runs."""


_PLACEHOLDER = files_named("be_dry_run_source", "cuda")
_MODULE_ID = "be_dry_run_module"
_TEXT = "dryrun.txt"


def is_known(command: Sequence[str], order: BuildOrder) -> bool:
    """Return whether the cache has nvcc's dry run for these flags."""
    return order.toolchain_store.get(_key(_dry_run(command), order.toolchain)) is not None


def phases_for(command: Sequence[str], unit: UnitFiles, order: BuildOrder) -> UnitBuild | None:
    """Return the phases of nvcc for one source, or None if nvcc has to be run as a whole.

    Parameters
    ----------
    command : sequence of str
        Nvcc with its flags, without files.
    unit : UnitFiles
    order : BuildOrder
        Its toolchain's CUDA toolkit has an nvcc.
    """
    toolkit = order.toolchain.cuda
    assert toolkit is not None, "only nvcc has a dry run"
    nvcc = toolkit.compiler
    assert isinstance(nvcc, Nvcc), "only nvcc has a dry run"
    argv = _dry_run(command)

    def ask(staging: Path) -> BuildOutput:
        (staging / _TEXT).write_text(_answer(argv, order), encoding="utf-8", errors="surrogateescape")
        profile = nvcc.path.parent / "nvcc.profile"
        return BuildOutput(outputs=(_TEXT,), dependencies=(nvcc.path, *((profile,) if profile.is_file() else ())))

    try:
        kept = order.toolchain_store.get_or_build(_key(argv, order.toolchain), ask).output(_TEXT)
        try:
            text = kept.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:  # removed since it was found
            text = _answer(argv, order)
    except _NoAnswerError:
        return None
    tools = (nvcc.cudafe, nvcc.cicc, toolkit.ptxas, toolkit.fatbinary)
    phases = _phases(text, *map(str, tools))
    if phases is None:
        return None
    return rename(rename(phases, _PLACEHOLDER.stem, unit.stem), _MODULE_ID, _module_id(unit.stem))


def _answer(argv: tuple[str, ...], order: BuildOrder) -> str:
    """Return what nvcc prints in a dry run."""
    answer = order.system.run(argv)
    if answer.returncode != 0:
        raise _NoAnswerError
    return answer.text


@lru_cache(maxsize=8)
def _phases(text: str, cudafe: str, cicc: str, ptxas: str, fatbinary: str) -> UnitBuild | None:
    """Return the phases of the placeholder, which the sources of a folder share."""
    dry = parse_dryrun(text)
    tools = {"cudafe++": cudafe, "cicc": cicc, "ptxas": ptxas, "fatbinary": fatbinary}
    return None if dry is None else split_phases(dry, tools, _PLACEHOLDER, _MODULE_ID)


def _dry_run(command: Sequence[str]) -> tuple[str, ...]:
    """Return the command of the dry run."""
    target = _PLACEHOLDER.object
    return (*command, "--dryrun", "--keep", "--keep-dir", f"{target}.phases", "-c", _PLACEHOLDER.source, "-o", target)


def _key(argv: Sequence[str], toolchain: Toolchain) -> CacheKey:
    return make_key("dryrun", ("name", "nvcc"), ("argv", argv), ("toolchain", toolchain.fingerprint))


def _module_id(stem: str) -> str:
    """Return a module id in nvcc's form that no other unit of the library has."""
    digest = hashlib.sha256(stem.encode()).hexdigest()
    name = "".join(char if char.isascii() and char.isalnum() else "_" for char in f"{stem}.cu")
    return f"_{digest[:8]}_{len(name)}_{name}_{digest[8:16]}"
