"""CUDA toolkits: the files of each candidate are found and examined, and the first complete toolkit is chosen."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from be_toolchain.arch import Arch
from be_toolchain.errors import CudaNotFoundError, IncoherentToolchainError, Probe, ToolchainError, correct
from be_toolchain.find.clang import examine_clang_tree, find_clang
from be_toolchain.find.coherence import Rejection, find_mixture, judge_release, repair_hint
from be_toolchain.find.compilers import Candidate, Compilers, Found, identify_files
from be_toolchain.find.search import recorded_versions, toolkit_candidates, who_named
from be_toolchain.known import layouts, versions
from be_toolchain.known.layouts import MANAGED_STEPS, Layout
from be_toolchain.known.versions import release_of
from be_toolchain.machine.files import interrupted_marker
from be_toolchain.machine.system import RunResult, System, clang_package, distribution_of
from be_toolchain.settings import Preferences
from be_toolchain.values import Component, CudaToolkit, HostCompiler, Nvcc


class Answers(NamedTuple):
    """The answers of an nvcc about itself."""

    nvcc: Path
    version: str
    build: str
    places: versions.DryRun


class Parts(NamedTuple):
    """The files and folders of a toolkit; `missing` names the parts that were not found."""

    root: Path
    layout: Layout
    programs: dict[str, Path]
    libdevice: Path
    include_dirs: tuple[Path, ...]
    library_dirs: tuple[Path, ...]
    headers: dict[str, Path]
    cudart_static: Path | None
    cudart_shared: Path | None
    missing: tuple[str, ...]


PROBE = Path(__file__).with_name("probe.ci")
"""An empty source, preprocessed for cicc."""

NO_RECORD = "no record states it, and its files contain no version"
"""The source of an unknown version; for example, the headers of crt do not contain their version."""

HEADERS = {"cudart": "cuda_runtime.h", "crt": "crt/host_config.h", "cccl": "nv/target"}
"""The header by which the headers of a component are found."""


def examine_toolkit(system: System, candidate: Candidate, host: HostCompiler) -> CudaToolkit | Rejection:
    """Examine one nvcc.

    Parameters
    ----------
    system : System
        The machine.
    candidate : Candidate
        The nvcc, or a script or link that leads to it.
    host : HostCompiler
        Any working compiler, since nvcc's dry run needs one. It is the toolkit's host compiler until the limits of the
        toolkit are applied.

    Returns
    -------
    CudaToolkit or Rejection
        A toolkit with all parts for compiling and linking, or the reason against it. `find_toolkit` judges the versions
        that the tools print. A toolkit that is too old, or whose records mix releases, is rejected before most of its
        tools run.
    """
    nvcc = candidate.path
    answers = ask_nvcc(system, nvcc, host)
    parts = None if isinstance(answers, Rejection) else find_parts(system, answers)
    if parts is None or not all(tool in parts.programs for tool in layouts.TOOLS):
        # An nvcc that is started through a symbolic link searches its tools in the folder of the link.
        linked = system.realpath(nvcc)
        if linked != nvcc and linked.name == "nvcc":
            behind = ask_nvcc(system, linked, host)
            if not isinstance(behind, Rejection):
                answers, parts = behind, find_parts(system, behind)
    if isinstance(answers, Rejection):
        return answers
    assert parts is not None
    release = release_of(answers.version)
    too_old = judge_release(release)
    if too_old:
        return Rejection(too_old)
    repair = repair_hint(release, layout=parts.layout.name, root=parts.root, found_via=candidate.found_via)
    if parts.missing:
        reason = f"nvcc {answers.version} lacks {', '.join(parts.missing)} (root {parts.root})"
        return Rejection(reason, repair if parts.layout.name in ("pip", "conda") else "")
    if system.is_file(interrupted_marker(parts.root)):
        reason = "an installation of CUDA wheels into its folder was interrupted"
        return Rejection(reason, "python -m be_toolchain doctor --fix", mixed=True)
    recorded = tuple(_recorded(system, parts))
    mixture = find_mixture(recorded, release, repair)
    return mixture or _assemble(system, candidate, answers, parts, recorded, host)


def ask_nvcc(system: System, nvcc: Path, host: HostCompiler) -> Answers | Rejection:
    """Ask nvcc for its version and its folders, before any other tool runs."""
    path = str(nvcc)
    dryrun = (path, "--dryrun", "-ccbin", str(host.path), "-c", "be_toolchain_probe.cu")
    answer, dry = system.run_all(((path, "--version"), dryrun), unset=layouts.PROBE_UNSET)
    version = versions.parse_tool_version(answer.text)
    if version is None:
        return Rejection(f"does not report its version ({answer.why_failed or 'unknown text'})")
    return Answers(nvcc, version.version, version.build, versions.parse_dryrun(dry.text))


def find_parts(system: System, answers: Answers) -> Parts:
    """Find each part: first in the folders that nvcc names, then in the folders of the layout."""
    places = answers.places
    here = places.here or answers.nvcc.parent
    root = places.top or here.parent
    if root.parent == here.parent / "targets":  # conda-forge's nvcc.profile names the folder of the headers
        root = here.parent
    layout = _layout_of(system, root)
    system.stat(here / "nvcc.profile")
    tool_dirs = _folders(system, root, (here,), layout.tools)
    cicc_dirs = _folders(system, root, (places.cicc_dir,), layout.cicc)
    wanted = dict.fromkeys(("nvcc", *layouts.TOOLS), tool_dirs) | {"cicc": cicc_dirs}
    programs = {name: _first(system.is_program, folders, name) for name, folders in wanted.items()}
    libdevice_dirs = _folders(system, root, (places.libdevice_dir,), layout.libdevice)
    libdevice = _first(system.is_file, libdevice_dirs, "libdevice.10.bc")
    includes = _folders(system, root, places.include_dirs, ())
    if not all(_find_headers(system, includes).values()):
        includes = _folders(system, root, places.include_dirs, layout.includes)
    headers = _find_headers(system, includes)
    libraries = _folders(system, root, places.library_dirs, ())
    if not _first(system.is_file, libraries, "libcudart_static.a"):
        libraries = _folders(system, root, places.library_dirs, layout.libraries)
    static = _first(system.is_file, libraries, "libcudart_static.a")
    major = answers.version.partition(".")[0]  # wheels contain the shared library only under its versioned name
    names = ("libcudart.so", f"libcudart.so.{major}", f"libcudart.so.{release_of(answers.version)}")
    shared = next(filter(None, (_first(system.is_file, libraries, name) for name in names)), None)
    missing = [name for name, path in programs.items() if path is None]
    missing += [HEADERS[name] for name, path in headers.items() if path is None]
    missing += ["libdevice.10.bc"] if libdevice is None else []
    missing += ["libcudart"] if static is None and shared is None else []
    return Parts(
        root=root,
        layout=layout,
        programs={name: path for name, path in programs.items() if path is not None},
        libdevice=libdevice or root,
        include_dirs=includes,
        library_dirs=libraries,
        headers={name: path for name, path in headers.items() if path is not None},
        cudart_static=static,
        cudart_shared=shared,
        missing=tuple(missing),
    )


def _find_headers(system: System, folders: tuple[Path, ...]) -> dict[str, Path | None]:
    """Find the header of each component in some folders."""
    return {name: _first(system.is_file, folders, header) for name, header in HEADERS.items()}


def _layout_of(system: System, root: Path) -> Layout:
    """Return the first layout whose markers all exist."""
    return next(
        layout
        for layout in layouts.LAYOUTS
        if all(system.stat(os.path.normpath(root / marker)) is not None for marker in layout.marker)
    )


def _folders(system: System, root: Path, named: tuple[Path | None, ...], rows: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the folders that exist: first the named ones, then the folders of a layout's rows."""
    targets = layouts.TARGETS.get(system.machine, (f"{system.machine}-linux",))
    multiarch = f"{system.machine}-linux-gnu"
    known = (root / row.format(target=target, multiarch=multiarch) for row in rows for target in targets)
    wanted = dict.fromkeys((*(path for path in named if path is not None), *known))
    return tuple(path for path in wanted if system.is_dir(path))


