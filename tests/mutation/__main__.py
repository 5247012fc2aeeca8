"""Change one line of the product at a time and run the tests that cover the line.

``python -m tests.mutation record`` runs the tests once and records in ``build/mutation/.coverage`` which test runs
which line. ``run`` chooses changes with a seed, applies each to a copy of the checkout, runs the tests that cover its
line, stops at the first failure, and prints how many changes the tests found; it takes ``--full`` if tests marked
``full`` count too. The contexts of coverage need the package ``pytest-cov``.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PACKAGES = ("be_runtime", "be_toolchain")
COVERAGE = ROOT / "build" / "mutation" / ".coverage"
LIMIT_S = 300
"""A change whose covering tests pass for this long is not found."""
NOT_COPIED = (".git", ".venv*", ".carry", "build", "dist", "__pycache__")
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip


def changes(node: ast.AST) -> Iterator[str]:
    """Yield the source of `node` after each change of one operator, constant or branch."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            yield ast.unparse(ast.Compare(node.left, [SWAPS[type(op)]()], node.comparators))  # type: ignore[list-item]
        case ast.BoolOp():
            yield ast.unparse(ast.BoolOp(SWAPS[type(node.op)](), node.values))  # type: ignore[arg-type]
        case ast.BinOp() if type(node.op) in SWAPS:
            yield ast.unparse(ast.BinOp(node.left, SWAPS[type(node.op)](), node.right))  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Not()):
            yield ast.unparse(node.operand)
        case ast.IfExp():
            yield ast.unparse(ast.IfExp(node.test, node.orelse, node.body))
        case ast.Constant(value=bool()):
            yield repr(not node.value)
        case ast.Constant(value=int(number)):
            yield repr(number + 1)
        case ast.Return(value=ast.expr()):
            yield "return None"
        case ast.Expr(value=ast.Call()):
            yield "pass"


def mutants(path: Path) -> list[tuple[int, str]]:
    """Return each change of a file inside functions that fits into one line: the line's number and its new text."""
    text = path.read_text()
    lines = text.splitlines()
    found = []
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    parts = {id(each): each for function in functions for part in function.body for each in ast.walk(part)}
    for node in parts.values():
        if not isinstance(node, ast.expr | ast.stmt) or node.lineno != node.end_lineno:
            continue
        line = lines[node.lineno - 1].encode()
        for change in changes(node):
            new = (line[: node.col_offset] + f"({change})".encode() + line[node.end_col_offset :]).decode()
            if isinstance(node, ast.stmt | ast.Constant):
                new = new.replace(f"({change})", change)
            if new != lines[node.lineno - 1]:
                found.append((node.lineno, new))
    return sorted(set(found))


def contexts(coverage: Path) -> dict[tuple[str, int], list[str]]:
    """Return the ids of the tests that run each line of the product, without tests that failed while recorded."""
    import sqlite3

    from coverage.numbits import numbits_to_nums

    failed = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
    unusable = set(json.loads(failed.read_text())) if failed.is_file() else set()
    rows: dict[tuple[str, int], set[str]] = {}
    base = sqlite3.connect(f"file:{coverage}?mode=ro", uri=True)
    files = dict(base.execute("SELECT id, path FROM file"))
    names = dict(base.execute("SELECT id, context FROM context"))
    for file, context, numbits in base.execute("SELECT file_id, context_id, numbits FROM line_bits"):
        name = re.search(r"be_(runtime|toolchain)/.*", files[file])
        test = re.sub(r"(\|\w+| \(\w+\))$", "", names[context])
        if name and "::" in test and test not in unusable:
            for line in numbits_to_nums(numbits):
                rows.setdefault((name[0], line), set()).add(test)
    return {place: sorted(tests, key=_cost) for place, tests in rows.items()}


def _cost(test: str) -> tuple[bool, bool, str]:
    return (not test.startswith(("tests/unit", "be_")), not test.startswith("tests/compile"), test)


class Change(NamedTuple):
    """A line of the product, and what it becomes."""

    path: str
    line: int
    text: str


