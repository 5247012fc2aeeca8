"""The findings of several tools as one report. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from be_runtime.findings import Finding


class ToolRun(NamedTuple):
    """One tool's part of a check.

    Parameters
    ----------
    tool : str
    outcome : str
        ``"ran"``, ``"failed"`` for one whose process died, ``"stopped"`` for one that took too long, or ``"missing"``
        for one that is not here.
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


def with_callers(findings: Sequence[Finding], calls: Mapping[str, Sequence[str]]) -> tuple[Finding, ...]:
    """Add the lines that call a kernel where a tool can't know them: those of another finding, or of all its calls."""
    known = {name: " or ".join(lines) for name, lines in calls.items()}
    known |= {each.kernel: each.caller for each in reversed(findings) if each.caller}
    return tuple(each._replace(caller=each.caller or known.get(each.kernel, "")) for each in findings)


def distinct(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Leave out what a second tool says in the same words."""
    found: dict[tuple[str, str, str], Finding] = {}
    for each in findings:
        found.setdefault((each.kernel, each.kind, each.message), each)
    return tuple(found.values())


def render(runs: Sequence[ToolRun], findings: Sequence[Finding]) -> str:
    """Write the report: what was found in each kernel with its lines, notes, and a line of what ran."""
    kernels = dict.fromkeys(each.kernel for each in findings)
    blocks = [
        _block(number, kernel, [each for each in findings if each.kernel == kernel])
        for number, kernel in enumerate(kernels, start=1)
    ]
    blocks += [f"note ({run.tool}): {note}" for run in runs for note in run.notes]
    ran = ", ".join(f"{run.tool} {run.seconds:.1f} s" for run in runs if run.outcome != "missing") or "no tool ran"
    count = f"faults in {len(kernels)} kernel{'s' * (len(kernels) != 1)}" if findings else "nothing found"
    return "\n".join([*blocks, f"{count} ({ran})"])


def _block(number: int, kernel: str, findings: Sequence[Finding]) -> str:
    callers = dict.fromkeys(each.caller for each in findings if each.caller)
    lines = [f"{number}. {kernel or 'native code'}" + (f", called at {'; '.join(callers)}" if callers else "")]
    for each in findings:
        told = each.message.removeprefix(each.kernel).removeprefix(":").strip()
        place = f"{each.source}: " if each.source and each.source not in told else ""
        lines.append(f"   {each.tool}: {place}{told}{'' if each.certain else ' (maybe)'}")
    lines += dict.fromkeys(f"   hint: {hint}" for each in findings for hint in each.hints)
    return "\n".join(lines)


def as_json(runs: Sequence[ToolRun], findings: Sequence[Finding]) -> dict[str, object]:
    """Return the report for programs."""
    return {
        "findings": [each._asdict() for each in findings],
        "tools": [
            {"tool": run.tool, "outcome": run.outcome, "seconds": round(run.seconds, 2), "notes": list(run.notes)}
            for run in runs
        ],
    }
