"""The doctor: examine the machine, and report with each finding the next step, as values, text and JSON."""

from __future__ import annotations

import itertools
import platform
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from be_toolchain import __version__
from be_toolchain.errors import PreferenceError, Probe, ToolchainError, correct, render_probes
from be_toolchain.find import coherence
from be_toolchain.find.coherence import Surroundings
from be_toolchain.find.devices import LIBCUDA, DeviceReport, ask_aside
from be_toolchain.find.record import encode
from be_toolchain.find.survey import Survey, survey
from be_toolchain.known.versions import version_key
from be_toolchain.machine.system import System
from be_toolchain.remote import FOLDER, RemoteSource, find_remote
from be_toolchain.settings import RUNTIME, PassedOver, find_configuration, read_setting
from be_toolchain.terminal import NO_CUDA, NO_CXX, WORKS, many, printable, printable_line, shown_key
from be_toolchain.values import ClangCuda, CudaToolkit, HostCompiler, Nvcc, Toolchain, ToolchainRequest, Warned

if TYPE_CHECKING:
    from be_toolchain.doctor.smoke import SmokeResult


REPORT_SCHEMA = 1
"""The version of `Report.to_json`; it increases when a field changes its meaning."""

_WIDEST = 120
"""Columns of the lines of findings, unless a word such as a path is longer."""

Status = Literal["ok", "note", "warn", "fail"]


class Remark(NamedTuple):
    """One line of a report.

    Parameters
    ----------
    status : {"ok", "note", "warn", "fail"}
        Only ``"fail"`` changes the exit code.
    subject, message : str
        The part of the machine, and the finding.
    next_step : str
        The remedy; empty if there is nothing to do.
    """

    status: Status
    subject: str
    message: str
    next_step: str = ""


class Report(NamedTuple):
    """The findings of the doctor, and the values that they were made from.

    Parameters
    ----------
    findings : tuple of Remark
        The findings, in the order in which they are shown.
    toolchain : Toolchain
        The parts that were found.
    devices : DeviceReport
        The driver and its GPUs.
    probes : tuple of (subject, probes)
        Every place that was searched.
    problems : tuple of ToolchainError
        The errors that keep builds from working.
    surroundings : Surroundings
        The facts about jax, the C library and folders.
    smoke : tuple of SmokeResult
        The trials; empty unless they were requested.
    home : str
        The user's home folder, which texts abbreviate as ``~``; empty if it is unknown.
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
        """The conclusion in one sentence."""
        if any(isinstance(problem, PreferenceError) for problem in self.problems):
            return "With these settings neither C++ nor CUDA builds can work here."
        return {
            WORKS: "CUDA and C++ builds can work here.",
            NO_CUDA: "C++ builds can work here; CUDA builds cannot.",
            NO_CXX: "Neither C++ nor CUDA builds can work here.",
        }[self.exit_code]

    @property
    def explained(self) -> tuple[ToolchainError, ...]:
        """The problems with more information than their finding: searched places or further hints."""
        return tuple(problem for problem in self.problems if problem.probes or problem.hints[1:])

    def redact(self, text: str) -> str:
        """Abbreviate the user's home folder in a text that people may publish."""
        return text.replace(f"{self.home}/", "~/") if len(self.home) > 1 else text

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data.

        Returns
        -------
        dict
            ``schema``, ``version``, ``python``, ``exit_code``, ``verdict``, ``findings``, ``toolchain``,
            ``fingerprint``, ``devices``, ``surroundings``, ``probes`` by subject, ``smoke``, and ``problems`` with
            their codes and hints; docs/doctor-schema.md lists every field. Paths are whole: programs read them.
        """
        names = ("exit_code", "verdict", "findings", "toolchain", "devices", "surroundings", "smoke")
        return {
            "schema": REPORT_SCHEMA,
            "version": __version__,
            "python": platform.python_version(),
            **{name: encode(getattr(self, name)) for name in names},
            "fingerprint": self.toolchain.fingerprint,
            "probes": {subject: encode(probes) for subject, probes in self.probes},
            "problems": [
                {"code": problem.code, "message": problem.message, "hints": list(problem.hints)}
                for problem in self.problems
            ],
        }


def render_report(report: Report, *, verbose: bool = False) -> str:
    """Render the report as plain text.

    Parameters
    ----------
    report : Report
        The report.
    verbose : bool
        Add every searched place. The places of a missing part are always listed.

    Returns
    -------
    str
        Lines without a final newline.
    """
    width = max(len(finding.subject) for finding in report.findings)
    lines = [heading()]
    for finding in report.findings:
        rows = [*finding.message.split("\n"), *([f"next: {finding.next_step}"] if finding.next_step else [])]
        rows = [
            part
            for row in rows
            for part in textwrap.wrap(row, _WIDEST - width - 8, break_long_words=False, break_on_hyphens=False) or [""]
        ]
        lines.append(f"{finding.status:<4}  {finding.subject:<{width}}  {rows[0]}")
        lines += [f"{'':<4}  {'':<{width}}  {row}" for row in rows[1:]]
    lines.extend(f"\n{problem.code}: {problem}" for problem in report.explained)
    if verbose:
        lines.extend(render_probe_lists(report))
    lines.append(f"\n{report.verdict}")
    return _shown(report, "\n".join(lines))


def render_probe_lists(report: Report) -> Iterator[str]:
    """Yield every place that was searched, by subject, and the parts of the CUDA toolkit."""
    for subject, probes in report.probes:
        if probes:
            yield f"\nplaces searched for {subject}:\n{render_probes(probes)}"
    if report.toolchain.cuda is not None:
        rows = sorted(report.toolchain.cuda.components, key=lambda part: (version_key(part.version), part.name))
        width = max(len(part.version) for part in rows)
        listed = (
            f"  {part.name:<9}  {part.version or '?':<{width}}  {part.path}  ({part.source or '-'})" for part in rows
        )
        yield "\nparts of the CUDA toolkit:\n" + "\n".join(listed)


_COLORS = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "bold red"}


def print_rich(report: Report, *, verbose: bool) -> None:
    """Print the report in color, for a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(heading(), style="bold"))
    table = Table.grid(padding=(0, 2))
    for finding in report.findings:
        body = Text(_shown(report, finding.message), overflow="fold")  # a path must not be cut off
        if finding.next_step:
            body.append(_shown(report, f"\nnext: {finding.next_step}"), style="italic")
        status = Text(finding.status, style=_COLORS[finding.status])
        table.add_row(status, Text(finding.subject, style="bold"), body)
    console.print(table)
    for problem in report.explained:
        console.print(Text(_shown(report, f"\n{problem.code}: {problem}")))
    if verbose:
        for block in render_probe_lists(report):
            console.print(Text(_shown(report, block)))
    console.print(Text(f"\n{report.verdict}", style="bold green" if report.exit_code == WORKS else "bold red"))


