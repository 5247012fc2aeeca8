"""The choice of a CUDA toolkit: the first complete and coherent candidate, or the error that says why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from be_toolchain.errors import CudaNotFoundError, IncoherentToolchainError, Probe, ToolchainError, correct
from be_toolchain.find.clang_toolkit import examine_clang_tree, find_clang
from be_toolchain.find.compilers import Compilers
from be_toolchain.find.search import ClangCandidate, Found, ToolkitCandidate, toolkit_candidates
from be_toolchain.find.toolkit_contents import examine_toolkit
from be_toolchain.known import catalog
from be_toolchain.machine.system import System
from be_toolchain.machine.system_packages import clang_package, distribution_of
from be_toolchain.model import CudaToolkit, HostCompiler
from be_toolchain.rules.coherence import Rejection, find_mixture, repair_hint
from be_toolchain.settings.preferences import Preferences


class ToolkitSearch(NamedTuple):
    """The result of the search for a toolkit."""

    toolkit: CudaToolkit | None
    probes: tuple[Probe, ...]
    problem: ToolchainError | None
    clang_probes: tuple[Probe, ...] = ()


def find_toolkit(
    system: System, preferences: Preferences, requested: Path | None, host: HostCompiler, compilers: Compilers
) -> ToolkitSearch:
    """Find the first complete and coherent toolkit."""
    probes: list[Probe] = []
    rejections: list[Rejection] = []
    clang_probes: tuple[Probe, ...] = ()
    tried: set[Path] = set()
    for candidate in _clang_last(toolkit_candidates(system, preferences, requested)):
        if isinstance(candidate, Probe):
            probes.append(candidate)
            continue
        place = place_of(candidate)
        seen = Probe(found_via=candidate.found_via, place=str(place))
        real = system.realpath(place)
        if real in tried:
            probes.append(seen._replace(reason="the same nvcc as one above"))
            continue
        tried.add(real)
        if isinstance(candidate, ClangCandidate):
            clang_probes, verdict = _examine_wheels(system, candidate, compilers)
        else:
            verdict = examine_toolkit(system, candidate, host)
        if isinstance(verdict, CudaToolkit):
            verdict = _judge(verdict)
        if isinstance(verdict, Rejection):
            rejections.append(verdict)
            hint = verdict.hint or _what_to_do(candidate, preferences)
            probes.append(seen._replace(reason=verdict.reason, hint=hint))
            continue
        probes.append(seen._replace(reason=_why_chosen(verdict, candidate), chosen=True))
        return ToolkitSearch(toolkit=verdict, probes=tuple(probes), problem=None, clang_probes=clang_probes)
    named = who_named(requested, preferences.nvcc, "argument nvcc")
    advice = _advise_on_wheels(system, probes, compilers)
    problem = _cuda_error(rejections, tuple(probes), named, advice)
    return ToolkitSearch(toolkit=None, probes=tuple(probes), problem=problem, clang_probes=clang_probes)


def _what_to_do(candidate: ToolkitCandidate | ClangCandidate, preferences: Preferences) -> str:
    """Return the hint for a toolkit that can't be used for no more specific reason."""
    if candidate.found_via in dict((*preferences.homes, *preferences.modules)):
        return correct(candidate.found_via)
    place = place_of(candidate)
    return (
        f"take {place.parent} off PATH, or repair it" if candidate.found_via == "PATH" else f"repair or remove {place}"
    )


def _clang_last(candidates: Iterator[Found]) -> Iterator[Found]:
    """Move wheels that only clang can use behind every nvcc, unless they were asked for."""
    later = []
    for each in candidates:
        if isinstance(each, ClangCandidate) and not each.asked_for:
            later.append(each)
        else:
            yield each
    yield from later


def place_of(candidate: ToolkitCandidate | ClangCandidate) -> Path:
    """Return the path that stands for a candidate in messages."""
    return candidate.root if isinstance(candidate, ClangCandidate) else candidate.nvcc


