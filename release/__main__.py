"""The command line: ``python -m release check | prepare | constraints | dist | native | feedstock``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from release import ROOT
from release.check import REMAINING, find_problems, prepare, read_state
from release.dist import build_twice, source_date_epoch
from release.feedstock import feedstock_recipe, sha256_of
from release.native import FOLDER, MACHINES, Compilers, build_native
from release.problems import ReleaseError


def build_parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    parser = argparse.ArgumentParser(prog="python -m release", description="Check and make what a release uploads.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="say whether the checkout can be released, and what is left to do")
    check.add_argument(
        "--tag", default="", help="the tag that is released, such as v1.2.3; without it nothing is strict"
    )
    new = commands.add_parser("prepare", help="write a new version into the files that name it")
    new.add_argument("version", help="such as 1.2.0")
    new.add_argument("--date", default=time.strftime("%Y-%m-%d"), help="of the release (default today)")
    commands.add_parser("constraints", help="write constraints/*.txt, and their table in the page of versions")
    dist = commands.add_parser("dist", help="build sdist and wheels, twice, and compare them")
    dist.add_argument("folder", type=Path, help="where they are put")
    dist.add_argument("--pure", action="store_true", help="without the wheels that have compiled files")
    native = commands.add_parser("native", help="compile our own libraries, for this checkout or another folder")
    native.add_argument("folder", type=Path, nargs="?", default=ROOT / FOLDER, help="by default, this checkout's")
    native.add_argument("--machine", choices=MACHINES, default=os.uname().machine, help="by default, this one")
    native.add_argument("--cc", default="", help="the C compiler; by default zig, for an old glibc")
    native.add_argument("--cxx", default="", help="the C++ compiler, with --cc; by default g++ and zig")
    feedstock = commands.add_parser("feedstock", help="write the recipe for conda-forge")
    feedstock.add_argument("folder", type=Path, help="where it is put")
    feedstock.add_argument("--sdist", type=Path, required=True, help="the released sdist")
    feedstock.add_argument("--url", required=True, help="where it can be downloaded")
    feedstock.add_argument("--homepage", required=True, help="the project's page")
    feedstock.add_argument("--maintainer", action="append", required=True, help="a GitHub name; may be repeated")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments, those of the process unless given.

    Returns
    -------
    int
        0 when all is well, 1 after a problem that was printed.
    """
    arguments = build_parser().parse_args(argv)
    try:
        if arguments.command == "check":
            return _check(arguments.tag)
        if arguments.command == "prepare":
            print(*prepare(ROOT, arguments.version, arguments.date), sep="\n")
        elif arguments.command == "constraints":
            from release.constraints import write_constraints  # conda's build has no packaging

            write_constraints()
        elif arguments.command == "dist":
            _dist(arguments.folder, () if arguments.pure else MACHINES)
        elif arguments.command == "native":
            is_chosen = arguments.cc and arguments.cxx
            machine = arguments.machine
            compilers = Compilers.one(arguments.cc, arguments.cxx) if is_chosen else Compilers.for_wheels(machine)
            print(build_native(ROOT, arguments.folder, machine, compilers))
        else:
            _feedstock(arguments)
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _check(tag: str) -> int:
    """Print every problem, the files' digests, and what only another machine can do."""
    problems = find_problems(read_state(ROOT), tag)
    for problem in problems:
        print(f"{'error' if tag else 'before tagging'}: {problem}")
    if tag and problems:
        return 1
    with tempfile.TemporaryDirectory(prefix="be-release-") as folder:
        _dist(Path(folder), ())
    print("\nLeft for the machine that releases:")
    for step in REMAINING:
        print(f"  - {step}")
    return 0


def _dist(folder: Path, machines: Sequence[str]) -> None:
    for path in build_twice(ROOT, folder, source_date_epoch(ROOT), machines):
        print(f"{sha256_of(path)}  {path.name}")


def _feedstock(arguments: argparse.Namespace) -> None:
    recipe = ROOT / "recipe"
    text = feedstock_recipe(
        (recipe / "recipe.yaml").read_text(encoding="utf-8"),
        url=arguments.url,
        sha256=sha256_of(arguments.sdist),
        homepage=arguments.homepage,
        maintainers=arguments.maintainer,
    )
    tests = arguments.folder / "tests"
    tests.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "recipe.yaml").write_text(text, encoding="utf-8")
    for path in sorted((recipe / "tests").glob("*.py")):
        (tests / path.name).write_bytes(path.read_bytes())
    print(arguments.folder / "recipe.yaml")


if __name__ == "__main__":
    sys.exit(main())
