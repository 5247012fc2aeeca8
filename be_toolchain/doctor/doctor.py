"""The examination of the machine for a report: what works here, what does not, and what to do next."""

from __future__ import annotations

import itertools
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from be_toolchain import __version__
from be_toolchain.errors import PreferenceError, Probe, ToolchainError, render_probes
from be_toolchain.find.coherence import (
    Surroundings,
    judge_archs,
    judge_cuda12_wheels,
    judge_driver,
    judge_folder,
    judge_jax,
    judge_room,
    probe_surroundings,
    refused_settings,
    render_limits,
)
from be_toolchain.find.devices import LIBCUDA, DeviceReport, ask_aside
from be_toolchain.find.record import encode
from be_toolchain.find.survey import Survey, survey
from be_toolchain.known.versions import version_key
from be_toolchain.machine.system import System
from be_toolchain.settings import (
    FOLDER,
    RUNTIME,
    PassedOver,
    RemoteSource,
    find_configuration,
    find_remote,
    read_setting,
)
from be_toolchain.terminal import NO_CUDA, NO_CXX, WORKS, printable, printable_line, shown_key
from be_toolchain.values import ClangCuda, CudaToolkit, HostCompiler, Nvcc, Toolchain, ToolchainRequest

if TYPE_CHECKING:
    from be_toolchain.doctor.smoke import SmokeResult


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
        message = finding.message.replace("\n", f"\n{'':<4}  {'':<{width}}  ")
        lines.append(f"{finding.status:<4}  {finding.subject:<{width}}  {message}")
        if finding.next_step:
            lines.append(f"{'':<4}  {'':<{width}}  next: {finding.next_step}")
    lines.extend(f"\n{problem.code}: {problem}" for problem in report.explained)
    if verbose:
        lines.extend(render_probe_lists(report))
    lines.append(f"\n{report.verdict}")
    return printable(report.redact("\n".join(lines)))


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


_SUBJECT = "remote cache"
_NOBODY = "0" * 64
"""A name that no entry has."""

_FSSPEC_NEEDS = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("abfs", "abfss", "az", "adl"), "adlfs"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
    **dict.fromkeys(("webdav", "webhdfs"), "requests"),
    "smb": "smbprotocol",
    "oci": "ocifs",
    "oss": "ossfs",
    "hf": "huggingface_hub",
}
"""Packages without which fsspec does not reach a scheme, of those that it knows:
https://filesystem-spec.readthedocs.io/en/latest/api.html#other-known-implementations."""


def report_remote(system: System) -> Iterator[Remark]:
    """Yield findings if settings name a remote cache or a private key; a web server is asked whether it answers."""
    names = ("remote_cache", "remote_cache_write", "remote_cache_public_key", "remote_cache_private_key")
    try:
        url, writes, keys, private_key = (read_setting(RUNTIME[name], system.environ) for name in names)
    except PreferenceError:
        return  # reported with all other settings
    try:
        source = find_remote(system, url or "", keys or "")
    except PreferenceError as error:
        yield Remark("warn", _SUBJECT, f"{error.message}, so what is not compiled yet is not loaded", *error.hints[:1])
        return
    if source.problem:
        yield Remark("warn", _SUBJECT, *source.problem.split("; ", 1))
    if source.url:
        yield _describe(system, source, writes=bool(writes) and source.may_write)
    if private_key is not None:
        yield from _judge_private_key(system, private_key)
    if (source.keys or private_key is not None) and not system.has_package("cryptography"):
        message = (
            "keys need the package cryptography, which is not installed, so what is not compiled yet is not loaded"
        )
        yield Remark("warn", _SUBJECT, message, "pip install 'brainevent-toolchain[signing]'")


def _describe(system: System, source: RemoteSource, *, writes: bool) -> Remark:
    way = "read and written" if writes else "only read"
    trust = f"entries signed by the keys of {source.keys_named_by}" if source.keys else "entries are not signed"
    text = f"{source.label} (from {source.named_by}), {way}, {trust}"
    if not source.url.startswith(("http://", "https://")):
        return _describe_fsspec(system, source, text)
    problem = system.ask_server(source.url, f"{FOLDER}/{_NOBODY}")
    if problem:
        message = f"{text}; it does not answer as it should: {printable_line(problem)}"
        return Remark("warn", _SUBJECT, message, "correct it, or unset it: until then all is compiled here")
    return Remark("ok", _SUBJECT, f"{text}; it answers")


