"""The choice of installations that repair the doctor's problems. Pure."""

from __future__ import annotations

from typing import NamedTuple

from be_toolchain.errors import (
    CudaNotFoundError,
    HostCompilerNotFoundError,
    IncoherentToolchainError,
    ToolchainError,
    UnsupportedHostCompilerError,
)
from be_toolchain.install.model import InstallRequest, Situation
from be_toolchain.install.plan import FIRST_PIP_MAJOR, mixture_of
from be_toolchain.known.versions import release_of, version_key
from be_toolchain.machine.system_packages import host_package


class Repairs(NamedTuple):
    """The repairs for a report.

    Parameters
    ----------
    requests : tuple of (reason, InstallRequest)
        The installations, each with the problem that it repairs.
    manual : tuple of str
        The repairs that are left to the user, with their commands.
    """

    requests: tuple[tuple[str, InstallRequest], ...] = ()
    manual: tuple[str, ...] = ()


def find_repairs(situation: Situation, problems: tuple[ToolchainError, ...]) -> Repairs:
    """Choose the installations that solve the doctor's problems.

    Parameters
    ----------
    situation : Situation
        The facts about the machine.
    problems : tuple of ToolchainError
        The problems of the doctor's report.

    Returns
    -------
    Repairs
        Wheels of different releases are repaired even if another toolkit is in use: they come first in the search.
    """
    requests: list[tuple[str, InstallRequest]] = []
    manual: list[str] = []
    broken = _broken_environment(situation)
    if broken is not None:
        requests.append(broken)
    for problem in problems:
        if isinstance(problem, HostCompilerNotFoundError):
            command = host_package(situation.distribution)
            requests.append((problem.message, InstallRequest(host_compiler=True)))
            manual.append(f"for nvcc, and as the better C++ compiler: {command}")
        elif isinstance(problem, UnsupportedHostCompilerError):
            manual.extend(problem.hints[:1])
        elif isinstance(problem, IncoherentToolchainError) and broken is None:
            manual.extend(problem.hints)
        elif isinstance(problem, CudaNotFoundError) and broken is None:
            requests.append((problem.message, InstallRequest(cuda="auto")))
        elif not isinstance(problem, CudaNotFoundError):
            manual.extend(problem.hints[:1])
    return Repairs(requests=tuple(requests), manual=tuple(dict.fromkeys(manual)))


def _broken_environment(situation: Situation) -> tuple[str, InstallRequest] | None:
    """Find the installation that makes the environment's CUDA wheels one release again."""
    if situation.interrupted:
        known = situation.interrupted if situation.interrupted[0].isdigit() else "auto"
        reason = f"an installation of CUDA wheels into {situation.site} was interrupted"
        why = f"CUDA {known} is the release of the interrupted installation"
        return reason, InstallRequest(cuda=_fitting(known, situation), into="env", why=why)
    wrong = mixture_of(situation.present)
    if not wrong:
        return None
    nvcc = next(version for name, version in situation.present if name == "nvidia-cuda-nvcc")
    release = release_of(nvcc)
    return f"the CUDA wheels in {situation.site} are {wrong}", InstallRequest(
        cuda=_fitting(release, situation), into="env", why=f"CUDA {release} is the release of the nvcc in it"
    )


def _fitting(release: str, situation: Situation) -> str:
    """Return a release if jax's plugin in the environment accepts it, else the newest that fits."""
    if release == "auto" or version_key(release)[0] < FIRST_PIP_MAJOR:
        return "auto"
    least = max((version_key(release_of(version)) for _, version in situation.minimums), default=())
    return release if version_key(release) >= least else "auto"
