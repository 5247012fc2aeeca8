"""``python -m be_runtime check``: exit codes and output, programs that fail by themselves, and each planted fault."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from be_runtime.cli.main import main
from be_runtime.debugging.check import check_program, render
from be_runtime.debugging.sanitizers import Detectors, Invocation
from tests.compile.be_runtime.include.conftest import KERNELS
from tests.support.planted.try_all import PROGRAM, kernels
from tests.support.requirements import in_full
from tests.support.runtime import ROOT, environment

KERNEL = '''
import sys
import jax.numpy as jnp
import be_runtime
module = be_runtime.load_cpp_inline("checked", """
#include "brainevent/common.h"
// @BE copy arg[n] ret[n] attr.less:int64
void copy(const BE::Tensor x, BE::Tensor y, int64_t less) {
  for (int64_t i = 0; i + less < x.numel(); ++i) y.at<float>(i) = x.at<float>(i);
}""")
'''
CALL = "print('gave', module.copy(jnp.arange(4.0), less={less})[0])\n"
RIGHT, WRONG = KERNEL + CALL.format(less=0), KERNEL + CALL.format(less=1)
GUARD = ("--tools", "guard")
Check = Callable[..., tuple[int, str, str]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Check:
    """Check a script: exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")

    def run(script: str, *arguments: str, options: tuple[str, ...] = GUARD) -> tuple[int, str, str]:
        (tmp_path / "script.py").write_text(script)
        named = [] if "-m" in options else ["script.py"]
        return main(["check", *options, *named, *arguments]), *capfd.readouterr()

    return run


def test_a_program_without_faults_exits_with_0_and_keeps_its_arguments_and_output(check: Check):
    code, out, err = check(f"{RIGHT}print(sys.argv, __name__)\n", "--json", "-x")
    assert code == 0, err
    assert out.startswith("nothing found (guard ")
    assert "gave 0.0\n['script.py', '--json', '-x'] __main__\n" in err


def test_findings_exit_with_1_and_name_kernel_array_and_line(check: Check):
    code, out, _ = check(WRONG)
    assert code == 1
    first, second, *_ = out.splitlines()
    assert first == "1. checked.copy, called at script.py:11 in <module>"
    assert second.startswith("   guard: does not write all of result 0 (float32[4]): 1 of 4 elements are never written")


@pytest.mark.parametrize(
    ("script", "options", "code", "error"),
    [
        ("import sys\nsys.exit(5)", (), 2, "the program ended with exit code 5"),
        ("raise ValueError('of its own')", (), 2, "the program failed: ValueError: of its own"),
        in_full("exec('def f(:')", (), 2, "the program failed: SyntaxError: "),
        in_full("open('absent')", (), 2, "No such file or directory: 'absent'"),
        ("import os; os._exit(0)", (), 2, "the program ended by os._exit"),
        in_full("import os\nif os.fork(): os.wait(); os._exit(0)", (), 2, "the program ended by os._exit or the like"),
        ("import time\ntime.sleep(100)", ("--timeout", "1"), 2, "the program was stopped after 1 s; raise --timeout"),
        ("", ("-m", "absent_module"), 2, "ImportError: No module named absent_module"),
        in_full("import os\nos.kill(os.getpid(), 40)", (), 1, "guard: the process ended by signal 40 in native code"),
    ],
)
def test_a_program_that_fails_by_itself_is_told_from_faults(
    check: Check, script: str, options: tuple[str, ...], code: int, error: str
):
    found, out, err = check(f"{script}\n", options=(*GUARD, *options))
    assert (found, error in out) == (code, True), out + err
    assert "checked_script" not in err, "frames of ours are not the author's"


def test_a_script_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", str(tmp_path / "absent.py")]) == 2
    assert f"the script {tmp_path / 'absent.py'} does not exist" in capsys.readouterr().err


@pytest.mark.full
def test_a_signal_ends_the_program_with_the_command(tmp_path: Path):
    (tmp_path / "waits.py").write_text(f"open({str(tmp_path / 'begun')!r}, 'x')\nimport time\ntime.sleep(600)\n")
    environ = environment(TMPDIR=str(tmp_path))
    command = [sys.executable, "-m", "be_runtime", "check", "--tools", "guard", str(tmp_path / "waits.py")]
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    assert not [*tmp_path.glob("be_check.*")]
    running = [each.read_bytes() for each in Path("/proc").glob("[0-9]*/cmdline") if each.exists()]
    assert not [each for each in running if str(tmp_path / "waits.py").encode() in each]


def test_a_module_is_run_as_python_does(check: Check, tmp_path: Path):
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "__main__.py").write_text("import sys\nprint('module', sys.argv[1:], __package__)\n")
    code, _, err = check("", "--flag", options=(*GUARD, "-m", "some"))
    assert code == 0, err
    assert "module ['--flag'] some" in err