def _why_chosen(toolkit: CudaToolkit, candidate: ToolkitCandidate | ClangCandidate) -> str:
    """Return the reason for a choice."""
    if isinstance(candidate, ToolkitCandidate):
        return f"CUDA {toolkit.release}, the first in the search order that is complete and of one release"
    return f"{toolkit.title}, {'asked for' if candidate.asked_for else 'since no place has a working nvcc'}"


def _examine_wheels(
    system: System, candidate: ClangCandidate, compilers: Compilers
) -> tuple[tuple[Probe, ...], CudaToolkit | Rejection]:
    """Look for a clang for the CUDA 12 wheels, and examine both."""
    probes, clang = find_clang(system, compilers.each(for_cuda=True))
    if clang is None:
        least = catalog.MIN_CLANG_FOR_CUDA
        old = next((probe.reason for probe in probes if probe.reason.startswith("clang")), "none is here")
        reason = f"its CUDA 12 wheels hold no nvcc, and clang {least} or newer is needed to compile with them: {old}"
        hint = f"install clang {least} or newer, such as with: {clang_package(distribution_of(system))}"
        return probes, Rejection(reason=reason, hint=hint)
    return probes, examine_clang_tree(system, candidate, clang)


def _advise_on_wheels(system: System, probes: list[Probe], compilers: Compilers) -> tuple[str, ...]:
    """Return the hints for CUDA 12 wheels in the environment, which have no nvcc."""
    if not any(probe.place.endswith(catalog.PIP_NVCC_WITHOUT_COMPILER) for probe in probes):
        return ()
    tried, clang = find_clang(system, compilers.each(for_cuda=True))
    if clang is not None:
        named = f"clang {clang.compiler.version} ({clang.compiler.path})"
        return (f"{named} compiles with CUDA 12 wheels: python -m be_toolchain install --cuda 12",)
    old = next((f" ({probe.reason})" for probe in tried if probe.reason.startswith("clang ")), "")
    least = f"clang {catalog.MIN_CLANG_FOR_CUDA} or newer"
    return (f"{least} compiles with CUDA 12 wheels{old}: install it, then python -m be_toolchain install --cuda 12",)


def _judge(toolkit: CudaToolkit) -> CudaToolkit | Rejection:
    """Check that the parts of a toolkit fit together."""
    hint = repair_hint(toolkit.release, layout=toolkit.layout, root=toolkit.root, found_via=toolkit.found_via)
    return find_mixture(toolkit.components, toolkit.release, hint, toolkit.compiler.measure) or toolkit


def _cuda_error(
    rejections: list[Rejection], probes: tuple[Probe, ...], named: tuple[str, str] | None, advice: tuple[str, ...]
) -> ToolchainError:
    """Make the error for a search that found no toolkit."""
    repairs = tuple(dict.fromkeys(rejection.hint for rejection in rejections if rejection.hint))
    mixed = next((rejection for rejection in rejections if rejection.mixed), None)
    if mixed is not None:
        return IncoherentToolchainError(f"no usable CUDA toolkit: {mixed.reason}", probes=probes, hints=repairs)
    if named is not None:
        message = f"{named[0]} names {named[1]!r}, which does not belong to a complete CUDA toolkit"
        hints = (*repairs, f"correct {named[0]}, or leave it out to search this machine")
        return CudaNotFoundError(message, probes=probes, hints=hints)
    hints = (
        *repairs,
        *advice,
        "install one: python -m be_toolchain install shows the plan first",
        f'or with pip: python -m pip install "{catalog.PIP_TOOLKIT}==13.0.*"',
        "or with conda: conda install cuda-nvcc cuda-cudart-dev",
        "or point to one with CUDA_HOME=/path/to/cuda or BE_NVCC=/path/to/nvcc",
    )
    return CudaNotFoundError("no complete CUDA toolkit was found", probes=probes, hints=hints)


def who_named(requested: Path | None, preferred: tuple[str, str] | None, label: str) -> tuple[str, str] | None:
    """Return who names the only program that may be used, and the program."""
    return (label, str(requested)) if requested is not None else preferred
