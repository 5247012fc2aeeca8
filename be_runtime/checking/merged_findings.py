"""The findings of several tools as one report. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from be_runtime.checks import Finding

_SAME = {
    "heap-buffer-overflow": "outside",
    "guards": "outside",
    "write": "outside",
    "read": "outside",
    "bounds": "outside",
    "unwritten": "uninitialised",
}
"""Kinds of different tools that mean one fault."""


class ToolRun(NamedTuple):
    """One tool's part of a check.

    Parameters
    ----------
    tool : str
    outcome : str
        ``"ran"``, ``"failed"``, ``"stopped"`` or ``"skipped"``.
    seconds : float
    findings : tuple of Finding
    notes : tuple of str
    """

    tool: str
    outcome: str
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


def named_kernel(symbol: str, targets: Iterable[str]) -> str:
    """Return the kernel of a symbol in a library; without its target, the symbol itself.

    Examples
    --------
    >>> named_kernel("my_kernels_scale", ["my_kernels.scale"])
    'my_kernels.scale'
    """
    return next((name for name in targets if re.sub(r"\W", "_", name) == symbol), symbol)


def with_names(findings: Iterable[Finding], targets: Iterable[str]) -> tuple[Finding, ...]:
    """Replace symbols of libraries by the names of kernels."""
    names = tuple(targets)
    replaced = []
    for each in findings:
        kernel = named_kernel(each.kernel, names)
        message = kernel + each.message.removeprefix(each.kernel) if each.kernel else each.message
        replaced.append(each._replace(kernel=kernel, message=message))
    return tuple(replaced)


def merge(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Make one finding of those that tell of one fault of a kernel: tools differ in what they know of it."""
    found: dict[tuple[str, str], Finding] = {}
    for each in findings:
        key = (each.kernel, _SAME.get(each.kind, each.kind))
        found[key] = _joined(found[key], each) if key in found else each
    return tuple(found.values())


def _joined(first: Finding, other: Finding) -> Finding:
    tools = dict.fromkeys((*first.tool.split("+"), *other.tool.split("+")))
    return first._replace(
        tool="+".join(tools),
        caller=first.caller or other.caller,
        source=first.source or other.source,
        array=first.array or other.array,
        hints=tuple(dict.fromkeys((*first.hints, *other.hints))),
    )


def render(runs: Sequence[ToolRun], findings: Sequence[Finding]) -> str:
    """Write the report: each finding with its lines, notes, and a line of what ran."""
    blocks = [_block(number, each) for number, each in enumerate(findings, start=1)]
    blocks += [f"note ({run.tool}): {note}" for run in runs for note in run.notes]
    ran = ", ".join(f"{run.tool} {run.seconds:.1f} s" for run in runs if run.outcome != "skipped") or "no tool"
    count = f"{len(findings)} finding{'s' * (len(findings) != 1)}" if findings else "no findings"
    return "\n".join([*blocks, f"{count} ({ran})"])


def _block(number: int, finding: Finding) -> str:
    lines = [f"{number}. {finding.message}" + ("" if finding.certain else " (maybe)")]
    lines += [f"   kernel: {finding.source}"] if finding.source else []
    lines += [f"   called at {finding.caller}"] if finding.caller else []
    lines += [f"   hint: {hint}" for hint in finding.hints]
    return "\n".join([*lines, f"   found by {finding.tool.replace('+', ', ')}"])


def as_json(runs: Sequence[ToolRun], findings: Sequence[Finding]) -> dict[str, object]:
    """Return the report for programs."""
    return {
        "findings": [each._asdict() for each in findings],
        "tools": [
            {"tool": run.tool, "outcome": run.outcome, "seconds": round(run.seconds, 2), "notes": list(run.notes)}
            for run in runs
        ],
    }