def _shown(report: Report, text: str) -> str:
    """Return a text of a report without the home folder and without control characters."""
    return printable(report.redact(text))


def heading() -> str:
    """Return the first line of a report: the version of this program, Python and the machine."""
    return f"be_toolchain {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"


_REMOTE = "remote cache"
_NO_ENTRY = "0" * 64
"""A name that no entry of a remote cache can have."""

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
"""The package that fsspec needs to reach a scheme, see
https://filesystem-spec.readthedocs.io/en/latest/api.html#other-known-implementations."""


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
        The result of `devices.ask_aside`, if the driver has been asked already.

    Returns
    -------
    Report
        The findings. A `ToolchainError` becomes a finding and is not raised.
    """
    asked = devices or ask_aside(system)
    around = coherence.probe_surroundings(system)
    home = system.environ.get("HOME", "").rstrip("/")
    refused = coherence.refused_settings(system.environ, around)
    passed: list[PassedOver] = []
    try:
        request = ToolchainRequest(need_cuda=True, need_cxx=True)
        found = survey(request, system, find_configuration(system, passed.append), to_the_end=True)
    except ToolchainError as error:  # a setting that steers the search is invalid, so nothing was searched
        errors = (error, *refused)
        findings = (*map(_report_refusal, errors), *map(_report_passed_file, passed))
        return Report(findings, Toolchain(), asked(), (), errors, around, NO_CXX, home=home)
    seen = asked()
    trials: tuple[SmokeResult, ...] = ()
    if smoke:
        from be_toolchain.doctor.smoke import run_smoke

        trials = run_smoke(found.toolchain, seen, system, jax=bool(around.jaxlib))
    failed = {trial.name for trial in trials if trial.outcome == "fail"}
    no_cxx = bool(found.cxx_problem or refused) or not failed.isdisjoint({"C++", "FFI on the CPU"})
    missing = dict.fromkeys(problem for problem in (found.cxx_problem, found.cuda_problem) if problem is not None)
    return Report(
        findings=(
            *_report_toolchain(found, around),
            *_report_devices(seen, found.toolchain.cuda, around),
            *_report_surroundings(around, seen, found.toolchain),
            *_report_launcher(system),
            *report_remote(system),
            *map(_report_passed_file, passed),
            *map(_report_refusal, refused),
            *map(_report_trial, trials),
        ),
        toolchain=found.toolchain,
        devices=seen,
        probes=(
            ("C++ compiler", found.cxx_probes),
            ("CUDA toolkit", found.cuda_probes),
            ("nvcc's host compiler", found.host_probes),
            ("driver and GPUs", tuple(_device_probes(seen))),
        ),
        problems=(*missing, *refused),
        surroundings=around,
        smoke=trials,
        home=home,
        exit_code=NO_CXX if no_cxx else NO_CUDA if found.cuda_problem or failed else WORKS,
    )


def _report_passed_file(passed: PassedOver) -> Remark:
    """Report a project's settings file that is ignored."""
    return Remark("warn", "project file", passed.reason, passed.remedy)