def _describe_fsspec(system: System, source: RemoteSource, text: str) -> Remark:
    """Describe what is no web server, by the packages that a load imports for it."""
    package = _FSSPEC_NEEDS.get(source.url.partition("://")[0])
    absent = [name for name in ("fsspec", package) if name and not system.has_package(name)]
    if not absent:
        return Remark("note", _SUBJECT, f"{text}; whether it answers is not known: loads alone ask it, by fsspec")
    message = f"{text}; it needs {' and '.join(absent)}, not installed, so what is not compiled yet is not loaded"
    wanted = "'brainevent-toolchain[s3]'" if package == "s3fs" else " ".join(absent)
    return Remark("warn", _SUBJECT, message, f"pip install {wanted}")


def _judge_private_key(system: System, path: Path) -> Iterator[Remark]:
    """Yield a finding if a private key is none that can be used, or no secret."""
    problem, variable = system.private_key_problem(path), RUNTIME["remote_cache_private_key"].variable
    if problem.startswith("can't"):
        problem = f"{problem}, so what is not compiled yet is not loaded"
        yield Remark(
            "warn", _SUBJECT, f"{variable} is {shown_key(str(path))}, which {problem}", "correct it, or unset it"
        )
    elif problem:
        yield Remark("warn", _SUBJECT, f"{variable} is {path}, which {problem}", f"chmod 600 {path}")


def examine_machine(
    system: System, *, smoke: bool = False, devices: Callable[[], DeviceReport] | None = None
) -> Report:
    """Examine compilers, CUDA toolkits, driver and GPUs, and judge how they fit together.

    Parameters
    ----------
    system : System
        The machine.
    smoke : bool
        Build and run programs with the compilers that were found, which takes seconds.
    devices : callable, optional
        The result of `devices.ask_aside`, if the driver is being asked already.

    Returns
    -------
    Report
        The findings. A `ToolchainError` becomes one of them and is not raised.
    """
    asked = devices or ask_aside(system)
    surroundings = probe_surroundings(system)
    home = system.environ.get("HOME", "").rstrip("/")
    request = ToolchainRequest(need_cuda=True, need_cxx=True)
    refused = refused_settings(system.environ, surroundings)
    passed: list[PassedOver] = []
    try:
        found = survey(request, system, find_configuration(system, passed.append), to_the_end=True)
    except ToolchainError as error:
        report = _report_settings((error, *refused), asked(), surroundings, home)
        return report._replace(findings=(*report.findings, *map(_file_finding, passed)))
    seen = asked()
    missing = dict.fromkeys(p for p in (found.cxx_problem, found.cuda_problem) if p is not None)
    trials = _try_all(found.toolchain, seen, surroundings, system) if smoke else ()
    failed = {trial.name for trial in trials if trial.outcome == "fail"}
    no_cxx = bool(found.cxx_problem or refused) or not failed.isdisjoint({"C++", "FFI on the CPU"})
    probes = (
        ("C++ compiler", found.cxx_probes),
        ("CUDA toolkit", found.cuda_probes),
        ("nvcc's host compiler", found.host_probes),
        ("driver and GPUs", tuple(_device_probes(seen))),
    )
    return Report(
        findings=(
            *_findings(found, seen, surroundings),
            *report_remote(system),
            *map(_file_finding, passed),
            *map(_refusal, refused),
            *map(_smoke_finding, trials),
        ),
        toolchain=found.toolchain,
        devices=seen,
        probes=probes,
        problems=(*missing, *refused),
        surroundings=surroundings,
        smoke=trials,
        home=home,
        exit_code=NO_CXX if no_cxx else NO_CUDA if found.cuda_problem or failed else WORKS,
    )


def _file_finding(passed: PassedOver) -> Remark:
    """Report a project's file that is passed over."""
    return Remark(status="warn", subject="project file", message=passed.reason, next_step=passed.remedy)


def _refusal(error: ToolchainError) -> Remark:
    """Report a setting with which nothing can be loaded."""
    return Remark(status="fail", subject="settings", message=error.message, next_step=_first(error.hints))


def _report_settings(
    errors: tuple[ToolchainError, ...], devices: DeviceReport, surroundings: Surroundings, home: str
) -> Report:
    """Make the report when a setting that steers the search has no valid value: nothing was searched."""
    return Report(
        findings=tuple(map(_refusal, errors)),
        toolchain=Toolchain(),
        devices=devices,
        probes=(),
        problems=errors,
        surroundings=surroundings,
        home=home,
        exit_code=NO_CXX,
    )


def _try_all(
    toolchain: Toolchain, devices: DeviceReport, surroundings: Surroundings, system: System
) -> tuple[SmokeResult, ...]:
    """Run the trials; their module is imported only here."""
    from be_toolchain.doctor.smoke import run_smoke

    return run_smoke(toolchain, devices, system, jax=bool(surroundings.jaxlib))


