"""Each planted fault of a C++ kernel is found, with the kernel, the line that calls it and what to look at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.planted.try_all import PROGRAM, kernels
from tests.support.requirements import in_full
from tests.support.runtime import environment

EXPECTED = {
    "far_write": ("crash", "it writes 16384 bytes behind result 0 (float32[256])"),
    "index_outside": ("bounds", "index 0 is 256, and axis 0 has 256 elements"),
    "input_write": ("inputs", "1 of 256 elements are changed, the first is [2]"),
    "misaligned": ("misaligned", "'const double', which requires 8 byte alignment"),
    "never_written": ("unwritten", "85 of 256 elements are never written, the first is [1]"),
    "not_a_number": ("values", "gives NaN in result 0 (float32[256]): 1 of 256 elements, the first is [0]"),
    "read_outside": ("heap-buffer-overflow", "read of 4 bytes, 0 bytes behind the end of memory of 1024 bytes"),
    "stack_overflow": ("stack-overflow", "deep"),
    "thread_race": ("race", "race of two threads: "),
    "uninitialised_local": ("unwritten", "128 of 256 elements depend on it, the first is [1]"),
    "uninitialised_read": ("unwritten", "result 0"),
    "write_outside": ("heap-buffer-overflow", "write of 4 bytes, 0 bytes behind the end"),
    "wrong_dtype": ("bounds", "data_ptr<double>() of a float32 tensor"),
    "wrong_shape": ("guards", "writes 1024 bytes behind result 0"),
}


BY_BOTH = "write_outside"
"""The kernel that all tools look at; the others are tried with the one that has to find them."""
BY_SANITIZERS = {"misaligned": "asan", "stack-overflow": "asan", "heap-buffer-overflow": "asan", "race": "tsan"}


def check(*arguments: str, before: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    argv = [*before, sys.executable, "-m", "be_runtime", "check", "--json", *arguments]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=840, check=False)
    return done.returncode, json.loads(done.stdout)


FILES = {kernel.stem: kernel for kernel in kernels("cpp")}


@pytest.mark.parametrize("name", [name if name == BY_BOTH else in_full(name) for name in FILES])
def test_a_planted_fault_is_found(name: str):
    kernel, (kind, words) = FILES[name], EXPECTED[name]
    tools = ["--tools", BY_SANITIZERS.get(kind, "guard") if name != BY_BOTH else "guard,asan"]
    code, answer = check(*tools, str(PROGRAM), str(kernel))
    found = [each for each in answer["findings"] if each["kind"] == kind and words in each["message"]]
    assert code == 1
    assert found, answer
    assert found[0]["caller"].endswith("program.py:20 in main")
    assert {each["kernel"] for each in answer["findings"]} == {f"{name}.{name}"}
    if found[0]["tool"] in ("address", "undefined", "thread"):
        assert Path(found[0]["source"].partition(":")[0]).name == kernel.name


@pytest.mark.full
@pytest.mark.needs("valgrind")
def test_valgrind_finds_a_local_array_that_nobody_has_set():
    code, answer = check("--tools", "valgrind", str(PROGRAM), str(FILES["uninitialised_local"]))
    assert code == 1, answer
    (finding,) = answer["findings"]
    assert (finding["kind"], finding["kernel"]) == ("unset", "uninitialised_local.uninitialised_local")
    assert "in result 0 (float32[256]): 128 of 256 elements come from there" in finding["message"]
    assert finding["caller"].endswith("program.py:20 in main")


@pytest.mark.full
@pytest.mark.parametrize("kbytes", ["1024", "unlimited"])
def test_a_stack_of_another_size_overflows_too(kbytes: str):
    """A small one is in the report to its end; one without a limit would take all memory."""
    limited = ("bash", "-c", f'ulimit -s {kbytes} && exec "$@"', "bash")
    if subprocess.run([*limited, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("the limit of the stack can't be raised here")
    code, answer = check("--tools", "asan", str(PROGRAM), str(FILES["stack_overflow"]), before=limited)
    assert code == 1
    assert [each["kernel"] for each in answer["findings"]] == ["stack_overflow.stack_overflow"], answer
    assert answer["findings"][0]["kind"] == "stack-overflow"
    assert answer["findings"][0]["caller"].endswith("program.py:20 in main")