def _first(test: Callable[[Path], bool], folders: tuple[Path, ...], name: str) -> Path | None:
    """Return the first path of a name in some folders that passes a test of `System`."""
    return next((folder / name for folder in folders if test(folder / name)), None)


def _assemble(
    system: System,
    candidate: Candidate,
    answers: Answers,
    parts: Parts,
    recorded: tuple[Component, ...],
    host: HostCompiler,
) -> CudaToolkit:
    """Ask the tools for their versions, and make the value of the toolkit."""
    programs = parts.programs
    archs, tools = _ask_tools(system, parts)
    limits = versions.parse_host_limits(system.read_text(parts.headers["crt"]) or "")
    clash = versions.parse_libc_below(system.read_text(parts.headers["crt"].parent / "math_functions.h") or "")
    return CudaToolkit(
        root=parts.root,
        release=release_of(answers.version),
        compiler=Nvcc(
            path=programs["nvcc"],
            version=answers.version,
            build=answers.build,
            content=identify_files(system, programs["nvcc"], programs["nvcc"].with_name("nvcc.profile")),
            cicc=programs["cicc"],
            cudafe=programs["cudafe++"],
            nvlink=programs["nvlink"],
            host=host,
            host_limits=limits._replace(libc_below=clash),
        ),
        layout=parts.layout.name,
        include_dirs=parts.include_dirs,
        library_dirs=parts.library_dirs,
        cudart_static=parts.cudart_static,
        cudart_shared=parts.cudart_shared,
        ptxas=programs["ptxas"],
        fatbinary=programs["fatbinary"],
        libdevice=parts.libdevice,
        components=(
            Component("nvcc", programs["nvcc"], answers.version, "nvcc --version"),
            *tools,
            *(_with_cicc_version(system, part, archs) for part in recorded),
        ),
        archs=archs,
        found_via=candidate.found_via,
    )


