"""The commands and variables of the processes in which a program is checked."""

from __future__ import annotations

import pytest

from be_runtime.checking.children import DEVICE_TOOLS, TOOLS, Detectors, Invocation, Tool, plan_child

PRELOAD: dict[Tool, tuple[str, ...]] = {
    "asan": ("/lib/libasan.so", "/lib/libstdc++.so.6"),
    "tsan": ("/lib/libtsan.so", "/lib/libstdc++.so.6"),
}
FOUND = Detectors("python3", PRELOAD, "/usr/bin/valgrind", "/cuda/bin/compute-sanitizer")


@pytest.mark.parametrize("tool", TOOLS)
def test_each_child_runs_the_program_with_its_arguments(tool: Tool):
    child = plan_child(tool, Invocation("train.py", ("--steps", "3")), FOUND, "/folder")
    assert child.argv[-9:-3] == ("python3", "-m", "be_runtime.checking.checked_script", tool, child.record, "script")
    assert child.argv[-3:] == ("train.py", "--steps", "3")


def test_a_module_is_run_by_its_name():
    child = plan_child("guard", Invocation("pkg.train", ("a",), is_module=True), FOUND, "/folder")
    assert child.argv[-3:] == ("module", "pkg.train", "a")


def test_address_sanitizer_comes_before_all_libraries_and_goes_on_after_an_error():
    variables = plan_child("asan", Invocation("a.py"), FOUND, "/folder").variables
    assert variables["LD_PRELOAD"] == "/lib/libasan.so /lib/libstdc++.so.6"
    assert variables["BE_SANITIZE"] == "address,undefined"
    assert {"detect_leaks=0", "halt_on_error=0", "protect_shadow_gap=0"} <= {*variables["ASAN_OPTIONS"].split(":")}


def test_thread_sanitizer_comes_first_too_and_looks_at_modules_alone():
    variables = plan_child("tsan", Invocation("a.py"), FOUND, "/folder").variables
    assert variables["LD_PRELOAD"] == "/lib/libtsan.so /lib/libstdc++.so.6"
    assert variables["BE_SANITIZE"] == "thread"
    wanted = {"ignore_noninstrumented_modules=1", "exitcode=0", "halt_on_error=0", "log_path=/folder/tsan.log"}
    assert wanted <= {*variables["TSAN_OPTIONS"].split(":")}


def test_valgrind_is_around_the_program():
    child = plan_child("valgrind", Invocation("a.py"), FOUND, "/folder")
    assert child.argv[:2] == ("/usr/bin/valgrind", "--log-file=/folder/valgrind.log.%p")


@pytest.mark.parametrize("tool", DEVICE_TOOLS)
def test_compute_sanitizer_is_around_the_program_without_xlas_pool(tool: Tool):
    child = plan_child(tool, Invocation("a.py"), FOUND, "/folder")
    assert child.argv[:3] == ("/cuda/bin/compute-sanitizer", "--tool", tool)
    assert child.argv[child.argv.index("--log-file") + 1].startswith(child.log)
    assert child.variables == {
        "BE_DEBUG": "guards",
        "BE_SANITIZE": "device",
        "XLA_PYTHON_CLIENT_ALLOCATOR": "platform",
    }
    assert ("--padding" in child.argv) == (tool == "memcheck")