@pytest.mark.full
def test_processes_that_the_program_starts_are_checked(check: Check):
    work = "def work(_):\n    module.copy(jnp.arange(4.0), less=1)\n"
    start = "import multiprocessing\nif __name__ == '__main__':\n"
    pool = "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n        pool.map(work, [0])\n"
    code, out, err = check(KERNEL + work + start + pool)
    assert code == 1, err
    assert out.startswith("1. checked.copy, called at script.py:12 in work\n   guard: does not write all of")


@pytest.mark.parametrize("tools", ["guard", in_full("guard,asan")])
def test_a_crash_has_the_line_that_python_was_at(check: Check, tools: str):
    code, out, _ = check("import os\ndef crash():\n    os.abort()\ncrash()\n", options=("--tools", tools))
    assert ("`check --tools asan` names its line" in out) == (tools == "guard")
    assert code == 1
    assert out.splitlines()[:2] == [
        "1. native code, called at script.py:3 in crash",
        "   guard: the process ended by SIGABRT in native code",
    ]


@pytest.mark.full
def test_an_abort_at_the_end_of_the_interpreter_is_no_kernels(check: Check):
    code, out, _ = check(f"{RIGHT}import atexit, os\natexit.register(os.abort)\n")
    assert code == 2, out
    assert out.startswith("nothing found (guard ")
    assert "the process ended by SIGABRT when the program was over and no kernel ran" in out


THREADS = r'''
import jax, jax.numpy as jnp
import be_runtime
module = be_runtime.load_cpp_inline("threads", """
#include "brainevent/common.h"
#include "brainevent/parallel.h"
#include "brainevent/state.h"
#include <atomic>
#include <mutex>
#include <vector>
struct Table {
  Table() : values(1000, 1.0f) {}
  ~Table() { for (float& value : values) value = 0; }
  std::vector<float> values;
};
// @BE adds arg[n] ret[n] state
void adds(const BE::Tensor x, BE::Tensor y, const BE::State<Table>& table) {
  static int calls = 0;
  ++calls;
  for (int64_t i = 0; i < x.numel(); ++i) y.at<float>(i) = x.at<float>(i) + table->values[i % 1000];
}
// @BE sums arg[n] ret[n] scratch
void sums(const BE::Tensor x, BE::Tensor y, BE::Workspace workspace) {
  std::mutex mutex;
  std::atomic<int> parts{0};
  float total = 0;
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  BE::parallel_for(x.numel(), 10, [&](int64_t begin, int64_t end) {
    static thread_local std::vector<float> own;
    own.assign(in + begin, in + end);
    float* copy = workspace.allocate_as<float>(end - begin);
    for (int64_t i = begin; i < end; ++i) copy[i - begin] = own[i - begin];
    BE::parallel_for(end - begin, 1, [&](int64_t b, int64_t e) { for (; b < e; ++b) out[begin + b] = copy[b]; });
    const std::lock_guard<std::mutex> lock(mutex);
    total += copy[0];
    ++parts;
  });
  out[0] = total;
}
""")
@jax.jit
def step(x):
    return sum(module.sums(module.adds(x + i)) for i in range(6))
x = jnp.arange(20000.0)  # enough for threads of XLA
for _ in range(2):
    jax.block_until_ready(step(x))
jax.clear_caches()
jax.block_until_ready(step(x))
'''


@pytest.mark.full
def test_threads_that_wait_for_each_other_and_calls_one_after_another_are_no_race(check: Check):
    code, out, err = check(THREADS, options=("--tools", "tsan"))
    assert code == 0, out + err
    assert out.startswith("nothing found (tsan ")


EIGHT = (
    THREADS.replace("  static int calls = 0;\n  ++calls;\n", "")
    + """
from concurrent.futures import ThreadPoolExecutor
programs = [jax.jit(lambda x, i=i: module.sums(module.adds(x + i))) for i in range(8)]
def work(program):
    for _ in range(4):
        jax.block_until_ready(program(x))
        jax.block_until_ready(module.adds(x))
    return program(x)[0]
with ThreadPoolExecutor(8) as pool:
    print([float(each) for each in pool.map(work, programs)])
"""
)


@pytest.mark.full
def test_the_native_parts_have_no_race_when_eight_threads_call_at_once(check: Check):
    code, out, err = check(EIGHT, options=("--tools", "tsan"))
    assert code == 0, out + err
    assert out.startswith("nothing found (tsan ")