def _ask_tools(system: System, parts: Parts) -> tuple[tuple[Arch, ...], tuple[Component, ...]]:
    """Ask nvcc for its architectures and the tools for their versions, all at once."""
    nvcc = str(parts.programs["nvcc"])
    tools = [parts.programs[name] for name in layouts.TOOLS]
    commands = ((nvcc, "--list-gpu-arch"), (nvcc, "--help"), *((str(tool), "--version") for tool in tools))
    listed, helped, *answers = system.run_all(commands, unset=layouts.PROBE_UNSET)
    archs = tuple(sorted({*versions.parse_archs_listed(listed.stdout), *versions.parse_archs_listed(helped.stdout)}))
    rows = zip(layouts.TOOLS, tools, answers, strict=True)
    return archs, tuple(Component(name, tool, _printed(result), f"{name} --version") for name, tool, result in rows)


def _recorded(system: System, parts: Parts) -> Iterator[Component]:
    """Yield the parts that print no version, with the version from the packaging's records or from a header."""
    files = {"nvvm": parts.programs["cicc"], **parts.headers}
    recorded = recorded_versions(system, parts.root, parts.layout)
    cudart_header = parts.headers["cudart"].parent / "cuda_runtime_api.h"
    header_release = versions.parse_cudart_version(system.read_text(cudart_header, limit_bytes=65536) or "")
    for name in ("nvvm", "crt", "cudart", "cccl"):
        version, source = recorded.get(name, ("", ""))
        if name == "cudart" and header_release and release_of(version) != header_release:
            version, source = header_release, "CUDART_VERSION"
        if name == "cccl" and not version:
            # CCCL has releases of its own, which its headers contain.
            base = parts.headers["cccl"].parent.parent
            places = (folder / path for folder in (base, base / "cccl") for path in layouts.CCCL_VERSION_HEADERS)
            texts = (system.read_text(place, limit_bytes=16384) for place in places)
            found = filter(None, (versions.parse_cccl_version(text) for text in texts if text))
            version, source = next(found, ""), "CCCL_VERSION"
        yield Component(name, files[name], version, source if version else NO_RECORD)


def _with_cicc_version(system: System, part: Component, archs: tuple[Arch, ...]) -> Component:
    """Add cicc's version if no record has it; cicc has no ``--version``, but writes its version into its PTX."""
    if part.version or part.name != "nvvm":
        return part
    arch = archs[0].compute if archs else "compute_75"
    command = (str(part.path), "-arch", arch, str(PROBE), "-o", "/dev/stdout")
    version = _printed(system.run(command, unset=layouts.PROBE_UNSET))
    return part._replace(version=version, source="cicc's output" if version else NO_RECORD)