def choose(covered: Collection[tuple[str, int]], seed: int, count: int) -> list[Change]:
    """Return `count` changes of lines that a test runs, at most one a file."""
    random_source = random.Random(seed)  # noqa: S311 -- not a secret
    files = sorted({path for path, _ in covered if (ROOT / path).is_file()})
    random_source.shuffle(files)
    changes_of = ([each for each in mutants(ROOT / path) if (path, each[0]) in covered] for path in files)
    chosen = (Change(path, *random_source.choice(here)) for path, here in zip(files, changes_of, strict=True) if here)
    return list(itertools.islice(chosen, count))


def run_one(change: Change, tests: Sequence[str], python: str, *, full: bool) -> tuple[bool, str]:
    """Apply one change to a copy of the checkout, and run `tests` there until one fails: whether, and which."""
    with tempfile.TemporaryDirectory(prefix="be-mutant-") as folder:
        copy, chosen = Path(folder, "checkout"), Path(folder, "tests.txt")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
        lines = (copy / change.path).read_text().splitlines(keepends=True)
        lines[change.line - 1] = change.text + "\n"
        (copy / change.path).write_text("".join(lines))
        (copy / ".git").symlink_to(ROOT / ".git")
        chosen.write_text("\n".join(tests))
        settings = {"PYTHONPATH": copy, "BE_FULL": int(full), "TMPDIR": folder, "BE_MUTATION_TESTS": chosen}
        environment = os.environ | {name: str(value) for name, value in settings.items()}
        files = dict.fromkeys(test.partition("::")[0] for test in tests if (copy / test.partition("::")[0]).is_file())
        command = [python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.chosen", *files]
        try:
            ran = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return False, f"{LIMIT_S} s passed"
    by = next(iter(re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)), f"exit {ran.returncode}")
    return ran.returncode in (1, 2), by  # 2: a file of tests could not be imported


def run(options: argparse.Namespace) -> int:
    """Run the chosen changes, print a line each, and return how many were not found."""
    covered = contexts(options.coverage)
    chosen = list(enumerate(choose(covered, options.seed, options.count)))
    rows = []

    def each(numbered: tuple[int, Change]) -> dict[str, object]:
        start, (number, change) = time.monotonic(), numbered
        tests = covered[change.path, change.line]
        found, by = run_one(change, tests, sys.executable, full=options.full)
        seconds = round(time.monotonic() - start, 1)
        return {"number": number, **change._asdict(), "found": found, "by": by, "tests": len(tests), "seconds": seconds}

    with ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(each, [each for each in chosen if not options.only or each[0] in options.only]):
            rows.append(row)
            word = "found" if row["found"] else "NOT FOUND"
            print(f"{row['number']:3} {word:9} {row['seconds']:6} s  {row['path']}:{row['line']}  {row['by']}")
            if not row["found"]:
                print(f"{'':15}{str(row['text']).strip()}", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    missed = sum(not row["found"] for row in rows)
    print(f"{len(rows) - missed} of {len(rows)} changes found")
    return missed


def record(coverage: Path, arguments: Sequence[str]) -> int:
    """Run the tests with coverage's contexts, in the processes that they start too."""
    coverage.parent.mkdir(parents=True, exist_ok=True)
    settings = {"COVERAGE_FILE": str(coverage), "COVERAGE_PROCESS_START": str(HERE / "coverage.ini")}
    environment = os.environ | settings | {"PYTHONPATH": f"{HERE / 'site'}:{ROOT}"}
    options = ["--cov", f"--cov-config={HERE / 'coverage.ini'}", "--cov-context=test", "--cov-report="]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main() -> int:
    """Run the command line; return 1 if a recording failed or a change was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--coverage", type=Path, default=COVERAGE, help="the data of coverage")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record").add_argument("pytest", nargs="*", help="arguments of pytest, behind --")
    ran = commands.add_parser("run")
    ran.add_argument("--seed", type=int, default=0, help="which changes are chosen")
    ran.add_argument("--count", type=int, default=60, help="how many")
    ran.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    ran.add_argument("--full", action="store_true", help="tests marked full count")
    ran.add_argument("--only", type=int, nargs="*", default=(), help="numbers of changes")
    ran.add_argument("--out", type=Path, help="write the rows as JSON")
    options = parser.parse_args()
    if options.command == "record":
        return record(options.coverage, options.pytest)
    return int(run(options) > 0)


if __name__ == "__main__":
    sys.exit(main())
