"""A report as text that pastes well. Pure."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from be_toolchain import __version__
from be_toolchain.errors import render_probes
from be_toolchain.known.versions import version_key
from be_toolchain.report.model import Report
from be_toolchain.terminal import printable


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
