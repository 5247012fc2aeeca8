"""Names of kernels: a process that dies says which one runs and which line calls it; so do programs and profiles."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import be_runtime
from tests.support.profiles import line_of, profile
from tests.support.runtime import environment, run_python

SOURCE = r"""
#include "brainevent/common.h"
#include "brainevent/parallel.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
using T = BE::Tensor;
// @BE fine arg[n] ret[n]
void fine(const T x, T y) { for (int64_t i = 0; i < x.numel(); ++i) y.at<float>(i) = x.at<float>(i); }
// @BE null arg[n] ret[n]
void null(const T, T) { *static_cast<volatile int*>(nullptr) = 1; }
// @BE divides arg[n] ret[n]
void divides(const T x, T y) { volatile int zero = 0; y.data_ptr<float>()[0] = static_cast<float>(7 / zero); }
// @BE aborts arg[n] ret[n]
void aborts(const T& x, T& y) { if (x.numel() > 0) __builtin_abort(); }
// @BE corrupts arg[n] ret[n]
void corrupts(const T, T) { void* volatile room = malloc(100000); free(room); free(room); }
// @BE traps arg[n] ret[n]
void traps(const T, T) { __builtin_trap(); }
// @BE bus arg[n] ret[n]
void bus(const T, T) { raise(SIGBUS); }
// @BE far arg[n] ret[n]
void far(const T, T y) { y.data_ptr<float>()[y.numel() + 4096] = 1; }
// Its frames are smaller than the guard page of a thread's stack, which they could step over otherwise.
static int down(int n) { volatile char room[1024]; room[n & 1023] = 1; return n == 0 ? 0 : down(n - 1) + room[1]; }
// @BE deep arg[n] ret[n]
void deep(const T, T y) { y.data_ptr<float>()[0] = static_cast<float>(down(1 << 30)); }
// Dies in a part that another thread runs; this thread waits for that.
// @BE worker arg[n] ret[n]
void worker(const T, T) {
  const pthread_t caller = pthread_self();
  BE::parallel_for(1000, 1, [&](int64_t, int64_t) {
    if (!pthread_equal(caller, pthread_self())) *static_cast<volatile int*>(nullptr) = 1;
    for (;;) pause();
  });
}
"""
HEAD = """
import faulthandler, os, resource, signal, sys
import jax, jax.numpy as jnp
import be_runtime
x = jnp.arange(6.0)
"""
# GNU make lifts the limit of the stack for what it runs: without one, `deep` would take all memory.
PROGRAM = """
resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
dies = be_runtime.load_cpp_inline("dies", sys.argv[1])
kernel = dies[sys.argv[2]]
jax.block_until_ready(dies.fine(x))
def step(x):
    return kernel(dies.fine(x))
run = jax.jit(step) if sys.argv[3] == "jitted" else step
print("before", flush=True)
jax.block_until_ready(run(x))
"""
LINE = r"<string>:12 in step"
full = pytest.mark.full
FAULTS = [
    ("null", "SIGSEGV", "jitted"), ("divides", "SIGFPE", "eager"), ("aborts", "SIGABRT", "jitted"),
    ("corrupts", "SIGABRT", "eager"), ("traps", "SIGILL", "jitted"), ("bus", "SIGBUS", "eager"),
    ("deep", "SIGSEGV", "jitted"), ("worker", "SIGSEGV", "jitted"), ("far", "SIGSEGV", "eager"),
]  # fmt: skip
CASES = [
    pytest.param(variable, *fault, marks=[] if fault[0] == smoke else [full])
    for variable, smoke in (("PYTHONFAULTHANDLER", "null"), ("BE_DEBUG", "far"))
    for fault in FAULTS
    if (variable, fault[0]) != ("PYTHONFAULTHANDLER", "far")  # only BE_DEBUG notices the write
]


@pytest.mark.parametrize(("variable", "kernel", "signal", "how"), CASES)
def test_a_signal_in_a_kernel_is_told_with_the_line(variable: str, kernel: str, signal: str, how: str):
    if kernel == "divides" and os.uname().machine != "x86_64":
        pytest.skip("a division by zero is no fault here")
    if kernel == "worker" and (os.cpu_count() or 1) < 2:
        pytest.skip("one processor")
    done = run_python(HEAD + PROGRAM, SOURCE, kernel, how, env=environment(**{variable: "1"}), check=False)
    assert done.stdout == "before\n", done.stderr
    assert done.returncode < 0
    is_handler = variable == "PYTHONFAULTHANDLER"
    where, rest = "in", "$"
    if kernel == "worker":
        where, rest = "in the code of" if is_handler else "in another thread, during", ""
    if kernel == "far" and not is_handler:
        rest = r": it (?:writes to|accesses) an address 16384 bytes past result 0 \(float32\[6\]\)$"
    said = rf"^be_runtime: {signal} {where} dies\.{kernel}, called at {LINE}{rest}"
    assert re.search(said, done.stderr, re.MULTILINE), done.stderr
    assert ("Fatal Python error" in done.stderr) == is_handler, "what was there before goes on"


OTHERS = {
    "all lines that call it": (
        """
dies = be_runtime.load_cpp_inline("dies", sys.argv[1])
faulthandler.enable()
dies.aborts(x[:0])
dies.aborts(x)
""",
        r"^be_runtime: SIGABRT in dies.aborts, called at <string>:9 in <module> or <string>:10 in <module>$",
    ),
    # here of a library whose handlers are compiled by themselves, as with libraries of the author
    "a call by name has no line": (
        """
