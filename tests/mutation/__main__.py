"""Change one line of the product at a time and run the tests that cover the line.

``python -m tests.mutation record`` runs the tests once and records in ``build/mutation/.coverage`` which test runs
which line. ``choose`` writes ``mutants.diff`` with a fixed seed. ``run`` applies each change to a copy of the checkout,
runs the tests that cover its line, stops at the first failure, and prints how many changes the tests found; it takes
``--full`` if tests marked ``full`` count too. The contexts of coverage need the package ``pytest-cov``.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PACKAGES = ("be_runtime", "be_toolchain")
MUTANTS = HERE / "mutants.diff"
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


def choose(coverage: Path, seed: int, count: int) -> str:
    """Return `count` changes of lines that a test runs, at most one a file, as one text of unified diffs."""
    covered = contexts(coverage)
    random_source = random.Random(seed)  # noqa: S311 -- not a secret
    files = sorted({path for path, _ in covered if (ROOT / path).is_file()})
    random_source.shuffle(files)
    diffs = []
    for path in files:
        here = [change for change in mutants(ROOT / path) if (path, change[0]) in covered]
        if not here:
            continue
        line, new = random_source.choice(here)
        before = (ROOT / path).read_text().splitlines(keepends=True)
        after = [*before[: line - 1], new + "\n", *before[line:]]
        diffs.append("".join(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}")))
        if len(diffs) == count:
            break
    return "".join(diffs)


def place_of(diff: str) -> tuple[str, int]:
    """Return the file and the number of the line that a diff changes."""
    path, first = re.search(r"^\+\+\+ b/(.*)\n@@ -(\d+)", diff, re.MULTILINE).groups()  # type: ignore[union-attr]
    before = next(place for place, text in enumerate(diff.splitlines()[3:]) if text.startswith("-"))
    return path, int(first) + before


def run_one(diff: str, tests: Sequence[str], python: str, *, full: bool) -> tuple[bool, str]:
    """Apply one change to a copy of the checkout, and run `tests` there until one fails: whether, and which."""
    with tempfile.TemporaryDirectory(prefix="be-mutant-") as folder:
        copy, chosen = Path(folder, "checkout"), Path(folder, "tests.txt")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
        subprocess.run(["patch", "-s", "-p1"], cwd=copy, input=diff, text=True, check=True)
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


def run(coverage: Path, jobs: int, python: str, full: bool, only: Sequence[int], out: Path | None) -> int:
    """Run all changes, print a line each, and return how many were not found."""
    covered = contexts(coverage)
    diffs = re.split(r"^(?=--- a/)", MUTANTS.read_text(), flags=re.MULTILINE)[1:]
    rows = []

    def each(number: int) -> dict[str, object]:
        start, place = time.monotonic(), place_of(diffs[number])
        tests = covered.get(place, [])
        found, by = run_one(diffs[number], tests, python, full=full) if tests else (False, "no test runs it")
        row = {"mutant": number, "file": place[0], "found": found, "by": by, "tests": len(tests)}
        return row | {"seconds": round(time.monotonic() - start, 1)}

    with ThreadPoolExecutor(jobs) as pool:
        for row in pool.map(each, only or range(len(diffs))):
            rows.append(row)
            word = "found" if row["found"] else "NOT FOUND"
            print(f"{row['mutant']:3} {word:9} {row['seconds']:6} s  {row['file']}  {row['by']}", flush=True)
    if out is not None:
        out.write_text(json.dumps(rows, indent=1) + "\n")
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
    chosen = commands.add_parser("choose")
    chosen.add_argument("--seed", type=int, default=0)
    chosen.add_argument("--count", type=int, default=60)
    ran = commands.add_parser("run")
    ran.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    ran.add_argument("--full", action="store_true", help="tests marked full count")
    ran.add_argument("--only", type=int, nargs="*", default=(), help="numbers of changes")
    ran.add_argument("--out", type=Path, help="write the rows as JSON")
    options = parser.parse_args()
    if options.command == "record":
        return record(options.coverage, options.pytest)
    if options.command == "choose":
        MUTANTS.write_text(choose(options.coverage, options.seed, options.count))
        return 0
    return int(run(options.coverage, options.jobs, sys.executable, options.full, options.only, options.out) > 0)


if __name__ == "__main__":
    sys.exit(main())
