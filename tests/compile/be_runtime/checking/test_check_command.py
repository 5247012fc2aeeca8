"""``python -m be_runtime check``: exit codes, output, and programs that fail by themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from be_runtime.checking.check_program import check_program
from be_runtime.checking.children import Detectors, Invocation
from be_runtime.checking.merged_findings import render
from tests.support.runtime import environment

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


def run(folder: Path, text: str, *arguments: str, options: tuple[str, ...] = ("--tools", "guard")):
    (folder / "script.py").write_text(text)
    argv = [sys.executable, "-m", "be_runtime", "check", *options, "script.py", *arguments]
    return subprocess.run(argv, cwd=folder, env=environment(), capture_output=True, text=True, timeout=240, check=False)


def test_a_program_without_faults_exits_with_0_and_keeps_its_output(tmp_path: Path):
    done = run(tmp_path, KERNEL + CALL.format(less=0))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nothing found (guard ")
    assert "gave 0.0" in done.stderr


def test_findings_exit_with_1_and_name_kernel_array_and_line(tmp_path: Path):
    done = run(tmp_path, KERNEL + CALL.format(less=1))
    assert done.returncode == 1
    first, second, *_ = done.stdout.splitlines()
    assert first == "1. checked.copy, called at script.py:11 in <module>"
    assert second.startswith("   guard: does not write all of result 0 (float32[4]): 1 of 4 elements are never written")


def test_json_is_all_of_the_output(tmp_path: Path):
    done = run(tmp_path, KERNEL + CALL.format(less=1), options=("--json", "--tools", "guard"))
    answer = json.loads(done.stdout)
    assert (answer["command"], answer["exit_code"], answer["error"]) == ("check", 1, "")
    assert [tool["tool"] for tool in answer["tools"]] == ["guard"]
    assert answer["findings"][0]["caller"] == "script.py:11 in <module>"


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("sys.exit(5)", "the program ended with exit code 5"),
        ("raise ValueError('of its own')", "the program failed: ValueError: of its own"),
        ("exec('def f(:')", "the program failed: SyntaxError: "),
        ("open('absent')", "No such file or directory: 'absent'"),
        ("import os; os._exit(0)", "the program ended without Python's own end, as by os._exit"),
    ],
)
def test_a_program_that_fails_by_itself_exits_with_2(tmp_path: Path, end: str, error: str):
    done = run(tmp_path, f"import sys\n{end}\n")
    assert done.returncode == 2
    assert error in done.stdout
    assert "checked_script" not in done.stderr, "frames of ours are not the author's"


def test_a_module_that_is_not_there_shows_no_frames_of_ours(tmp_path: Path):
    done = run(tmp_path, "", options=("--tools", "guard", "-m", "absent_module"))
    assert (done.returncode, "ImportError: No module named absent_module" in done.stdout) == (2, True)
    assert "checked_script" not in done.stderr


def test_processes_that_the_program_starts_are_checked(tmp_path: Path):
    work = "def work(_):\n    module.copy(jnp.arange(4.0), less=1)\n"
    start = "import multiprocessing\nif __name__ == '__main__':\n"
    pool = "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n        pool.map(work, [0])\n"
    done = run(tmp_path, KERNEL + work + start + pool)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("1. checked.copy, called at script.py:12 in work\n   guard: does not write all of")


def test_arguments_are_the_programs(tmp_path: Path):
    done = run(tmp_path, "import sys\nprint(sys.argv, __name__)\n", "--json", "-x")
    assert "['script.py', '--json', '-x'] __main__" in done.stderr


def test_a_module_is_run_as_python_does(tmp_path: Path):
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "__main__.py").write_text("import sys\nprint('module', sys.argv[1:], __package__)\n")
    argv = [sys.executable, "-m", "be_runtime", "check", "--tools", "guard", "-m", "some", "--flag"]
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "module ['--flag'] some" in done.stderr


def test_a_program_that_takes_too_long_is_stopped(tmp_path: Path):
    options = ("--tools", "guard", "--timeout", "3")
    done = run(tmp_path, "import time\ntime.sleep(100)\n", options=options)
    assert done.returncode == 2
    assert "the program was stopped after 3 s; raise --timeout" in done.stdout


@pytest.mark.parametrize("tools", ["guard", "guard,asan"])
def test_a_crash_has_the_line_that_python_was_at(tmp_path: Path, tools: str):
    done = run(tmp_path, f"{KERNEL}import os\ndef crash():\n    os.abort()\ncrash()\n", options=("--tools", tools))
    assert ("`check --tools asan` names its line" in done.stdout) == (tools == "guard")
    assert done.returncode == 1
    assert done.stdout.splitlines()[:2] == [
        "1. native code, called at script.py:13 in crash",
        "   guard: the process ended by SIGABRT in native code",
    ]


def test_an_abort_at_the_end_of_the_interpreter_is_no_kernels(tmp_path: Path):
    done = run(tmp_path, KERNEL + CALL.format(less=0) + "import atexit, os\natexit.register(os.abort)\n")
    assert done.returncode == 2, done.stdout
    assert done.stdout.startswith("nothing found (guard ")
    assert "the process ended by SIGABRT when the program was over and no kernel ran" in done.stdout


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


def test_threads_that_wait_for_each_other_and_calls_one_after_another_are_no_race(tmp_path: Path):
    done = run(tmp_path, THREADS, options=("--tools", "tsan"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("nothing found (tsan ")


def test_a_program_that_can_not_run_under_a_tool_is_not_to_blame(tmp_path: Path):
    end = "import os\nif os.environ.get('BE_SANITIZE') == 'thread':\n    raise OSError('not here')\n"
    done = run(tmp_path, KERNEL + CALL.format(less=0) + end, options=("--tools", "guard,tsan"))
    assert done.returncode == 0, done.stderr
    why = "under it, the program failed: OSError: not here"
    assert f"note (tsan): nobody looked for races of threads in C++ modules: {why}" in done.stdout


def test_the_report_says_what_nobody_looked_for(tmp_path: Path):
    (tmp_path / "script.py").write_text(KERNEL + CALL.format(less=0))
    outcome = check_program(
        Invocation(str(tmp_path / "script.py")),
        ("guard",),
        Detectors(sys.executable),
        lacking={"valgrind": "there is no valgrind", "racecheck": "there is no GPU"},
        timeout_s=None,
        say=lambda text: None,
    )
    report = render(outcome.runs, outcome.findings).splitlines()
    assert report[0].startswith("note (valgrind): nobody looked for memory that C++ modules read before they set it")
    assert report[0].endswith(": there is no valgrind")
    assert report[1].startswith("nothing found (guard ")


def test_a_signal_without_a_name(tmp_path: Path):
    done = run(tmp_path, "import os\nos.kill(os.getpid(), 40)\n")
    assert done.returncode == 1, done.stderr
    assert "guard: the process ended by signal 40 in native code" in done.stdout


def test_the_end_of_a_forked_child_is_not_that_of_the_program(tmp_path: Path):
    done = run(tmp_path, "import os\nif os.fork():\n    os.wait()\n    os._exit(0)\n")
    assert done.returncode == 2
    assert "the program ended without Python's own end" in done.stdout


def test_a_script_that_is_not_there_is_named(tmp_path: Path):
    argv = [sys.executable, "-m", "be_runtime", "check", str(tmp_path / "absent.py")]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, f"there is no script {tmp_path / 'absent.py'}" in done.stderr) == (2, True)
