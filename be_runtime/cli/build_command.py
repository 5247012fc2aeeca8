"""The command ``build``: compiles what a package declares."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from be_runtime.cli.answer import Answer, size_text
from be_runtime.ship.locate import locate_package
from be_runtime.ship.package_build import Built, PartReport, build_package
from be_toolchain.terminal import say


def run(arguments: argparse.Namespace) -> Answer:
    """Build a package's kernels.

    Raises
    ------
    ArgumentError
        There is no such package, or its declaration is wrong.
    ToolchainError, BuildError
        There is no compiler, or a source does not compile.
    """
    package = locate_package(arguments.package, Path.cwd())
    archs = None if arguments.archs is None else arguments.archs.split(",")
    tell = (lambda _report: None) if arguments.json else _tell
    built = build_package(package, archs=archs, out=arguments.out, standalone=arguments.standalone, tell=tell)
    return Answer(_summary(built), _data(built))


def _tell(report: PartReport) -> None:
    """Say on standard error that a part is ready."""
    say(f"{report.name:<24} {report.language:<6} {report.seconds:6.1f} s {size_text(report.size):>10}", sys.stderr)


def _summary(built: Built) -> str:
    total = sum(image.size for image in built.table.images.values())
    counts = f"modules and kernels: {len(built.reports)}, images: {len(built.table.images)}"
    return f"{built.folder}: {size_text(total)}, {counts}"


def _data(built: Built) -> dict[str, object]:
    return {
        "folder": str(built.folder),
        "parts": [report._asdict() for report in built.reports],
        "images": {digest: image._asdict() for digest, image in built.table.images.items()},
        "targets": sorted(built.table.targets),
    }