def _printed(result: RunResult) -> str:
    """Return the version that a tool printed; empty if it printed no version."""
    version = versions.parse_tool_version(result.text)
    return version.version if version else ""


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
        real = system.realpath(candidate.path)
        if real in tried:
            probes.append(candidate.probe._replace(reason="another path of an nvcc that was examined before"))
            continue
        tried.add(real)
        if candidate.is_joined:
            clang_probes, verdict = _examine_wheels(system, candidate, compilers)
        else:
            verdict = examine_toolkit(system, candidate, host)
        if isinstance(verdict, CudaToolkit):
            found_via, release = verdict.found_via, verdict.release
            hint = repair_hint(release, layout=verdict.layout, root=verdict.root, found_via=found_via)
            verdict = find_mixture(verdict.components, release, hint, verdict.compiler.measure) or verdict
        if isinstance(verdict, Rejection):
            rejections.append(verdict)
            hint = verdict.hint or _what_to_do(candidate, preferences)
            probes.append(candidate.probe._replace(reason=verdict.reason, hint=hint))
            continue
        reason = f"CUDA {verdict.release}, the first in the search order that is complete and of one release"
        if candidate.is_joined:
            why = "since no place has a working nvcc" if _is_fallback(candidate) else "asked for"
            reason = f"{verdict.title}, {why}"
        probes.append(candidate.probe._replace(reason=reason, chosen=True))
        return ToolkitSearch(verdict, tuple(probes), None, clang_probes)
    named = who_named(requested, preferences.nvcc, "argument nvcc")
    advice = _advise_on_wheels(system, probes, compilers)
    problem = _cuda_error(rejections, tuple(probes), named, advice)
    return ToolkitSearch(None, tuple(probes), problem, clang_probes)


def _what_to_do(candidate: Candidate, preferences: Preferences) -> str:
    """Return the hint for a toolkit that can't be used, if its rejection has no hint."""
    if candidate.found_via in dict((*preferences.homes, *preferences.modules)):
        return correct(candidate.found_via)
    if candidate.found_via == "PATH":
        return f"take {candidate.path.parent} off PATH, or repair it"
    return f"repair or remove {candidate.path}"


def _is_fallback(candidate: Candidate) -> bool:
    """Return whether these are wheels for clang that no setting names, which are used only if there is no nvcc."""
    return candidate.is_joined and candidate.found_via == MANAGED_STEPS[0]


def _clang_last(candidates: Iterator[Found]) -> Iterator[Found]:
    """Move wheels that only clang can use behind every nvcc, unless a setting names them."""
    later = []
    for each in candidates:
        if isinstance(each, Candidate) and _is_fallback(each):
            later.append(each)
        else:
            yield each
    yield from later


def _examine_wheels(
    system: System, candidate: Candidate, compilers: Compilers
) -> tuple[tuple[Probe, ...], CudaToolkit | Rejection]:
    """Find a clang for the CUDA 12 wheels, and examine both."""
    probes, clang = find_clang(system, compilers.each(for_cuda=True))
    if clang is None:
        least = layouts.MIN_CLANG_FOR_CUDA
        old = next((probe.reason for probe in probes if probe.reason.startswith("clang")), "none was found")
        reason = f"its CUDA 12 wheels hold no nvcc, and clang {least} or newer is needed to compile with them: {old}"
        hint = f"install clang {least} or newer, such as with: {clang_package(distribution_of(system))}"
        return probes, Rejection(reason, hint)
    return probes, examine_clang_tree(system, candidate, clang)


def _advise_on_wheels(system: System, probes: list[Probe], compilers: Compilers) -> tuple[str, ...]:
    """Return the hints for CUDA 12 wheels in the environment, which have no nvcc."""
    if not any(probe.place.endswith(layouts.PIP_NVCC_WITHOUT_COMPILER) for probe in probes):
        return ()
    tried, clang = find_clang(system, compilers.each(for_cuda=True))
    if clang is not None:
        named = f"clang {clang.compiler.version} ({clang.compiler.path})"
        return (f"{named} compiles with CUDA 12 wheels: python -m be_toolchain install --cuda 12",)
    old = next((f" ({probe.reason})" for probe in tried if probe.reason.startswith("clang ")), "")
    least = f"clang {layouts.MIN_CLANG_FOR_CUDA} or newer"
    return (f"{least} compiles with CUDA 12 wheels{old}: install it, then python -m be_toolchain install --cuda 12",)


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
        f'or with pip: python -m pip install "{layouts.PIP_TOOLKIT}==13.0.*"',
        "or with conda: conda install cuda-nvcc cuda-cudart-dev",
        "or point to one with CUDA_HOME=/path/to/cuda or BE_NVCC=/path/to/nvcc",
    )
    return CudaNotFoundError("no complete CUDA toolkit was found", probes=probes, hints=hints)
