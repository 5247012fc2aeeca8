"""A report of the doctor: findings, what they rest on, and the same as JSON data."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from be_toolchain import __version__
from be_toolchain.errors import PreferenceError, Probe, ToolchainError
from be_toolchain.find.devices import DeviceReport
from be_toolchain.find.record import encode
from be_toolchain.model import Toolchain
from be_toolchain.report.exit_codes import NO_CUDA, NO_CXX, WORKS
from be_toolchain.rules.surroundings import Surroundings

if TYPE_CHECKING:
    from be_toolchain.report.smoke import SmokeResult

REPORT_SCHEMA = 1
"""Raised whenever a field of `Report.to_json` changes its meaning."""

Status = Literal["ok", "note", "warn", "fail"]


class Remark(NamedTuple):
    """One line of a report.

    Parameters
    ----------
    status : {"ok", "note", "warn", "fail"}
        ``"fail"`` alone makes the exit code.
    subject, message : str
        What it is about, and what was found.
    next_step : str
        What to do about it; empty when there is nothing to do.
    """

    status: Status
    subject: str
    message: str
    next_step: str = ""


class Report(NamedTuple):
    """All that the doctor found.

    Parameters
    ----------
    findings : tuple of Remark
        In the order in which they are shown.
    toolchain : Toolchain
        As far as there is one.
    devices : DeviceReport
        The driver and its GPUs.
    probes : tuple of (subject, probes)
        Every place looked at.
    problems : tuple of ToolchainError
        What stands against building.
    surroundings : Surroundings
        jax, the C library and folders.
    smoke : tuple of SmokeResult
        Trials, when they were asked for.
    home : str
        The user's home folder, which texts call ``~``; empty when unknown.
    exit_code : int
        0 all works, 1 CUDA builds can't work, 2 C++ builds can't work.
    """

    findings: tuple[Remark, ...]
    toolchain: Toolchain
    devices: DeviceReport
    probes: tuple[tuple[str, tuple[Probe, ...]], ...]
    problems: tuple[ToolchainError, ...]
    surroundings: Surroundings
    exit_code: int
    smoke: tuple[SmokeResult, ...] = ()
    home: str = ""

    @property
    def verdict(self) -> str:
        """One sentence."""
        if any(isinstance(problem, PreferenceError) for problem in self.problems):
            return "With these settings neither C++ nor CUDA builds can work here."
        return {
            WORKS: "CUDA and C++ builds can work here.",
            NO_CUDA: "C++ builds can work here; CUDA builds cannot.",
            NO_CXX: "Neither C++ nor CUDA builds can work here.",
        }[self.exit_code]

    @property
    def explained(self) -> tuple[ToolchainError, ...]:
        """The problems with more to say than their finding: the places looked at, further hints."""
        return tuple(problem for problem in self.problems if problem.probes or problem.hints[1:])

    def redact(self, text: str) -> str:
        """A text for people, who may paste it where all can read it: without the name of the user's home folder."""
        return text.replace(f"{self.home}/", "~/") if len(self.home) > 1 else text

    def to_json(self) -> dict[str, Any]:
        """The report as JSON data.

        Returns
        -------
        dict
            ``schema``, ``version``, ``python``, ``exit_code``, ``verdict``, ``findings``, ``toolchain``,
            ``fingerprint``, ``devices``, ``surroundings``, ``probes`` by subject, ``smoke``, and ``problems`` with
            their codes and hints; docs/doctor-schema.md lists every field. Paths are whole: programs read them.
        """
        return {
            "schema": REPORT_SCHEMA,
            "version": __version__,
            "python": platform.python_version(),
            "exit_code": self.exit_code,
            "verdict": self.verdict,
            "findings": encode(self.findings),
            "toolchain": encode(self.toolchain),
            "fingerprint": self.toolchain.fingerprint,
            "devices": encode(self.devices),
            "surroundings": encode(self.surroundings),
            "smoke": encode(self.smoke),
            "probes": {subject: encode(probes) for subject, probes in self.probes},
            "problems": [
                {"code": problem.code, "message": problem.message, "hints": list(problem.hints)}
                for problem in self.problems
            ],
        }
