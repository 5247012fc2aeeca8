"""HIP for AMD GPUs: the first hipcc or clang++ that compiles for an architecture, with ROCm or without it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from be_toolchain import errors, settings
from be_toolchain.arch import AmdArch
from be_toolchain.find.compilers import Candidate, Found, from_path
from be_toolchain.known import layouts
from be_toolchain.machine.system import RunResult, System
from be_toolchain.named import NamedTuple

DEVICE_ONLY = ("-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-fuse-cuid=none")
"""Options for a code object, which is an ELF file, without a host side."""

WITHOUT_ROCM = ("-nogpuinc", "-nogpulib")

_BANNER = re.compile(r"^.*\bclang version \d+.*$", re.MULTILINE)
_ERROR = re.compile(r"\berror: (.*)")
_USED = re.compile(r'^ "([^"]+)"|"-mlink-builtin-bitcode" "([^"]+)"', re.MULTILINE)
"""A program or a library of device code in the commands that clang prints; a program that is absent has no folder."""


class HipCompiler(NamedTuple):
    """A compiler of HIP for one architecture.

    Parameters
    ----------
    path : Path
        The hipcc or clang++.
    banner : str
        The line with its version.
    has_rocm : bool
        Whether it has HIP's headers and libraries for the architecture.
    used : tuple of Path
        The programs that it calls, and the libraries that it reads, for every source.
    """

    path: Path
    banner: str
    has_rocm: bool
    used: tuple[Path, ...]

    def command(self, arch: AmdArch) -> tuple[str, ...]:
        """Return the beginning of a command that compiles for an architecture."""
        bare = () if self.has_rocm else WITHOUT_ROCM
        return (str(self.path), *DEVICE_ONLY, *bare, f"--offload-arch={arch}")


def hip_candidates(system: System) -> Iterator[Found]:
    """Yield the possible compilers, best first; only the named one if ``BE_HIPCC`` names one."""
    named = settings.set_variables(settings.HIPCC.variables, system.environ)
    if named:
        variable, value = named[0]
        path = system.which(value)
        missing = errors.Probe(variable, value, "no such program", errors.correct(variable))
        yield missing if path is None else Candidate(path, variable)
        return
    found = system.which("hipcc")
    yield errors.Probe("PATH", "hipcc", "not on PATH") if found is None else Candidate(found, "PATH")
    rocm = Path(system.environ.get("ROCM_PATH") or layouts.ROCM_ROOT)
    programs = [path for name in ("hipcc", "amdclang++") if system.is_program(path := rocm / "bin" / name)]
    yield from (Candidate(path, "ROCm") for path in programs)
    if not programs:
        yield errors.Probe("ROCm", str(rocm), "no hipcc and no amdclang++ there")
    for each in from_path(system):
        name = each.path.name if isinstance(each, Candidate) else each.place
        if name.startswith("clang++"):
            yield each


def find_hip(system: System, arch: AmdArch) -> HipCompiler:
    """Find the first compiler that compiles HIP for an architecture.

    Raises
    ------
    HipNotFoundError
        There is no such compiler. The error has the reason for each that was tried.
    """
    probes: list[errors.Probe] = []
    for each in hip_candidates(system):
        found = _ask(system, each, arch) if isinstance(each, Candidate) else each
        if isinstance(found, HipCompiler):
            return found
        probes.append(found)
    raise errors.HipNotFoundError(
        f"no compiler here compiles HIP for {arch}",
        probes=tuple(probes),
        hints=("apt-get install clang-19 lld-19, which need no ROCm", "or name a hipcc or clang++ in BE_HIPCC"),
    )


def _ask(system: System, candidate: Candidate, arch: AmdArch) -> HipCompiler | errors.Probe:
    """Ask a compiler for the commands that it would run; it prints an error if a part is missing."""
    path = candidate.path
    asked = [HipCompiler(path, "", has_rocm, ()).command(arch) for has_rocm in (True, False)]
    commands = [(*command, "-###", "-c", "/dev/null") for command in asked]
    version, *answers = system.run_all(((str(path), "--version"), *commands), unset=layouts.PROBE_UNSET)
    banner = _BANNER.search(version.text)
    if banner is None:
        return candidate.probe._replace(reason=version.why_failed or "it is neither clang nor hipcc with clang")
    for has_rocm, answer in zip((True, False), answers, strict=True):
        if answer.returncode == 0:
            used = dict.fromkeys(Path(program or library) for program, library in _USED.findall(answer.text))
            absent = [str(each) for each in used if not each.is_absolute()]
            if absent:
                return candidate.probe._replace(reason=f"{banner[0].strip()} lacks {', '.join(absent)} of its release")
            return HipCompiler(path, banner[0].strip(), has_rocm, tuple(used))
    return candidate.probe._replace(reason=f"{banner[0].strip()}: {_problem(answers[-1])}")


def _problem(answer: RunResult) -> str:
    found = _ERROR.search(answer.text)
    return found[1].partition(";")[0] if found is not None else answer.why_failed
