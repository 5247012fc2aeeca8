"""The command ``doctor``. The only user of rich."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

from be_toolchain.find.devices import DeviceReport
from be_toolchain.install.managed import sweep
from be_toolchain.machine.system import System
from be_toolchain.report.doctor import examine_machine
from be_toolchain.report.exit_codes import WORKS
from be_toolchain.report.model import Remark, Report
from be_toolchain.report.report_text import heading, render_probe_lists, render_report
from be_toolchain.terminal import printable, say

_COLOURS = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "bold red"}


def run_doctor(arguments: argparse.Namespace, system: System, devices: Callable[[], DeviceReport]) -> int:
    """Print the report, and repair what it found if that was asked for; the exit code."""
    swept = tuple(Remark("note", "leftovers", removed) for removed in sweep(system))
    report = examine_machine(system, smoke=arguments.smoke, devices=devices)
    report = report._replace(findings=(*report.findings, *swept))
    if arguments.json:
        say(json.dumps(report.to_json(), indent=2))
    elif sys.stdout.isatty():
        _print_rich(report, verbose=arguments.verbose)
    else:
        say(render_report(report, verbose=arguments.verbose))
    if arguments.fix:
        from be_toolchain.cli.install_commands import fix

        return fix(report, arguments, system, lambda: examine_machine(system, smoke=arguments.smoke))
    return report.exit_code


def _print_rich(report: Report, *, verbose: bool) -> None:
    """The report in colour, for a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def shown(text: str) -> str:
        return printable(report.redact(text))

    console = Console(highlight=False)
    console.print(Text(heading(), style="bold"))
    table = Table.grid(padding=(0, 2))
    for finding in report.findings:
        body = Text(shown(finding.message), overflow="fold")  # a path is of no use without its end
        if finding.next_step:
            body.append(shown(f"\nnext: {finding.next_step}"), style="italic")
        status = Text(finding.status, style=_COLOURS[finding.status])
        table.add_row(status, Text(finding.subject, style="bold"), body)
    console.print(table)
    for problem in report.explained:
        console.print(Text(shown(f"\n{problem.code}: {problem}")))
    if verbose:
        for block in render_probe_lists(report):
            console.print(Text(shown(block)))
    console.print(Text(f"\n{report.verdict}", style="bold green" if report.exit_code == WORKS else "bold red"))