faulthandler.enable()
be_runtime.load_cpp_inline("dies", sys.argv[1], extra_ldflags=["-lm"])
jax.block_until_ready(jax.ffi.ffi_call("dies.bus", x)(x))
""",
        r"^be_runtime: SIGBUS in dies.bus$",
    ),
    "a fault outside of kernels is not theirs": (
        """
faulthandler.enable()
be_runtime.load_cpp_inline("dies", sys.argv[1]).fine(x).block_until_ready()
os.abort()
""",
        r"\A(?!.*be_runtime: SIG)[\s\S]*Fatal Python error: Aborted",
    ),
}


@full
@pytest.mark.parametrize("case", OTHERS)
def test_who_calls_a_kernel_is_told(case: str):
    code, said = OTHERS[case]
    done = run_python(HEAD + code, SOURCE, check=False)
    assert done.returncode < 0
    assert re.search(said, done.stderr, re.MULTILINE), done.stderr


@full
def test_a_kernel_of_numba_is_told():
    pytest.importorskip("numba")
    code = """
import numba
faulthandler.enable()
@numba.njit
def far(x, y):
    y[x.size + (1 << 40)] = x[0]
jax.block_until_ready(be_runtime.numba_kernel(far, outs=jax.ShapeDtypeStruct((6,), x.dtype))(x))
"""
    # JIT-compiled code may have no frames, and is then known as none of a library
    said = r"^be_runtime: SIGSEGV in (the code of )?far, called at <string>:12 in <module>$"
    assert re.search(said, run_python(HEAD + code, check=False).stderr, re.MULTILINE)


@full
def test_without_both_no_handler_is_installed():
    code = """
import signal, sys
def caught():
    (line,) = [line for line in open("/proc/self/status") if line.startswith("SigCgt:")]
    return {each for each in (signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL)
            if int(line.split()[1], 16) >> (each - 1) & 1}
import jax.numpy as jnp
before = caught()
import be_runtime
be_runtime.load_cpp_inline("dies", sys.argv[1]).fine(jnp.arange(6.0)).block_until_ready()
assert caught() == before, caught()
"""
    run_python(code, SOURCE, env=environment(PYTHONFAULTHANDLER=None))


NAMED = r"""
#include "brainevent/common.h"
// @BE cube arg[...] ret[...]
void cube(const BE::Tensor x, BE::Tensor y) { *y.data_ptr<float>() = *x.data_ptr<float>(); }
// @BE back arg[n] arg[n] ret[n]
void back(const BE::Tensor x, const BE::Tensor dy, BE::Tensor dx) { *dx.data_ptr<float>() = *dy.data_ptr<float>(); }
"""
X = jnp.arange(3.0)


@pytest.fixture(scope="module")
def cube() -> Any:
    cube = be_runtime.load_cpp_inline("named", NAMED).cube
    cube.defvjp(None, "back")
    return cube


def _names(function: Callable[..., Any], *arrays: Any) -> list[str]:
    """The names of the kernels that the compiled program calls."""
    text = jax.jit(function).lower(*arrays).compile().as_text() or ""
    found = [re.search(r'op_name="([^"]*)"', line) for line in text.splitlines() if "custom-call(" in line]
    return sorted(match[1].rpartition("/")[2] for match in found if match)


def test_each_call_is_named_and_has_the_line_of_its_caller(cube: Any):
    def model(x: jax.Array) -> Any:
        y = cube(x)
        with jax.named_scope("mine"):
            return cube(3 * y)

    text = jax.jit(model).lower(X).as_text(debug_info=True)
    found = {match[1]: match[2] for match in re.finditer(r'loc\("(jit\(model\)[^"]*named\.cube)"\(#(loc\d+)\)', text)}
    assert len(found) == 2
    assert sum("mine/" in name for name in found) == 1
    lines = {line_of(model, "cube(x)"), line_of(model, "cube(3 * y)")}
    assert {_line(text, place) for place in found.values()} == lines


def _line(text: str, place: str) -> int:
    """The innermost line of a location: call sites and names lead to it."""
    (shown,) = re.findall(rf"^#{place} = loc\((.*)\)$", text, re.MULTILINE)
    file = re.match(r'"[^"]*\.py":(\d+):', shown)
    return int(file[1]) if file else _line(text, re.findall(r"#(loc\d+)", shown)[0])


def test_every_transformation_keeps_the_name(cube: Any):
    def loss(x: Any) -> Any:
        return cube(x).sum()

    assert _names(jax.vmap(cube), jnp.ones((2, 3))) == ["named.cube"]
    assert _names(cube.with_options(ordered=True), X) == ["named.cube"]
    assert _names(jax.grad(loss), X) == ["named.back"]
    assert _names(jax.value_and_grad(loss), X) == ["named.back", "named.cube"]
    assert _names(lambda x: jax.lax.map(cube, x), jnp.ones((2, 3))) == ["named.cube"]


def test_a_trace_of_the_profiler_shows_the_function_and_the_file_of_its_caller(cube: Any, tmp_path: Path):
    def step(x: jax.Array) -> Any:
        return cube(x) + 1

    compiled = jax.jit(step)
    compiled(X)
    found = profile(lambda: compiled(X), tmp_path)
    if not found.operations():
        pytest.skip("this JAX traces no operations of the CPU")
    assert b"/named.cube" in found.programs
    assert Path(__file__).name.encode() in found.programs
    if jax.__version_info__ >= (0, 8):  # older releases name operations by their kind
        assert any(name.startswith("named_cube") for name in found.operations())