STATE = f"""
import gc, jax, jax.numpy as jnp, be_runtime
module = be_runtime.load_cpp_file({str(KERNELS / "state.cc")!r})
x = jnp.ones(3)
run = jax.jit(lambda x: module.scaled(x, outs=x, scale=2.0))
print(run(x).tolist(), run(x)[2])
del run
jax.clear_caches()
gc.collect()
"""


@pytest.mark.full
def test_a_state_is_clean_under_the_address_sanitizer_unless_it_is_used_after_its_program(check: Check):
    code, out, err = check(STATE, options=("--tools", "asan"))
    assert (code, "[2.0, 1.0, 1.0] 2.0" in err) == (0, True), out + err
    code, out, err = check(f"{STATE}module.after(x, outs=x)", options=("--tools", "asan"))
    assert (code, "heap-use-after-free" in out) == (1, True), out + err


@pytest.mark.full
def test_a_program_that_can_not_run_under_a_tool_is_not_to_blame(check: Check):
    end = "import os\nif os.environ.get('BE_SANITIZE') == 'thread':\n    raise OSError('not here')\n"
    code, out, err = check(RIGHT + end, options=("--tools", "guard,tsan"))
    assert code == 0, err
    why = "under it, the program failed: OSError: not here"
    assert f"note (tsan): not checked: races of threads in C++ modules: {why}" in out


def test_the_report_says_what_nobody_looked_for(tmp_path: Path):
    (tmp_path / "script.py").write_text(RIGHT)
    outcome = check_program(
        Invocation(str(tmp_path / "script.py")),
        ("guard",),
        Detectors(sys.executable),
        lacking={"valgrind": "there is no valgrind", "racecheck": "there is no GPU"},
        timeout_s=None,
        say=lambda text: None,
    )
    first, second = render(outcome.runs, outcome.findings).splitlines()[:2]
    assert first.startswith("note (valgrind): not checked: memory that C++ modules read before they set it")
    assert first.endswith(": there is no valgrind")
    assert second.startswith("nothing found (guard ")


EXPECTED = {
    "far_write": ("crash", "it writes to an address 16384 bytes past result 0 (float32[256])"),
    "index_outside": ("bounds", "index 0 is 256, and axis 0 has 256 elements"),
    "input_write": ("inputs", "1 of 256 elements are changed, the first is [2]"),
    "misaligned": ("misaligned", "'const double', which requires 8 byte alignment"),
    "never_written": ("unwritten", "85 of 256 elements are never written, the first is [1]"),
    "not_a_number": ("values", "gives NaN in result 0 (float32[256]): 1 of 256 elements, the first is [0]"),
    "read_outside": ("heap-buffer-overflow", "read of 4 bytes, 0 bytes past the end of memory of 1024 bytes"),
    "stack_overflow": ("stack-overflow", "deep"),
    "thread_race": ("race", "race of two threads: "),
    "uninitialised_local": ("unwritten", "128 of 256 elements depend on it, the first is [1]"),
    "uninitialised_read": ("unwritten", "result 0"),
    "write_outside": ("heap-buffer-overflow", "write of 4 bytes, 0 bytes past the end"),
    "wrong_dtype": ("bounds", "data_ptr<double>() of a float32 tensor"),
    "wrong_shape": ("guards", "writes 1024 bytes past result 0"),
}


BY_BOTH = "write_outside"
"""The kernel that all tools look at; the others are tried with the one that has to find them."""
BY_SANITIZERS = {"misaligned": "asan", "stack-overflow": "asan", "heap-buffer-overflow": "asan", "race": "tsan"}


def check_in_process(*arguments: str, before: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    argv = [*before, sys.executable, "-m", "be_runtime", "check", "--json", *arguments]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=840, check=False)
    return done.returncode, json.loads(done.stdout)


FILES = {kernel.stem: kernel for kernel in kernels("cpp")}


@pytest.mark.parametrize("name", [name if name == BY_BOTH else in_full(name) for name in FILES])
def test_a_planted_fault_is_found(name: str):
    kernel, (kind, words) = FILES[name], EXPECTED[name]
    tools = ["--tools", BY_SANITIZERS.get(kind, "guard") if name != BY_BOTH else "guard,asan"]
    code, answer = check_in_process(*tools, str(PROGRAM), str(kernel))
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
    code, answer = check_in_process("--tools", "valgrind", str(PROGRAM), str(FILES["uninitialised_local"]))
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
    code, answer = check_in_process("--tools", "asan", str(PROGRAM), str(FILES["stack_overflow"]), before=limited)
    assert code == 1
    assert [each["kernel"] for each in answer["findings"]] == ["stack_overflow.stack_overflow"], answer
    assert answer["findings"][0]["kind"] == "stack-overflow"
    assert answer["findings"][0]["caller"].endswith("program.py:20 in main")
