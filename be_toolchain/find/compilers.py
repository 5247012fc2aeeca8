"""The C++ compilers of a machine, each asked once, whoever wants to know."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from be_toolchain.errors import Probe, correct
from be_toolchain.find.hosts import HostCandidate, host_candidates, probe_compiler
from be_toolchain.machine.system import System
from be_toolchain.model import HostCompiler
from be_toolchain.settings.preferences import Preferences


class Compilers:
    """The C++ compilers of a machine, each asked at most once.

    Parameters
    ----------
    system : System
        The machine.
    preferences : Preferences
        The environment's wishes.
    requested : Path, optional
        The caller's.
    """

    def __init__(self, system: System, preferences: Preferences, requested: Path | None) -> None:
        self._system = system
        self._preferences = preferences
        self._requested = requested
        self._asked: dict[Path, HostCompiler | Probe] = {}

    def each(self, *, for_cuda: bool) -> Iterator[HostCompiler | Probe]:
        """Every compiler that works, best first, and every place that lost."""
        seen: set[Path] = set()
        for candidate in host_candidates(self._system, self._preferences, self._requested, for_cuda=for_cuda):
            if isinstance(candidate, Probe):
                yield candidate
            elif candidate.path not in seen:
                seen.add(candidate.path)
                yield self._ask(candidate)

    def _ask(self, candidate: HostCandidate) -> HostCompiler | Probe:
        """Ask once; a later step that finds the same program gives its own name to the answer."""
        if candidate.path not in self._asked:
            self._asked[candidate.path] = probe_compiler(self._system, candidate)
        answer = self._asked[candidate.path]._replace(found_via=candidate.found_via)
        named = isinstance(answer, Probe) and candidate.found_via in self._preferences.compiler_names
        return answer._replace(hint=correct(candidate.found_via)) if isinstance(answer, Probe) and named else answer
