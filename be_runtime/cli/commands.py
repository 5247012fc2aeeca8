"""The commands ``build``, ``show`` and ``tune`` on packages, ``trace``, ``cmake-dir`` and ``explain``."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from be_runtime import trace
from be_runtime.cli.main import Answer, size_text
from be_runtime.errors import ArgumentError
from be_runtime.own_files import CMAKE_DIR
from be_toolchain.terminal import printable_line, say

if TYPE_CHECKING:
    from be_runtime.ship.build import PartReport


def run_build(arguments: argparse.Namespace) -> Answer:
    """Build a package's kernels.

    Raises
    ------
    ArgumentError
        The package does not exist, or its declaration is invalid.
    ToolchainError, BuildError
        There is no compiler, or a source does not compile.
    """
    from be_runtime.ship.build import build_package
    from be_runtime.ship.package import locate_package

    package = locate_package(arguments.package, Path.cwd())
    archs = None if arguments.archs is None else arguments.archs.split(",")
    tell = (lambda _report: None) if arguments.json else _print_report
    built = build_package(package, archs=archs, out=arguments.out, tell=tell)
    return Answer(
        f"{built.folder}: {size_text(built.size)}, {built.summary}",
        {
            "folder": str(built.folder),
            "parts": [report._asdict() for report in built.reports],
            "images": {digest: image._asdict() for digest, image in built.table.images.items()},
            "targets": sorted(built.table.targets),
        },
    )


def _print_report(report: PartReport) -> None:
    """Print a line about a built module or kernel to standard error."""
    say(f"{report.name:<24} {report.language:<6} {report.seconds:6.1f} s {size_text(report.size):>10}", sys.stderr)


def run_show(arguments: argparse.Namespace) -> Answer:
    """Describe kernels that were built ahead of time, without loading them.

    Raises
    ------
    ArgumentError
        The file or package has no such kernels.
    LoadError
        The file is damaged, or of a format that this release does not read.
    """
    from be_runtime.ship.package import locate_package
    from be_runtime.ship.show import describe_file, render_description

    path = arguments.file
    if not path.exists():
        with contextlib.suppress(ArgumentError):
            path = locate_package(str(path), Path.cwd()).root or path
    found = describe_file(path)
    return Answer("\n".join(map(render_description, found)), {"bundles": found})


def run_trace(arguments: argparse.Namespace) -> Answer:
    """List the phases and commands of the loads in a file of ``BE_TRACE``.

    Raises
    ------
    ArgumentError
        The file can't be read, or contains no load.
    """
    hints = ("pass the file that BE_TRACE named while a module was loaded",)
    try:
        events = trace.read_document(arguments.file.read_bytes())["traceEvents"]
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{arguments.file} can't be read as a trace: {error}", hints=hints) from None
    loads = _summarize(events)
    if not loads:
        raise ArgumentError(f"{arguments.file} has no load", hints=hints)
    return Answer("\n\n".join(map(_render_load, loads)), {"loads": loads})


def _summarize(events: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the loads among events, each with its phases and commands, the longest first.

    The time of a phase excludes the phases within it, so the times of the phases add up to the time of the load.
    """
    loads: list[dict[str, Any]] = []
    spent: dict[str, dict[str, list[float]]] = {"load": {}, "command": {}}
    ended: list[tuple[float, float]] = []
    for event in events:
        match event:
            case {
                "name": str(name), "cat": "load" | "command" as cat, "pid": int(pid),
                "ts": int() | float() as began, "dur": int() | float() as took,
            }:  # fmt: skip
                inner = 0.0
                if cat == "load":
                    while ended and ended[-1][0] >= began:  # phases are listed as they end, so inner ones come first
                        inner += ended.pop()[1]
                    ended.append((began, took))
                is_load = cat == "load" and name.startswith("load ")
                spent[cat].setdefault("between the phases" if is_load else name, []).append((took - inner) / 1000)
                if is_load:
                    phases, commands = map(_longest_first, spent.values())
                    loads.append({"name": name, "pid": pid, "ms": took / 1000, "phases": phases, "commands": commands})
                    spent, ended = {"load": {}, "command": {}}, []
    return loads


def _longest_first(spent: dict[str, list[float]]) -> list[dict[str, Any]]:
    rows = [{"name": name, "ms": round(sum(times), 3), "count": len(times)} for name, times in spent.items()]
    return sorted(rows, key=lambda row: -row["ms"])


def _render_load(load: dict[str, Any]) -> str:
    lines = [f"{printable_line(load['name'])}, process {load['pid']}: {load['ms']:.1f} ms"]
    for title, part in (("phases", "phases"), ("commands, some of which ran in parallel", "commands")):
        lines += [f"  {title}"] if load[part] else []
        for row in load[part]:
            times = f" ({row['count']} times)" if row["count"] > 1 else ""
            lines.append(f"  {row['ms']:10.1f} ms  {printable_line(row['name'])}{times}")
    return "\n".join(lines)


def run_tune(arguments: argparse.Namespace) -> Answer:
    """Tune a package.

    Raises
    ------
    ArgumentError
        The package does not exist, declares nothing to tune, or its file can't be written.
    Exception
        The error of the first configuration, if no configuration works.
    """
    from be_runtime.load.process import PROCESS
    from be_runtime.ship.package import locate_package
    from be_runtime.tune.tuned import Declared, argument_sets

    package = locate_package(arguments.package, Path.cwd())
    if package.root is None:
        raise ArgumentError(f"{package.name} is not a folder, so no choices can be kept in it")
    above = str(package.root.resolve().parents[package.name.count(".")])
    sys.path[:0] = [] if above in sys.path else [above]
    import_module(package.name)
    found = [each for each in PROCESS.only(Declared, Declared).found if each.package == package.name]
    sets = [(tuned, arrays) for tuned in found for arrays in argument_sets(tuned.args)]
    if not sets:
        raise ArgumentError(
            f"{package.name} declares nothing to tune",
            hints=(f"call be_runtime.autotune(op, configs, args, package={package.name!r}) in it",),
        )
    tunings = [(tuned.name, tuned.tune(*arrays)) for tuned, arrays in sets]
    for tuned in found:
        path = tuned.save(package.root)
    data = [{"name": name, "bucket": each.bucket, "chosen": each.chosen} for name, each in tunings]
    text = "\n\n".join(f"{name}: {each}" for name, each in tunings)
    return Answer(f"{text}\n\n{path}", {"file": str(path), "tunings": data})


def run_cmake(_arguments: argparse.Namespace) -> Answer:
    """Print the folder for CMake's ``BeRuntime_ROOT``."""
    return Answer(str(CMAKE_DIR), {"folder": str(CMAKE_DIR)})


def run_explain(arguments: argparse.Namespace) -> Answer:
    """Print the section of an error's code on the page of errors; without a code, all codes with their titles.

    Raises
    ------
    ArgumentError
        No error has that code.
    """
    from be_toolchain.cli.main import explain, list_titles, titles

    if arguments.code is None:
        return Answer(list_titles(), {"codes": titles()})
    try:
        text = explain(arguments.code)
    except ValueError as error:
        raise ArgumentError(str(error), hints=("pass the code at the end of an error's text",)) from None
    return Answer(text, {"code": arguments.code.upper(), "text": text}, is_markdown=True)
