"""What works here, what does not, and what to do next: a report as a value, as text and as JSON."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from be_toolchain import __version__
from be_toolchain.coherence import judge_archs, judge_driver, render_limits
from be_toolchain.devices import DeviceReport, probe_devices
from be_toolchain.errors import Probe, ToolchainError, render_probes
from be_toolchain.model import CudaToolkit, HostCompiler, Toolchain, ToolchainRequest
from be_toolchain.record import encode
from be_toolchain.survey import Survey, survey
from be_toolchain.system import System
from be_toolchain.versions import version_key

REPORT_SCHEMA = 1
"""Raised whenever a field of `Report.to_json` changes its meaning."""

Status = Literal["ok", "note", "warn", "fail"]

WORKS, NO_CUDA, NO_CXX, INTERNAL = 0, 1, 2, 3
"""Exit codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that the doctor found.

    Parameters
    ----------
    findings : tuple of Finding
        In the order in which they are shown.
    toolchain : Toolchain
        As far as there is one.
    devices : DeviceReport
        The driver and its GPUs.
    probes : tuple of (subject, probes)
        Every place looked at.
    problems : tuple of ToolchainError
        What stands against building.
    exit_code : int
        0 all works, 1 CUDA builds can't work, 2 C++ builds can't work.
    """

    findings: tuple[Finding, ...]
    toolchain: Toolchain
    devices: DeviceReport
    probes: tuple[tuple[str, tuple[Probe, ...]], ...]
    problems: tuple[ToolchainError, ...]
    exit_code: int

    @property
    def verdict(self) -> str:
        """One sentence."""
        return {
            WORKS: "CUDA and C++ builds can work here.",
            NO_CUDA: "C++ builds can work here; CUDA builds cannot.",
            NO_CXX: "Neither C++ nor CUDA builds can work here.",
        }[self.exit_code]

    def to_json(self) -> dict[str, Any]:
        """The report as JSON data.

        Returns
        -------
        dict
            ``schema``, ``version``, ``python``, ``exit_code``, ``verdict``, ``findings``, ``toolchain``,
            ``fingerprint``, ``devices``, ``probes`` by subject, and ``problems`` with their codes and hints.
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
            "probes": {subject: encode(probes) for subject, probes in self.probes},
            "problems": [
                {"code": problem.code, "message": problem.message, "hints": list(problem.hints)}
                for problem in self.problems
            ],
        }


def examine_machine(system: System) -> Report:
    """Look at compilers, CUDA toolkits, driver and GPUs, and judge how they fit.

    Returns
    -------
    Report
        Never raises a `ToolchainError`: those are findings.
    """
    devices = probe_devices(system)
    try:
        found = survey(ToolchainRequest(need_cuda=True, need_cxx=True), system)
    except ToolchainError as error:
        finding = Finding(status="fail", subject="settings", message=error.message, next_step=_first(error.hints))
        return Report(
            findings=(finding,), toolchain=Toolchain(), devices=devices, probes=(), problems=(error,), exit_code=NO_CXX
        )
    problems = tuple(dict.fromkeys(p for p in (found.cxx_problem, found.cuda_problem) if p is not None))
    exit_code = NO_CXX if found.cxx_problem else NO_CUDA if found.cuda_problem else WORKS
    probes = (
        ("C++ compiler", found.cxx_probes),
        ("CUDA toolkit", found.cuda_probes),
        ("nvcc's host compiler", found.host_probes),
    )
    return Report(
        findings=tuple(_findings(found, devices)),
        toolchain=found.toolchain,
        devices=devices,
        probes=probes,
        problems=problems,
        exit_code=exit_code,
    )


def _findings(found: Survey, devices: DeviceReport) -> Iterator[Finding]:
    """Every line of the report."""
    toolchain = found.toolchain
    yield _compiler_finding("C++ compiler", toolchain.cxx, found.cxx_problem)
    if toolchain.cuda is None:
        yield _failed("CUDA toolkit", found.cuda_problem)
    else:
        yield from _toolkit_findings(toolchain.cuda)
        yield from _passed_over(found.cuda_probes)
    yield from _device_findings(devices, toolchain.cuda)
    for warning in toolchain.warnings:
        yield Finding(status="warn", subject="compiler", message=warning.message, next_step=warning.hint)
    for name, value in toolchain.environment:
        yield Finding(status="note", subject="environment", message=f"{name}={value} changes what the compilers do")


def _compiler_finding(subject: str, compiler: HostCompiler | None, problem: ToolchainError | None) -> Finding:
    """A C++ compiler, or why there is none."""
    if compiler is None:
        return _failed(subject, problem)
    text = f"{compiler.family} {compiler.version}, {compiler.path} (from {compiler.found_via})"
    return Finding(status="ok", subject=subject, message=text)