def _report_refusal(error: ToolchainError) -> Remark:
    """Report a setting that makes every load fail."""
    return Remark("fail", "settings", error.message, *error.hints[:1])


def _report_trial(trial: SmokeResult) -> Remark:
    """Report a trial."""
    status: Status = "note" if trial.outcome == "skipped" else trial.outcome
    if not trial.detail:
        return Remark(status, f"smoke: {trial.name}", trial.message)
    return Remark(status, f"smoke: {trial.name}", f"{trial.message}\n{trial.detail}", "the end of its output is above")


def _warn(subject: str, rows: Iterable[Warned]) -> Iterator[Remark]:
    """Turn warnings into findings."""
    return (Remark("warn", subject, row.message, row.hint) for row in rows)


def _report_toolchain(found: Survey, around: Surroundings) -> Iterator[Remark]:
    """Report compilers and toolkit, and the earlier places in the search order that can be repaired."""
    cxx, cuda = found.toolchain.cxx, found.toolchain.cuda
    if cxx is None:
        yield _report_missing("C++ compiler", found.cxx_problem)
    else:
        text = f"{cxx.family} {cxx.version}, {cxx.path} (from {cxx.found_via}){_also_host(cxx, cuda)}"
        yield Remark("ok", "C++ compiler", text)
    if cuda is None:
        yield _report_missing("CUDA toolkit", found.cuda_problem)
    else:
        yield from _report_toolkit(cuda, cxx)
    if cxx is not None:
        yield from _report_passed_over("C++ compiler", found.cxx_probes, cxx.path)
    if cuda is not None:
        hosts = tuple(probe for probe in found.host_probes if probe not in found.cxx_probes)
        yield from _report_passed_over("CUDA toolkit", found.cuda_probes, cuda.nvcc or cuda.root)
        yield from _report_passed_over("host compiler", hosts, cuda.host_compiler.path)
    elif (row := coherence.judge_cuda12_wheels(around.cuda12_wheels)) is not None:
        yield Remark("note", "CUDA 12 wheels", row.message, row.hint)


def _report_missing(subject: str, problem: ToolchainError | None) -> Remark:
    """Report a missing part."""
    return Remark("fail", subject, *((problem.message, *problem.hints[:1]) if problem else ("not found",)))


def _also_host(cxx: HostCompiler | None, toolkit: CudaToolkit | None) -> str:
    """Return the end of the C++ compiler's line if nvcc accepts this compiler and uses it; otherwise an empty text."""
    match toolkit and toolkit.compiler:
        case Nvcc(host=host, host_limits=limits, allow_unsupported_compiler=False) if cxx and host.path == cxx.path:
            return f"; also nvcc's host compiler: nvcc accepts {coherence.render_limits(limits)}"
    return ""


def _report_toolkit(toolkit: CudaToolkit, cxx: HostCompiler | None) -> Iterator[Remark]:
    """Report the toolkit, its parts and its host compiler."""
    text = f"{toolkit.release} ({toolkit.compiler.label}), {toolkit.root} (from {toolkit.found_via})"
    yield Remark("ok", "CUDA toolkit", text)
    unknown = ", ".join(part.name for part in toolkit.components if not part.version)
    text = f"{toolkit.release} ({many(len(toolkit.components), 'part')})"
    text += f"; version not recorded: {unknown}" if unknown else ""
    yield Remark("ok", "components", text)
    if not _also_host(cxx, toolkit):
        yield _report_host(toolkit.compiler)
    if toolkit.archs:
        yield Remark("ok", "GPU targets", f"{toolkit.archs[0].sm} to {toolkit.archs[-1].base.sm}")


