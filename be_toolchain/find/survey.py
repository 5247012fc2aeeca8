"""The whole search in one value: the chosen toolchain, every rejected place, and the error if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from be_toolchain import settings
from be_toolchain.errors import HostCompilerNotFoundError, Probe, ToolchainError, UnsupportedHostCompilerError, correct
from be_toolchain.find.coherence import judge_conda, judge_flags, judge_host, judge_libc, render_limits
from be_toolchain.find.compilers import Compilers, Found, conda_prefixes, host_candidates
from be_toolchain.find.search import toolkit_candidates, who_named
from be_toolchain.find.toolkit import find_toolkit
from be_toolchain.known import layouts
from be_toolchain.known.versions import version_key
from be_toolchain.machine.system import System, distribution_of, host_package
from be_toolchain.settings import ConfigurationFile, Preferences, parse_configuration, parse_preferences
from be_toolchain.values import ClangCuda, HostCompiler, HostLimits, Nvcc, Toolchain, ToolchainRequest


class Survey(NamedTuple):
    """The result of a search.

    Parameters
    ----------
    toolchain : Toolchain
        The parts that were found.
    cxx_probes, cuda_probes, host_probes : tuple of Probe
        Every place that was searched for a C++ compiler, for a CUDA toolkit, and for a host compiler for it.
    cxx_problem, cuda_problem : ToolchainError, optional
        The reason why the part was not found.
    """

    toolchain: Toolchain
    cxx_probes: tuple[Probe, ...] = ()
    cuda_probes: tuple[Probe, ...] = ()
    host_probes: tuple[Probe, ...] = ()
    cxx_problem: ToolchainError | None = None
    cuda_problem: ToolchainError | None = None

    @property
    def problem(self) -> ToolchainError | None:
        """The first problem."""
        return self.cxx_problem or self.cuda_problem


def survey(
    request: ToolchainRequest,
    system: System,
    configuration: ConfigurationFile | None = None,
    *,
    to_the_end: bool = False,
) -> Survey:
    """Search for every part that a request needs.

    Parameters
    ----------
    request : ToolchainRequest
        The parts that are needed.
    system : System
        The machine.
    configuration : ConfigurationFile, optional
        A project's settings file.
    to_the_end : bool
        Also list the places after the chosen one without examining them. A search for a record leaves them out.

    Raises
    ------
    PreferenceError
        An environment variable, or the file, that steers the search has an invalid value.
    """
    preferences = parse_preferences(system.environ, parse_configuration(configuration))
    compilers = Compilers(system, preferences, request.cxx)
    variables = ((name, system.environ.get(name, "")) for name in sorted(layouts.COMPILE_VARIABLES))
    result = Survey(Toolchain(environment=tuple(row for row in variables if row[1])))
    if request.need_cxx or request.need_cuda:
        result = _with_cxx(result, system, compilers, who_named(request.cxx, preferences.cxx, "argument cxx"))
    if request.need_cuda:
        result = _with_cuda(result, system, preferences, request, compilers)
    if to_the_end:
        cxx = host_candidates(system, preferences, request.cxx, for_cuda=False)
        hosts = host_candidates(system, preferences, request.cxx, for_cuda=True)
        toolkits = toolkit_candidates(system, preferences, request.nvcc)
        result = result._replace(
            cxx_probes=_continued(result.cxx_probes, cxx),
            host_probes=_continued(result.host_probes, hosts),
            cuda_probes=_continued(result.cuda_probes, toolkits),
        )
    return result._replace(toolchain=_finish(result, system))


def _continued(probes: tuple[Probe, ...], places: Iterator[Found]) -> tuple[Probe, ...]:
    """Return the probes up to the chosen one, then the places that come later in the order."""
    winner = next((probe for probe in probes if probe.chosen), None)
    if winner is None:
        return probes
    known = {(probe.found_via, probe.place) for probe in probes}
    rest = []
    for place in dict.fromkeys(places):
        probe = place if isinstance(place, Probe) else place.probe
        if (probe.found_via, probe.place) in known:
            continue
        is_winner = probe.place == winner.place
        reason = "another path of the chosen compiler" if is_winner else f"not needed: {winner.place} comes first"
        rest.append(probe if probe.reason else probe._replace(reason=reason))
    return (*probes, *rest)


def _with_cxx(result: Survey, system: System, compilers: Compilers, named: tuple[str, str] | None) -> Survey:
    """Add the C++ compiler."""
    probes: list[Probe] = []
    for found in compilers.each(for_cuda=False):
        if isinstance(found, Probe):
            probes.append(found)
            continue
        reason = f"{found.family} {found.version}, the first that works in the search order"
        probes.append(Probe(found.found_via, str(found.path), reason, chosen=True))
        return result._replace(toolchain=result.toolchain._replace(cxx=found), cxx_probes=tuple(probes))
    hints: tuple[str, ...] = (
        f"install one, such as with: {host_package(distribution_of(system))}",
        "or one for C++ kernels alone, from PyPI: python -m be_toolchain install --host-compiler",
        "or name one with BE_CXX=/path/to/g++",
    )
    if not system.path_dirs:
        hints = ("set PATH: it names no folder, so no program can be found by name", *hints)
    message = "no working C++ compiler was found"
    if named is not None:
        message = f"{named[0]} names {named[1]!r}, which is not a working C++ compiler"
        hints = (f"correct {named[0]}, or leave it out to search this machine",)
    problem = HostCompilerNotFoundError(message, probes=tuple(probes), hints=hints)
    return result._replace(cxx_probes=tuple(probes), cxx_problem=problem)


def _with_cuda(
    result: Survey, system: System, preferences: Preferences, request: ToolchainRequest, compilers: Compilers
) -> Survey:
    """Add the CUDA toolkit and its host compiler."""
    working = (found for found in compilers.each(for_cuda=True) if not isinstance(found, Probe))
    any_host = result.toolchain.cxx or next(working, None)
    if any_host is None:
        return result._replace(cuda_problem=result.cxx_problem)
    found = find_toolkit(system, preferences, request.nvcc, any_host, compilers)
    result = result._replace(cuda_probes=found.probes, cuda_problem=found.problem, host_probes=found.clang_probes)
    if found.toolkit is None:
        return result
    toolkit = found.toolkit
    match toolkit.compiler:
        case Nvcc(host_limits=limits) as nvcc:
            probes, host = _find_host(limits, compilers, preferences)
            if host is None:
                anything = Compilers(system, preferences._replace(cxx=None), None)
                problem = _host_error(toolkit.title, limits, probes, anything)
                return result._replace(host_probes=probes, cuda_problem=problem)
            compiler = nvcc._replace(host=host, allow_unsupported_compiler=bool(judge_host(host, limits)))
            toolkit = toolkit._replace(compiler=compiler)
            result = result._replace(host_probes=probes)
        case ClangCuda():
            pass  # it compiles the host side too
    return result._replace(toolchain=result.toolchain._replace(cuda=toolkit))


def _find_host(
    limits: HostLimits, compilers: Compilers, preferences: Preferences
) -> tuple[tuple[Probe, ...], HostCompiler | None]:
    """Find the first C++ compiler that an nvcc accepts; return it with every searched place."""
    probes: list[Probe] = []
    named = dict(preferences.cuda_hosts)
    for found in compilers.each(for_cuda=True):
        if isinstance(found, Probe):
            probes.append(found)
            continue
        refused = judge_host(found, limits)
        chosen = preferences.allow_unsupported_compiler or not refused
        works = f"{found.family} {found.version}, the first in the search order that nvcc accepts"
        by_wish = f"{refused}; used because you asked for it"
        reason = refused if not chosen else by_wish if refused else works
        hint = correct(found.found_via) if found.found_via in named and not chosen else ""
        probes.append(Probe(found.found_via, str(found.path), reason, hint, chosen))
        if chosen:
            return tuple(probes), found
    return tuple(probes), None


def _host_error(
    nvcc: str, limits: HostLimits, probes: tuple[Probe, ...], compilers: Compilers
) -> UnsupportedHostCompilerError:
    """Make the error for an nvcc that accepts no compiler; it names the newest compiler that the settings rule out."""
    every = (found for found in compilers.each(for_cuda=True) if not isinstance(found, Probe))
    accepted = [found for found in every if not judge_host(found, limits)]
    fitting = max(accepted, key=lambda found: (found.family == "gcc", version_key(found.version)), default=None)
    most = limits.gcc_max
    if fitting is not None:
        named = f"{fitting.family} {fitting.version}"
        repair = f"{named} is here and fits: {settings.CXX.variable}={fitting.path}"
    else:
        wanted = f"one that it accepts, such as g++-{most}" if most else "another C++ compiler"
        repair = f"install {wanted}, and if it is not on PATH name it with {settings.CXX.variable}=/path/to/g++"
    return UnsupportedHostCompilerError(
        f"{nvcc} accepts {render_limits(limits)}, "
        f"{'but not the compiler that was named' if fitting else 'and no such compiler was found'}",
        probes=probes,
        hints=(repair, f"or use the present one at your own risk: {settings.ALLOW_UNSUPPORTED.variable}=1"),
    )


def _finish(result: Survey, system: System) -> Toolchain:
    """Add the warnings."""
    cxx, cuda = result.toolchain.cxx, result.toolchain.cuda
    roots = tuple(map(str, conda_prefixes(system)))
    used = filter(None, (cxx, cuda and cuda.host_compiler))
    rows = [row for compiler in used for row in judge_conda(compiler, roots)]
    if cuda is not None:
        rows.extend(judge_libc(system.libc, cuda))
    if cuda is not None and isinstance(cuda.compiler, Nvcc):
        rows.extend(judge_flags(cuda.host_compiler, system.environ.get("NVCC_APPEND_FLAGS", "")))
    return result.toolchain._replace(warnings=tuple(dict.fromkeys(rows)))