def _failed(subject: str, problem: ToolchainError | None) -> Finding:
    """A part that is missing."""
    if problem is None:
        return Finding(status="fail", subject=subject, message="not found")
    return Finding(status="fail", subject=subject, message=problem.message, next_step=_first(problem.hints))


def _first(hints: tuple[str, ...]) -> str:
    """The likeliest hint."""
    return hints[0] if hints else ""


def _toolkit_findings(toolkit: CudaToolkit) -> Iterator[Finding]:
    """The toolkit, its parts and its host compiler."""
    yield Finding(
        status="ok",
        subject="CUDA toolkit",
        message=f"{toolkit.release} (nvcc {toolkit.nvcc_version}), {toolkit.root} (from {toolkit.found_via})",
    )
    known = [component for component in toolkit.components if component.version]
    unknown = [component.name for component in toolkit.components if not component.version]
    text = f"all of one release: {', '.join(f'{part.name} {part.version}' for part in known)}"
    yield Finding(
        status="ok",
        subject="components",
        message=text + (f"; version not recorded: {', '.join(unknown)}" if unknown else ""),
    )
    host = toolkit.host_compiler
    named = f"{host.family} {host.version}, {host.path}"
    limits = render_limits(toolkit.host_limits)
    if toolkit.allow_unsupported_compiler:
        message = f"{named} is outside of what nvcc accepts ({limits}) and used because you asked for it"
        yield Finding(status="warn", subject="host compiler", message=message, next_step="use an accepted one")
    else:
        yield Finding(status="ok", subject="host compiler", message=f"{named}; nvcc accepts {limits}")
    if toolkit.archs:
        first, last = toolkit.archs[0], toolkit.archs[-1].base
        yield Finding(status="ok", subject="GPU targets", message=f"{first.sm} to {last.sm}")


def _passed_over(probes: tuple[Probe, ...]) -> Iterator[Finding]:
    """Toolkits that are here, would have come first, and can be repaired."""
    for probe in probes:
        if probe.hint:
            message = f"passed over {probe.place} (from {probe.found_via}): {probe.reason}"
            yield Finding(status="warn", subject="CUDA toolkit", message=message, next_step=probe.hint)


def _device_findings(devices: DeviceReport, toolkit: CudaToolkit | None) -> Iterator[Finding]:
    """The driver and the GPUs; their absence is no failure."""
    if not devices.devices:
        yield Finding(
            status="note",
            subject="GPU",
            message=f"none ({devices.problem or 'the driver lists none'}); kernels can be built here, not run",
            next_step='pass an arch when building, such as "sm_90"',
        )
    for device in devices.devices:
        yield Finding(status="ok", subject=f"GPU {device.index}", message=f"{device.name}, {device.arch.sm}")
    if devices.driver_version is None:
        return
    release = devices.driver_release or ""
    number = f"{release}, " if release else ""
    yield Finding(status="ok", subject="driver", message=f"{number}speaks CUDA {devices.driver_version}")
    if toolkit is None:
        return
    present = tuple(sorted({device.arch for device in devices.devices}))
    for row in (*judge_driver(toolkit.release, devices.driver_version, release), *judge_archs(present, toolkit)):
        yield Finding(status="warn", subject="driver", message=row.message, next_step=row.hint)


def render_report(report: Report, *, verbose: bool = False) -> str:
    """The report as plain text that pastes well.

    Parameters
    ----------
    report : Report
        What was found.
    verbose : bool
        Add every place looked at; a report of a failure has those of what failed anyway.

    Returns
    -------
    str
        Lines without a final newline.
    """
    width = max(len(finding.subject) for finding in report.findings)
    lines = [heading()]
    for finding in report.findings:
        lines.append(f"{finding.status:<4}  {finding.subject:<{width}}  {finding.message}")
        if finding.next_step:
            lines.append(f"{'':<4}  {'':<{width}}  next: {finding.next_step}")
    lines.extend(f"\n{problem.code}: {problem}" for problem in report.problems)
    if verbose:
        lines.extend(render_probe_lists(report))
    lines.append(f"\n{report.verdict}")
    return "\n".join(lines)


def render_probe_lists(report: Report) -> Iterator[str]:
    """Every place looked at, by subject, and what nvcc's parts are."""
    for subject, probes in report.probes:
        if probes:
            yield f"\nlooked at for {subject}:\n{render_probes(probes)}"
    if report.toolchain.cuda is not None:
        rows = sorted(report.toolchain.cuda.components, key=lambda part: (version_key(part.version), part.name))
        listed = (f"  {part.name:<9}  {part.version or '?':<9}  {part.path}  ({part.source or '-'})" for part in rows)
        yield "\nparts of the CUDA toolkit:\n" + "\n".join(listed)


def heading() -> str:
    """The first line: what reports, and on what."""
    return f"be_toolchain {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