def _report_host(compiler: Nvcc | ClangCuda) -> Remark:
    """Report the host compiler."""
    host = compiler.host
    named = f"{host.family} {host.version}, {host.path}"
    match compiler:
        case Nvcc(allow_unsupported_compiler=True, host_limits=limits):
            accepted = coherence.render_limits(limits)
            text = f"{named} is not a compiler that nvcc accepts ({accepted}); it is used because you asked for it"
            return Remark("warn", "host compiler", text, "use an accepted one")
        case Nvcc(host_limits=limits):
            return Remark("ok", "host compiler", f"{named}; nvcc accepts {coherence.render_limits(limits)}")
        case ClangCuda():
            text = f"{named} compiles host and device code; 'Toolchain discovery' lists the differences from nvcc"
            return Remark("ok", "CUDA compiler", text)


def _report_passed_over(subject: str, probes: tuple[Probe, ...], used: Path) -> Iterator[Remark]:
    """Report the places before the chosen one in the search order that can be repaired."""
    for probe in itertools.takewhile(lambda probe: not probe.chosen, probes):
        if probe.hint:
            text = f"skipped {probe.place} (from {probe.found_via}): {probe.reason}; {used} is used"
            yield Remark("warn", subject, text, probe.hint)


def _report_devices(devices: DeviceReport, toolkit: CudaToolkit | None, around: Surroundings) -> Iterator[Remark]:
    """Report the driver and the GPUs; their absence is not a failure."""
    if not devices.devices:
        what = "" if toolkit is None else "; CUDA kernels can be built here, but not run"
        step = 'to compile for a GPU other than sm_75, pass its architecture: compute_capability="sm_90"'
        text = f"none ({devices.problem or 'the driver lists none'}){what}"
        yield Remark("note", "GPU", text, "" if toolkit is None else step)
    for device in devices.devices:
        yield Remark("ok", f"GPU {device.index}", f"{device.name}, {device.arch.sm}")
    if devices.driver_version is None:
        return
    release = devices.driver_release or ""
    number = f"{release}, " if release else ""
    yield Remark("ok", "driver", f"{number}supports CUDA {devices.driver_version}")
    supported = devices.driver_version
    if toolkit is not None:
        present = sorted({device.arch for device in devices.devices})
        yield from _warn("driver", coherence.judge_driver(toolkit.release, supported, release))
        yield from _warn("driver", coherence.judge_named_archs(around.named_archs, present, toolkit.release, supported))
        yield from _warn("driver", coherence.judge_archs(present, toolkit))
    yield from _warn("driver", coherence.judge_nvrtc(around.nvrtc, toolkit.release if toolkit else "", supported))


def _device_probes(devices: DeviceReport) -> Iterator[Probe]:
    """List the sources of the facts about the driver: libcuda, and nvidia-smi if libcuda did not answer."""
    answer = f"driver of CUDA {devices.driver_version}, {many(len(devices.devices), 'GPU')} visible"
    if devices.found_via == "nvidia-smi":
        yield Probe("libcuda", LIBCUDA, "it reported no driver version")
        yield Probe("nvidia-smi", "nvidia-smi", answer, chosen=True)
    elif devices.driver_version is not None:
        yield Probe("libcuda", LIBCUDA, answer, chosen=True)
    else:
        yield Probe("libcuda", LIBCUDA, devices.problem or "it reported no driver version")
        yield Probe("nvidia-smi", "nvidia-smi", "not on PATH, or it failed")


def _report_surroundings(around: Surroundings, devices: DeviceReport, toolchain: Toolchain) -> Iterator[Remark]:
    """Report jax's CUDA, the folders, and the warnings and variables that concern the compilers."""
    if around.jaxlib:
        plugins = ", ".join(f"{name} {version}" for name, version in around.jax_plugins) or "no CUDA plugin"
        yield Remark("ok", "jax", f"jaxlib {around.jaxlib}, {plugins}")
    if toolchain.cuda is not None:
        release, has_gpu = toolchain.cuda.release, bool(devices.devices)
        yield from _warn("jax", coherence.judge_jax(release, around.jax_plugins, around.jaxlib, has_gpu=has_gpu))
    yield from _warn("nvJitLink", coherence.judge_nvjitlink(around.numba_wheels))
    yield _report_cache(around)
    cache, temporary = "set BE_CACHE_DIR to another folder", "set TMPDIR to another folder"
    if not around.cache_variable:
        instead = f"{cache}; python -m be_runtime cache path prints the private folder that loads use instead"
        yield from _warn("cache folder", coherence.judge_folder("cache", around.cache, instead))
    elif around.cached.entries and not around.cache.writable:
        place = f"the cache folder {around.cache.path}"
        text = f"{place} can't be written: its entries are loaded, and no other modules can be built"
        yield Remark("warn", "cache folder", text, cache)
    yield from _warn("cache folder", coherence.judge_room("cache", around.cache, cache))
    rows = coherence.judge_folder("temporary", around.temporary, temporary, keeps_libraries=False)
    yield from _warn("temporary folder", (*rows, *coherence.judge_room("temporary", around.temporary, temporary)))
    yield from _warn("compiler", toolchain.warnings)
    for name, value in toolchain.environment:
        yield Remark("note", "environment", f"{name}={value} changes what the compilers do")