def _device_probes(devices: DeviceReport) -> Iterator[Probe]:
    """List the sources asked for the driver: libcuda, and nvidia-smi if libcuda gave no answer."""
    told = f"driver of CUDA {devices.driver_version}, {len(devices.devices)} GPU(s) visible"
    by_smi = devices.found_via == "nvidia-smi"
    answered = devices.driver_version is not None
    silent = "it reported no driver version" if by_smi else devices.problem or "it reported no driver version"
    chosen = answered and not by_smi
    yield Probe(found_via="libcuda", place=LIBCUDA, reason=told if chosen else silent, chosen=chosen)
    if by_smi:
        yield Probe(found_via="nvidia-smi", place="nvidia-smi", reason=told, chosen=True)
    elif not answered:
        yield Probe(found_via="nvidia-smi", place="nvidia-smi", reason="not on PATH, or it failed")


def _smoke_finding(trial: SmokeResult) -> Remark:
    """Report a trial."""
    status: Status = "note" if trial.outcome == "skipped" else trial.outcome
    message = f"{trial.message}\n{trial.detail}" if trial.detail else trial.message
    next_step = "the end of its output is above" if trial.detail else ""
    return Remark(status=status, subject=f"smoke: {trial.name}", message=message, next_step=next_step)


def _surrounding_findings(around: Surroundings, devices: DeviceReport, toolkit: CudaToolkit | None) -> Iterator[Remark]:
    """Report problems of jax's CUDA and of the folders."""
    if around.jaxlib:
        plugins = ", ".join(f"{name} {version}" for name, version in around.jax_plugins) or "no CUDA plugin"
        yield Remark(status="ok", subject="jax", message=f"jaxlib {around.jaxlib}, {plugins}")
    if toolkit is not None:
        for row in judge_jax(toolkit.release, around.jax_plugins, around.jaxlib, has_gpu=bool(devices.devices)):
            yield Remark(status="warn", subject="jax", message=row.message, next_step=row.hint)
    yield _cache_finding(around)
    cache, temporary = "set BE_CACHE_DIR to another folder", "set TMPDIR to another folder"
    for purpose, rows in (
        ("cache", () if around.cache_variable else judge_folder("cache", around.cache, cache)),
        ("cache", judge_room("cache", around.cache, cache)),
        ("temporary", judge_folder("temporary", around.temporary, temporary, keeps_libraries=False)),
        ("temporary", judge_room("temporary", around.temporary, temporary)),
    ):
        for row in rows:
            yield Remark(status="warn", subject=f"{purpose} folder", message=row.message, next_step=row.hint)


def _cache_finding(around: Surroundings) -> Remark:
    """Report what is in the cache."""
    folder = around.cache.own_part or around.cache.path
    if not around.cache.readable:
        step = "set BE_CACHE_DIR to a folder of your own: a cache is one user's"
        return Remark(status="warn", subject="cache", message=f"{folder} can't be read by this user", next_step=step)
    count, size, limit_mib = around.cached
    counted = f"{count} {'entry' if count == 1 else 'entries'}, {size / 2**20:.1f} of at most {limit_mib} MiB"
    return Remark(status="ok", subject="cache", message=f"{folder}, {counted}")


def _findings(found: Survey, devices: DeviceReport, around: Surroundings) -> Iterator[Remark]:
    """Yield every finding of the report."""
    toolchain = found.toolchain
    yield _compiler_finding("C++ compiler", toolchain.cxx, found.cxx_problem)
    if toolchain.cuda is None:
        yield _failed("CUDA toolkit", found.cuda_problem)
    else:
        yield from _toolkit_findings(toolchain.cuda)
    yield from _all_passed_over(found)
    yield from _wheel_findings(around, toolchain.cuda)
    yield from _device_findings(devices, toolchain.cuda)
    yield from _surrounding_findings(around, devices, toolchain.cuda)
    for warning in toolchain.warnings:
        yield Remark(status="warn", subject="compiler", message=warning.message, next_step=warning.hint)
    for name, value in toolchain.environment:
        yield Remark(status="note", subject="environment", message=f"{name}={value} changes what the compilers do")


def _compiler_finding(subject: str, compiler: HostCompiler | None, problem: ToolchainError | None) -> Remark:
    """Report a C++ compiler, or why there is none."""
    if compiler is None:
        return _failed(subject, problem)
    text = f"{compiler.family} {compiler.version}, {compiler.path} (from {compiler.found_via})"
    return Remark(status="ok", subject=subject, message=text)


def _failed(subject: str, problem: ToolchainError | None) -> Remark:
    """Report a missing part."""
    if problem is None:
        return Remark(status="fail", subject=subject, message="not found")
    return Remark(status="fail", subject=subject, message=problem.message, next_step=_first(problem.hints))


