"""The tools under which a program is checked: which ones, and the commands and variables of their processes."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from be_runtime.checking.check_program import choose_tools, rewinder
from be_runtime.checking.children import TOOLS, Detectors, Invocation, Tool, plan_child
from tests.unit.be_runtime.generate.golden_files import answer, check_golden

GOLDEN = Path(__file__).parent / "golden"
ASAN, TSAN = (f"/lib/lib{name}.so" for name in ("asan", "tsan"))
PRELOAD: dict[Tool, tuple[str, ...]] = {"asan": (ASAN, "/lib/libstdc++.so.6"), "tsan": (TSAN, "/lib/libstdc++.so.6")}
ALL = Detectors("python3", PRELOAD, "/usr/bin/valgrind", "/cuda/bin/compute-sanitizer")


def test_every_tool_that_is_here_runs_in_one_order_and_others_are_refused_if_they_are_wanted():
    bare, poor = Detectors("python3"), ALL._replace(preload={"tsan": (TSAN,)}, valgrind="")
    rows = [answer(choose_tools, None, found, has_gpu=False) for found in (ALL, poor, bare)]
    rows += [answer(choose_tools, None, found, has_gpu=True) for found in (ALL, ALL._replace(compute_sanitizer=""))]
    rows += [answer(choose_tools, ["memcheck", "guard"], ALL, has_gpu=has_gpu) for has_gpu in (True, False)]
    rows += [answer(choose_tools, [tool], bare, has_gpu=True) for tool in ("helgrind", *TOOLS)]
    check_golden(GOLDEN / "wanted.txt", "\n".join(rows) + "\n")


def test_each_child_runs_the_program_with_its_arguments():
    children = [plan_child(tool, Invocation("train.py", ("--steps", "3")), ALL, "/folder") for tool in TOOLS]
    children.append(plan_child("guard", Invocation("pkg.train", ("a",), is_module=True), ALL, "/folder"))
    text = "".join(
        f"{child.tool}, with {child.record} and {child.log}\n  {shlex.join(child.argv)}\n"
        + "".join(f"  {name}={value}\n" for name, value in child.variables.items())
        for child in children
    )
    check_golden(GOLDEN / "children.txt", text)


def test_each_run_reads_standard_input_from_where_it_began_and_a_pipe_once(tmp_path: Path):
    (tmp_path / "input").write_text("one\ntwo\n")
    with (tmp_path / "input").open("rb", buffering=0) as file:
        file.readline()
        rewind = rewinder(file.fileno())
        for _ in range(2):
            rewind()
            assert file.read() == b"two\n"
    reading, writing = os.pipe()
    rewinder(reading)()
    os.close(reading)
    os.close(writing)
