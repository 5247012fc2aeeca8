"""C++ compilers: the ordered steps that find them, and the questions that identify each one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from be_toolchain import errors, settings, values
from be_toolchain.known import layouts, versions
from be_toolchain.machine.files import OTHER_STORE, ZIG_PREFIX, distrust_managed, find_managed, find_store
from be_toolchain.machine.system import System

LAUNCHERS = ("ccache", "sccache", "distcc", "icecc")
"""Compiler launchers, which come before the compiler in ``CXX``."""

NO_ANSWER = "repair or remove it"
"""The hint for a program with a compiler's name that does not answer as a compiler."""


class Candidate(NamedTuple):
    """A place that a search step found, before it is examined.

    Parameters
    ----------
    path : Path
        The absolute path of a C++ compiler or an nvcc, which may be a wrapper script or a link, or of a folder.
    found_via : str
        The search step.
    is_joined : bool
        Whether the path is a folder of joined CUDA 12 wheels, with which clang compiles.
    """

    path: Path
    found_via: str
    is_joined: bool = False

    @property
    def probe(self) -> errors.Probe:
        """The place without a reason for or against it."""
        return errors.Probe(self.found_via, str(self.path))


Found = Candidate | errors.Probe


def conda_prefixes(system: System) -> tuple[Path, ...]:
    """Return the conda environments of the running Python, without an environment that is only activated."""
    return tuple(prefix for prefix in system.prefixes if system.is_dir(prefix / "conda-meta"))


def named_compiler(system: System, variable: str, value: str) -> Iterator[Found]:
    """Find the compiler that a variable names: a path, a name on PATH, or either of them after ccache.

    Flags behind the compiler are ignored in variables of other programs, such as ``CXX``, and refused elsewhere.
    """
    whole = Path(value)
    is_place = whole.is_absolute() and (system.is_program(whole) or system.is_dir(whole))
    words = [value] if is_place else _split(value)  # a path with spaces needs no quotes
    while len(words) > 1 and Path(words[0]).name in LAUNCHERS:
        words = words[1:]
    name = words[0] if words else ""
    is_folder = name.startswith("/") and system.is_dir(Path(name))
    if is_folder:
        name = str(Path(name) / "g++")
    path = system.which(name)
    if path is None and name and "/" not in name:  # conda puts its bin folder on PATH only in an activated prefix
        places = (prefix / "bin" / name for prefix in conda_prefixes(system))
        path = next((place for place in places if system.is_program(place)), None)
    if len(words) > 1 and variable not in (*settings.PLAIN_CXX.variables, *settings.CUDA_HOSTS.variables):
        reason = f"{shlex.join(words[1:])} would be ignored: pass flags as extra_cflags"
        yield errors.Probe(variable, value, reason, errors.correct(variable))
    elif path is not None:
        yield Candidate(path, variable)
    else:
        reason = "no g++ in this folder" if is_folder else "no such program"
        yield errors.Probe(variable, value, reason, errors.correct(variable))


def _split(value: str) -> list[str]:
    """Split a command into words as a shell does; accept any text."""
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def from_conda(system: System) -> Iterator[Found]:
    """Search the running Python's conda prefix, since its libstdc++ may be older than another compiler needs."""
    for prefix in conda_prefixes(system):
        triplets = layouts.CONDA_TRIPLETS.get(system.machine, ())
        names = [f"{triplet}-{name}" for triplet in triplets for name in ("c++", "g++", "clang++")]
        names += [name for plain, _ in layouts.CXX_FAMILIES for name in plain]
        programs = [path for name in names if system.is_program(path := prefix / "bin" / name)]
        if not programs:
            yield errors.Probe("conda", str(prefix), "no C++ compiler in this conda prefix")
        for path in programs:
            yield Candidate(path, "conda")


def from_managed(system: System) -> Iterator[Found]:
    """Find the C++ compilers that ``install --host-compiler`` installed, newest first."""
    store = find_store(system)
    if store.problem:
        yield errors.Probe("managed", str(store.path), store.problem, OTHER_STORE)
    for name in find_managed(system, ZIG_PREFIX):
        assert store.path is not None
        path = store.path / name / "bin" / "clang++"
        if system.is_program(path) and not distrust_managed(system, store.path / name):
            yield Candidate(path, "managed")


def from_path(system: System) -> Iterator[Found]:
    """Search PATH: for each family the plain names, then versioned ones such as g++-12, newest first."""
    for names, prefix in layouts.CXX_FAMILIES:
        for name in names:
            path = system.which(name)
            yield errors.Probe("PATH", name, "not on PATH") if path is None else Candidate(path, "PATH")
        yield from _versioned(system, prefix)