def _first(hints: tuple[str, ...]) -> str:
    """Return the most likely hint."""
    return hints[0] if hints else ""


def _toolkit_findings(toolkit: CudaToolkit) -> Iterator[Remark]:
    """Report the toolkit, its parts and its host compiler."""
    yield Remark(
        status="ok",
        subject="CUDA toolkit",
        message=f"{toolkit.release} ({toolkit.compiler.label}), {toolkit.root} (from {toolkit.found_via})",
    )
    known = [component for component in toolkit.components if component.version]
    unknown = [component.name for component in toolkit.components if not component.version]
    text = f"all of one release: {', '.join(f'{part.name} {part.version}' for part in known)}"
    yield Remark(
        status="ok",
        subject="components",
        message=text + (f"; version not recorded: {', '.join(unknown)}" if unknown else ""),
    )
    yield _host_finding(toolkit.compiler)
    if toolkit.archs:
        first, last = toolkit.archs[0], toolkit.archs[-1].base
        yield Remark(status="ok", subject="GPU targets", message=f"{first.sm} to {last.sm}")


def _host_finding(compiler: Nvcc | ClangCuda) -> Remark:
    """Report the host compiler."""
    host = compiler.host
    named = f"{host.family} {host.version}, {host.path}"
    match compiler:
        case Nvcc(allow_unsupported_compiler=True, host_limits=limits):
            accepted = render_limits(limits)
            message = f"{named} is outside of what nvcc accepts ({accepted}) and used because you asked for it"
            return Remark(status="warn", subject="host compiler", message=message, next_step="use an accepted one")
        case Nvcc(host_limits=limits):
            message = f"{named}; nvcc accepts {render_limits(limits)}"
            return Remark(status="ok", subject="host compiler", message=message)
        case ClangCuda():
            message = f"{named}; it compiles both sides; docs/toolchain.md, CUDA 12, lists the differences from nvcc"
            return Remark(status="ok", subject="CUDA compiler", message=message)


def _wheel_findings(around: Surroundings, toolkit: CudaToolkit | None) -> Iterator[Remark]:
    """Report what the environment's CUDA 12 wheels can do, unless a toolkit is in use."""
    row = judge_cuda12_wheels(around.cuda12_wheels)
    if row is not None and toolkit is None:
        yield Remark(status="note", subject="CUDA 12 wheels", message=row.message, next_step=row.hint)


def _all_passed_over(found: Survey) -> Iterator[Remark]:
    """Report the places before the chosen compilers and toolkit that can be repaired."""
    cxx, cuda = found.toolchain.cxx, found.toolchain.cuda
    hosts = tuple(probe for probe in found.host_probes if probe not in found.cxx_probes)
    if cxx is not None:
        yield from _passed_over("C++ compiler", found.cxx_probes, str(cxx.path))
    if cuda is not None:
        yield from _passed_over("CUDA toolkit", found.cuda_probes, str(cuda.nvcc or cuda.root))
        yield from _passed_over("host compiler", hosts, str(cuda.host_compiler.path))


def _passed_over(subject: str, probes: tuple[Probe, ...], used: str) -> Iterator[Remark]:
    """Report the places before the chosen one that can be repaired."""
    for probe in itertools.takewhile(lambda probe: not probe.chosen, probes):
        if probe.hint:
            message = f"passed over {probe.place} (from {probe.found_via}): {probe.reason}; {used} is used"
            yield Remark(status="warn", subject=subject, message=message, next_step=probe.hint)


def _device_findings(devices: DeviceReport, toolkit: CudaToolkit | None) -> Iterator[Remark]:
    """Report the driver and the GPUs; their absence is not a failure."""
    if not devices.devices:
        yield Remark(
            status="note",
            subject="GPU",
            message=f"none ({devices.problem or 'the driver lists none'}); kernels can be built here, but not run",
            next_step='compute_capability="sm_90" in a load names the GPU to compile for; sm_75 is the default here',
        )
    for device in devices.devices:
        yield Remark(status="ok", subject=f"GPU {device.index}", message=f"{device.name}, {device.arch.sm}")
    if devices.driver_version is None:
        return
    release = devices.driver_release or ""
    number = f"{release}, " if release else ""
    yield Remark(status="ok", subject="driver", message=f"{number}supports CUDA {devices.driver_version}")
    if toolkit is None:
        return
    present = tuple(sorted({device.arch for device in devices.devices}))
    for row in (*judge_driver(toolkit.release, devices.driver_version, release), *judge_archs(present, toolkit)):
        yield Remark(status="warn", subject="driver", message=row.message, next_step=row.hint)
