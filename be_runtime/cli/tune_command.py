"""The command ``tune``: times what a package tunes on this machine, and writes the choices into the package."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from be_runtime.cli.answer import Answer
from be_runtime.errors import ArgumentError
from be_runtime.load.process import PROCESS
from be_runtime.ship.locate import locate_package
from be_runtime.tune.tuned import Declared, argument_sets


def run(arguments: argparse.Namespace) -> Answer:
    """Tune a package.

    Raises
    ------
    ArgumentError
        There is no such package, it tunes nothing, or its file can't be written.
    Exception
        Whatever the first configuration raises, if none works.
    """
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
