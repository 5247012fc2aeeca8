"""Checked calls of GPUs with a pretended driver: memory, the held stream and faults."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from be_runtime.own_files import INCLUDE_DIR, NATIVE_DIR
from be_runtime.xla import jax_port
from tests.support.runtime import real_compiler

PROGRAMS = Path(__file__).parent / "programs"


def outcomes(folder: Path) -> list[dict[str, Any]]:
    """The lines of each call, under its name: findings, errors, and how it ended."""
    driver, made = folder / "libcuda.so.1", folder / "guarded_device"
    common = [real_compiler(), "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*common, "-shared", "-fPIC", PROGRAMS / "pretended_driver.cc", "-o", driver], check=True)
    places = [f"-I{NATIVE_DIR}", f"-I{INCLUDE_DIR}", f"-isystem{jax_port.ffi_include_dir()}"]
    end = [driver, "-ldl", f"-Wl,-rpath,{folder}"]
    subprocess.run([*common, *places, PROGRAMS / "guarded_device.cc", "-o", made, *end], check=True)
    done = subprocess.run([made], check=True, capture_output=True, text=True, timeout=60)
    calls, lines = [], list[dict[str, Any]]()
    for line in map(json.loads, done.stdout.splitlines()):
        if "call" in line:
            calls.append({**line, "said": lines})
            lines = []
        else:
            lines.append(line)
    return calls


def test_each_call(tmp_path: Path):
    right, wrong, skips, waits, faults, after = outcomes(tmp_path)
    assert (right["failed"], right["last"], right["said"], right["taken"]) == (False, 12, [], 0)

    found = [line for line in wrong["said"] if "kind" in line]
    assert [(line["kind"], line["array"], line["count"]) for line in found] == [("stream", "result 0", 6)]
    assert wrong["failed"]
    assert "wrong writes outside of the call's stream to result 0 (float32[6])" in wrong["said"][0]["error"] + str(
        found
    )
    assert wrong["last"] == 12

    assert [(line["kind"], line["index"]) for line in skips["said"] if "kind" in line] == [("unwritten", [4])]
    assert skips["failed"]

    assert not waits["failed"], "what can't be recorded runs as it is"
    assert waits["last"] == 12
    (note,) = waits["said"]
    assert note["kind"] == "note"
    assert "was not checked for its stream: what it does can't be recorded, CUDA_ERROR_PRETENDED" in note["message"]

    assert faults["failed"]
    assert {line.get("kind") for line in faults["said"]} == {"fault", None}
    text = next(line["error"] for line in faults["said"] if "error" in line)
    assert text.startswith("BE801 faults failed on the GPU: CUDA_ERROR_PRETENDED (a pretended fault)\n")
    assert "called at program.py:3" in text
    assert "context is lost" in text

    assert after["failed"]
    assert "right can't run: the GPU's context was lost by faults, called at program.py:3" in after["said"][0]["error"]