def _versioned(system: System, prefix: str) -> Iterator[Found]:
    """Find the names on PATH that end with a version, newest first."""
    programs: list[tuple[tuple[int, ...], Path]] = []
    for folder in system.path_dirs:
        for name in system.list_dir(folder):
            version = name.removeprefix(prefix)
            if version != name and version.replace(".", "").isdigit() and system.is_program(folder / name):
                programs.append((versions.version_key(version), folder / name))
    if not programs:
        yield errors.Probe("PATH", f"{prefix}<version>", "none on PATH")
    for _, path in sorted(programs, key=lambda row: row[0], reverse=True):
        yield Candidate(path, "PATH")


def host_candidates(
    system: System, preferences: settings.Preferences, requested: Path | None, *, for_cuda: bool
) -> Iterator[Found]:
    """Yield every place for a C++ compiler, best first; only the named one if the caller or ``BE_CXX`` names one."""
    if requested is not None:
        yield from named_compiler(system, "argument cxx", shlex.quote(str(requested)))
        return
    if preferences.cxx is not None:
        yield from named_compiler(system, *preferences.cxx)
        return
    for variable, value in preferences.cuda_hosts if for_cuda else ():
        yield from named_compiler(system, variable, value)
    if preferences.plain_cxx is not None:
        yield from named_compiler(system, *preferences.plain_cxx)
    yield from from_conda(system)
    yield from from_path(system)
    for found in from_managed(system):
        if not for_cuda:
            yield found
        elif isinstance(found, Candidate):
            yield found.probe._replace(reason="its C++ library is libc++, which CUDA's headers refuse on x86")


def probe_compiler(system: System, candidate: Candidate) -> values.HostCompiler | errors.Probe:
    """Run a program to identify the compiler; if it can't be used, return a probe with the reason."""
    path, found_via, _ = candidate
    answer, machine = system.run_all(((str(path), "-v"), (str(path), "-dumpmachine")), unset=layouts.PROBE_UNSET)
    found = versions.parse_host_version(answer.text)
    if found is None:
        return errors.Probe(found_via, str(path), answer.why_failed or "it is neither gcc nor clang", NO_ANSWER)
    if found.install_file is not None:
        system.stat(found.install_file)
    least = layouts.MIN_CXX_MAJOR[found.family]
    if versions.version_key(found.version)[0] < least:
        reason = f"{found.family} {found.version} is older than {found.family} {least}, the first with C++17"
        return errors.Probe(found_via, str(path), reason)
    target, content = found.target or machine.stdout.strip(), identify_files(system, path)
    return values.HostCompiler(path, found.family, found.version, target, found_via, found.banner, content)


_HEAD_BYTES = 1 << 16


def identify_files(system: System, *paths: Path) -> str:
    """Hash files: a script as a whole, a binary by its size and its beginning, which contains the build id."""
    import hashlib

    digest = hashlib.sha256()
    for path in paths:
        found = system.stat(path)
        text = system.read_text(path, _HEAD_BYTES) or ""
        text = system.read_text(path) or "" if text.startswith("#!") else text
        digest.update(f"{found.size_bytes if found else 0} {text}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:32]


class Compilers:
    """The C++ compilers of a machine. Each is run at most once.

    Parameters
    ----------
    system : System
        The machine.
    preferences : Preferences
        The settings that steer the search.
    requested : Path, optional
        The only compiler that the caller accepts.
    """

    def __init__(self, system: System, preferences: settings.Preferences, requested: Path | None) -> None:
        self._system = system
        self._preferences = preferences
        self._requested = requested
        self._asked: dict[Path, values.HostCompiler | errors.Probe] = {}

    def each(self, *, for_cuda: bool) -> Iterator[values.HostCompiler | errors.Probe]:
        """Yield every compiler that works, best first, and a probe for every place without one."""
        seen: set[Path] = set()
        for candidate in host_candidates(self._system, self._preferences, self._requested, for_cuda=for_cuda):
            if isinstance(candidate, errors.Probe):
                yield candidate
            elif candidate.path not in seen:
                seen.add(candidate.path)
                yield self._ask(candidate)

    def _ask(self, candidate: Candidate) -> values.HostCompiler | errors.Probe:
        """Run a program once; the answer names the step that finds the program this time."""
        if candidate.path not in self._asked:
            self._asked[candidate.path] = probe_compiler(self._system, candidate)
        answer = self._asked[candidate.path]._replace(found_via=candidate.found_via)
        if isinstance(answer, errors.Probe) and candidate.found_via in self._preferences.compiler_names:
            return answer._replace(hint=errors.correct(candidate.found_via))
        return answer