def _report_cache(around: Surroundings) -> Remark:
    """Report the number and size of the cache's entries."""
    folder = around.cache.own_part or around.cache.path
    if not around.cache.readable:
        step = "set BE_CACHE_DIR to a folder of your own: users can't share a cache"
        return Remark("warn", "cache", f"{folder} can't be read by this user", step)
    count, size, limit_mib = around.cached
    counted = f"{many(count, 'entry', 'entries')}, {size / 2**20:.1f} of at most {limit_mib} MiB"
    return Remark("ok", "cache", f"{folder}, {counted}")


def _report_launcher(system: System) -> Iterator[Remark]:
    """Yield a finding if a setting names a compiler launcher, such as ccache."""
    setting = RUNTIME["compiler_launcher"]
    try:
        command = read_setting(setting, system.environ)
    except PreferenceError:
        return  # reported with all other settings
    if not command:
        return
    text, found = f"{setting.variable}={' '.join(command)}", system.which(command[0])
    if found is None:
        missing = f"{text}: the program {command[0]} was not found, so modules that need a build fail to load"
        yield Remark("warn", "launcher", missing, correct(setting.variable))
    else:
        yield Remark("note", "launcher", f"{text}: {found} starts every compiler, and nvcc as a whole")


def report_remote(system: System) -> Iterator[Remark]:
    """Yield findings if settings name a remote cache or a private key; ask a web server whether it answers."""
    names = ("remote_cache", "remote_cache_write", "remote_cache_public_key", "remote_cache_private_key")
    try:
        url, writes, keys, private_key = (read_setting(RUNTIME[name], system.environ) for name in names)
    except PreferenceError:
        return  # reported with all other settings
    try:
        source = find_remote(system, url or "", keys or "")
    except PreferenceError as error:
        yield Remark("warn", _REMOTE, f"{error.message}, so modules that need a build fail to load", *error.hints[:1])
        return
    if source.problem:
        yield Remark("warn", _REMOTE, *source.problem.split("; ", 1))
    if source.url:
        yield _report_source(system, source, "read and written" if writes and source.may_write else "only read")
    if private_key is not None:
        yield from _report_private_key(system, private_key)
    if (source.keys or private_key is not None) and not system.has_package("cryptography"):
        text = "keys need the package cryptography, which is not installed, so modules that need a build fail to load"
        yield Remark("warn", _REMOTE, text, "pip install 'brainevent-toolchain[signing]'")


def _report_source(system: System, source: RemoteSource, access: str) -> Remark:
    """Report a remote cache, and whether it answers or lacks a package that a load imports for it."""
    trust = f"entries signed by the keys of {source.keys_named_by}" if source.keys else "entries are not signed"
    text = f"{source.label} (from {source.named_by}), {access}, {trust}"
    if source.url.startswith(("http://", "https://")):
        problem = system.ask_server(source.url, f"{FOLDER}/{_NO_ENTRY}")
        if not problem:
            return Remark("ok", _REMOTE, f"{text}; it answers")
        text = f"{text}; it does not work: {printable_line(problem)}"
        return Remark("warn", _REMOTE, text, "correct it, or unset it: until then this machine compiles every module")
    package = _FSSPEC_NEEDS.get(source.url.partition("://")[0])
    absent = [name for name in ("fsspec", package) if name and not system.has_package(name)]
    if not absent:
        return Remark("note", _REMOTE, f"{text}; not tested: only loads connect to it, through fsspec")
    text = f"{text}; install {' and '.join(absent)}, or modules that need a build fail to load"
    wanted = "'brainevent-toolchain[s3]'" if package == "s3fs" else " ".join(absent)
    return Remark("warn", _REMOTE, text, f"pip install {wanted}")


def _report_private_key(system: System, path: Path) -> Iterator[Remark]:
    """Yield a finding if a private key can't be used, or other users can read it."""
    problem, variable = system.private_key_problem(path), RUNTIME["remote_cache_private_key"].variable
    if problem.startswith("can't"):
        text = f"{variable} is {shown_key(str(path))}, which {problem}, so modules that need a build fail to load"
        yield Remark("warn", _REMOTE, text, "correct it, or unset it")
    elif problem:
        yield Remark("warn", _REMOTE, f"{variable} is {path}, which {problem}", f"chmod 600 {path}")
