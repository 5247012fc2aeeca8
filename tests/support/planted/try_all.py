"""Tries each planted fault with each tool: ``cpp|cuda RESULTS [TOOLS]``.

It writes a table as JSON, and the outputs beside it. ``CUDA_VISIBLE_DEVICES=0,1`` spreads the work over two GPUs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PROGRAM = HERE / "program.py"
SANITIZERS = ("memcheck", "racecheck", "initcheck")
HEADS = ("Invalid", "Uninitialized", "Error: Race", "Warning: Race", "Program hit")
TIMEOUT_S = 60
"""For one process; compute-sanitizer takes 10 to 20 s around JAX."""
AT_ONCE = 10
"""Processes on one GPU: more of them take its memory from each other."""
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT), "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.01"}


def kernels(language: str) -> list[Path]:
    """The files of a language, each with one fault."""
    return sorted((HERE / language).glob("*.cc" if language == "cpp" else "*.cu"))


def places(language: str) -> SimpleQueue[dict[str, str]]:
    """What the processes that run at once have in their environment: for CUDA, which GPU they see."""
    free: SimpleQueue[dict[str, str]] = SimpleQueue()
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",") if language == "cuda" else []
    count = AT_ONCE * len(devices) or len(os.sched_getaffinity(0))
    for number in range(count):
        free.put({"CUDA_VISIBLE_DEVICES": devices[number % len(devices)]} if devices else {})
    return free


def run(argv: Sequence[str], output: Path, free: SimpleQueue[dict[str, str]], timeout_s: float) -> tuple[int, str]:
    """Run a program in a place that is free; return its exit code and its output."""
    place = free.get()
    with output.open("wb") as file:
        try:
            done = subprocess.run(
                argv, env=ENVIRON | place, stdout=file, stderr=subprocess.STDOUT, timeout=timeout_s, check=False
            )
            code = done.returncode
        except subprocess.TimeoutExpired:
            code = -9
            file.write(b"\ntimed out\n")
    free.put(place)
    return code, output.read_text(errors="replace")


def alone(kernel: Path, folder: Path, free: SimpleQueue[dict[str, str]]) -> str:
    """The outcome of the program by itself, in a line."""
    code, text = run([sys.executable, str(PROGRAM), str(kernel)], folder / f"{kernel.stem}.alone.txt", free, TIMEOUT_S)
    if code < 0:
        return f"killed by signal {-code}"
    errors = [line for line in text.splitlines() if "Error: " in line and not line.startswith(" ")]
    return errors[-1][:300] if code != 0 and errors else "silent" if code == 0 else f"exit code {code}"


def bare(kernel: Path, folder: Path, free: SimpleQueue[dict[str, str]], tool: str) -> str:
    """The outcome under compute-sanitizer by itself, with JAX's pool on."""
    argv = ["compute-sanitizer", "--tool", tool, sys.executable, str(PROGRAM), str(kernel)]
    _code, text = run(argv, folder / f"{kernel.stem}.{tool}.txt", free, TIMEOUT_S)
    said = [line.removeprefix("=========").strip() for line in text.splitlines() if line.startswith("=========")]
    heads = [line for line in said if line.startswith(HEADS)]
    places = [line for line in said if line.startswith("at ") or " access at " in line]
    return "; ".join(dict.fromkeys((*heads[:1], *places[:1]))) or "nothing"


def ours(kernel: Path, folder: Path, free: SimpleQueue[dict[str, str]], tools: str) -> dict[str, Any]:
    """The outcome of ``be_runtime check``."""
    chosen = ["--tools", tools] if tools else []
    check = [sys.executable, "-m", "be_runtime", "check", "--json", *chosen, "--timeout", str(TIMEOUT_S)]
    code, text = run([*check, str(PROGRAM), str(kernel)], folder / f"{kernel.stem}.check.txt", free, 5 * TIMEOUT_S)
    answer = json.loads(text[text.index('{\n  "schema"') : text.rindex("}") + 1]) if '{\n  "schema"' in text else {}
    kept = ("kind", "kernel", "message", "array", "source", "caller", "tool", "certain")
    findings = [{name: each[name] for name in kept} for each in answer.get("findings", [])]
    tried = answer.get("tools", [])
    return {"exit": code, "findings": findings, "tools": tried}


def main(language: str, results: Path, tools: str) -> None:
    """Try all, and write the table."""
    folder = results.parent / f"planted-{language}"
    folder.mkdir(parents=True, exist_ok=True)
    files = kernels(language)
    free = places(language)
    with ThreadPoolExecutor(free.qsize()) as pool:
        first = dict(zip(files, pool.map(lambda kernel: alone(kernel, folder, free), files), strict=True))
        checks = {kernel: pool.submit(ours, kernel, folder, free, tools) for kernel in files}
        under = {
            (kernel, tool): pool.submit(bare, kernel, folder, free, tool)
            for tool in (SANITIZERS if language == "cuda" else ())
            for kernel in files
        }
        table: dict[str, Any] = {
            kernel.stem: {
                "expected": kernel.read_text().splitlines()[0].removeprefix("// found as: "),
                "alone": first[kernel],
                **{tool: future.result() for (its, tool), future in under.items() if its == kernel},
                "check": checks[kernel].result(),
            }
            for kernel in files
        }
    results.write_text(json.dumps({language: table}, indent=1).replace(f"{ROOT}/", "") + "\n")
    missed = [name for name, row in table.items() if not row["check"]["findings"]]
    sys.stdout.write(f"{language}: found {len(table) - len(missed)} of {len(table)} {missed}\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
