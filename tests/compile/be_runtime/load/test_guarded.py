"""Checked calls: planted faults are found, named and placed, in any program, also by a second, checked library."""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime import CompiledModule, FindingError
from be_runtime.jax import port
from be_runtime.own_files import INCLUDE_DIR, NATIVE_DIR
from tests.support.runtime import call, environment, libraries, real_compiler, run_python

PLANTED = r"""
#include <stdexcept>
#include <stdlib.h>
#include "brainevent/common.h"
#include "brainevent/state.h"
#include "brainevent/workspace.h"
using T = BE::Tensor;
static float* out(T& t) { return t.data_ptr<float>(); }
static float* out(BE::Workspace& w) { return static_cast<float*>(w.data()); }
static const float* in(const T& t) { return t.data_ptr<float>(); }
#define EACH(x) for (int64_t i = 0; i < x.numel(); ++i)
// @BE good arg[n] ret[n] attr.by:float32
void good(const T x, T y, float by) { EACH(x) out(y)[i] = by * in(x)[i]; }
// @BE behind arg[...] ret:like(0)
void behind(const T x, T y) { for (int64_t i = 0; i < x.numel() + 2; ++i) out(y)[i] = 1; }
// @BE before arg[n] ret[n]
void before(const T x, T y) { for (int64_t i = -3; i < x.numel(); ++i) out(y)[i] = 1; }
// @BE reads_behind arg[n] ret[n]
void reads_behind(const T x, T y) { EACH(x) out(y)[i] = in(x)[i + 1]; }
// @BE skips arg[...] ret:like(0)
void skips(const T x, T y) { EACH(x) if (i % 3 != 1) out(y)[i] = 1; }
// @BE changes_input arg[n] ret[n]
void changes_input(const T x, T y) { EACH(x) out(y)[i] = 1; const_cast<float*>(in(x))[2] = 9; }
// @BE adds arg[n] ret[n]
void adds(const T x, T y) { EACH(x) out(y)[i] += in(x)[i]; }
// @BE divides arg[n] arg[n] ret[n]
void divides(const T a, const T b, T y) { EACH(a) out(y)[i] = in(a)[i] / in(b)[i]; }
// @BE square arg[n] ret[n]
void square(const T x, T y) { EACH(x) out(y)[i] = in(x)[i] * in(x)[i]; }
// @BE square_backward arg[n] arg[n] ret[n]
void square_backward(const T x, const T g, T y) { EACH(x) if (i > 0) out(y)[i] = 2 * in(x)[i] * in(g)[i]; }
// @BE skips_seventh arg[... n] ret[... n]
void skips_seventh(const T x, T y) { EACH(x) if (i != 7) out(y)[i] = in(x)[i]; }
// @BE skips_one arg[n] ret[n]
void skips_one(const T x, T y) { EACH(x) if (i + 1 < x.numel()) out(y)[i] = in(x)[i]; }
// @BE adds_to arg[n] arg[n] ret[n]
void adds_to(const T x, const T by, T y) { EACH(x) out(y)[i] += in(by)[i]; }
// @BE uses_scratch arg[n] ret[n] scratch[n*4]
void uses_scratch(const T x, T y, BE::Workspace w) { EACH(x) out(y)[i] = out(w)[i] = in(x)[i]; }
// @BE reads_scratch arg[n] ret[n] scratch[n*4]
void reads_scratch(const T x, T y, BE::Workspace w) { EACH(x) out(y)[i] = in(x)[i] + out(w)[i]; }
// @BE behind_scratch arg[n] ret[n] scratch[n*4]
void behind_scratch(const T x, T y, BE::Workspace w) { EACH(x) out(y)[i] = in(x)[i], out(w)[i + 1] = 0; }
// @BE packs arg[n] ret[n]:uint4
void packs(const T x, T y) {
  for (int64_t i = 0; i < (y.numel() + 1) / 2; ++i) if (i != 1) static_cast<uint8_t*>(y.data_ptr())[i] = 0x21;
}
struct Count { explicit Count(const BE::Attributes&) {} mutable int calls = 0; };
// @BE counts state arg[n] ret[n]
void counts(BE::State<Count> count, const T x, T y) {
  ++count->calls;
  EACH(x) if (i + 1 < x.numel()) out(y)[i] = static_cast<float>(count->calls);
}
// @BE refuses arg[n] ret[n]
void refuses(const T x, T y) { BE_CHECK(x.numel() > 100) << "too short"; }
// @BE alternates arg[n] ret[n]
void alternates(const T x, T y) { static int calls = 0; ++calls; EACH(x) out(y)[i] = calls % 2; }
// @BE first_is_other arg[n] ret[n]
void first_is_other(const T x, T y) { static int calls = 0; ++calls; EACH(x) out(y)[i] = calls > 1; }
// @BE numbers arg[n] ret[n]:int32
void numbers(const T x, T y) {
  static int32_t calls = 0;
  const int32_t low[] = {0xCB, 0x34};  // the byte of a result that was never written, in the first run and the second
  EACH(x) y.data_ptr<int32_t>()[i] = ++calls << 8 | low[(calls - 1) / x.numel() % 2];
}
// @BE fails arg[n] ret[n]
void fails(const T, T) { throw std::runtime_error("a line\xe2\x80\xa8 and\xc2\x85 another"); }
// @BE copies arg[n] arg[n] ret[n] ret[n]
void copies(const T x, const T z, T y, T w) {
  for (int64_t i = 0; i <= x.numel(); ++i) out(y)[i] = in(x)[i];
  for (int64_t i = -2; i < x.numel(); ++i) out(w)[i] = in(z)[i];
}
// @BE skips_second arg[n m] ret[n m]
void skips_second(const T x, T y) { EACH(x) if (i != 1) out(y)[i] = 1; }
// @BE dies arg[n] ret[n]
void dies(const T, T) { __builtin_abort(); }
"""
HERE = Path(__file__).parent
X = jnp.arange(6.0)
Z = X + 1


@pytest.fixture(scope="module")
def planted() -> CompiledModule:
    module = be_runtime.load_cpp_inline("planted", PLANTED)
    module.square.defvjp(None, "square_backward")
    return module


def here(offset: int = 0) -> str:
    """The line that calls this, as messages spell it."""
    return f"test_guarded.py:{inspect.stack()[1].lineno + offset} in "


def test_a_kernel_that_is_never_the_same_is_found_unless_it_is_declared_as_random(planted: CompiledModule):
    for kernel in (planted.alternates, planted.first_is_other, planted.numbers):
        with be_runtime.debug(), pytest.raises(FindingError, match="returns other bits in each run for re") as caught:
            kernel(X)
        assert caught.value.findings[0].kind == "repeat"
    with be_runtime.debug() as found:
        planted.alternates.with_options(random=True)(X)
    assert len(found) == 0
    assert "returns other bits in each run" in found.notes[0]


def test_a_kernel_is_run_again_also_if_that_is_all_that_is_checked(planted: CompiledModule):
    with be_runtime.debug("repeat"), pytest.raises(FindingError, match="6 of 6 elements differ"):
        planted.alternates(X)
    with be_runtime.debug("repeat") as found:
        planted.skips(X)
    assert found.report() == "no findings"


def test_a_message_with_any_line_ends(planted: CompiledModule):
    with be_runtime.debug(on_finding="collect") as found, pytest.raises(jax.errors.JaxRuntimeError, match="a line"):
        planted.fails(X).block_until_ready()
    assert "a line\u2028 and\x85 another" in found[0].message


def test_bytes_copied_from_beside_one_array_to_beside_another(planted: CompiledModule):
    with be_runtime.debug(on_finding="collect") as found:
        planted.copies(X, X)
    counts = [(each.kind, each.array, each.count) for each in found]
    assert counts == [("guards", "result 0", 4), ("guards", "result 1", 8)]


@pytest.mark.parametrize(("axes", "index"), [(None, (0, 1)), ((0, 1), (0, 1)), ((1, 0), (1, 0))])
def test_an_index_of_an_array_with_a_layout(planted: CompiledModule, axes: tuple[int, int] | None, index: Any):
    by = planted.skips_second.with_options(input_layouts=[axes], output_layouts=[axes], vmap_method="sequential")
    with be_runtime.debug(on_finding="collect") as found:
        jax.block_until_ready((by(jnp.ones((3, 2))), jax.vmap(by)(jnp.ones((2, 3, 2)))))
    assert {each.index for each in found} == {index}


def test_a_good_kernel_gives_its_results(planted: CompiledModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where the working folder is gone."""
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    with be_runtime.debug() as found:
        assert planted.good(X, by=2.0).tolist() == [0, 2, 4, 6, 8, 10]
        assert jax.jit(lambda x: planted.good(x, by=3.0))(X).tolist() == [0, 3, 6, 9, 12, 15]
        assert planted.uses_scratch(Z).tolist() == Z.tolist()
    assert found.report() == "no findings"


def test_a_call_that_fails_after_others(planted: CompiledModule):
    def calls(divide: Any) -> None:
        with be_runtime.debug():
            for divisor in (X + 1, X + 2, X + 3, X):
                jax.block_until_ready(divide(X, divisor))

    for divide in (planted.divides, jax.jit(planted.divides)):
        with pytest.raises(FindingError, match="NaN in result 0"):
            calls(divide)


def test_what_another_thread_traced_is_unchecked_after_the_mode_of_the_process(planted: CompiledModule):
    step = jax.jit(lambda x: planted.good(x, by=4.0))
    assert repr(be_runtime.debug()).startswith("<be_runtime.debug: guards, unwritten,")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(step, X).result().block_until_ready()
    assert repr(be_runtime.debug(False)) == "<be_runtime.debug: no checks>"
    assert "be_check" not in step.lower(X).as_text()


FAULTS = [
    ("behind", "guards", "result 0", (6,), 8, "writes 8 bytes past result 0 (float32[6])"),
    ("before", "guards", "result 0", (-1,), 12, "writes 12 bytes before result 0 (float32[6])"),
    ("reads_behind", "unwritten", "result 0", (5,), 1, "reads memory outside of its arrays"),
    ("skips", "unwritten", "result 0", (1,), 2, "2 of 6 elements are never written, the first is [1]"),
    ("changes_input", "inputs", "argument 0", (2,), 1, "writes to argument 0 (float32[6])"),
    ("adds", "unwritten", "result 0", (0,), 6, "reads uninitialized memory"),
    ("reads_scratch", "unwritten", "result 0", (0,), 6, "reads uninitialized memory"),
    ("behind_scratch", "guards", "scratch 0", (24,), 4, "writes 4 bytes past scratch 0 (uint8[24])"),
    ("packs", "unwritten", "result 0", (2,), 2, "(uint4[6]): 2 of 6 elements are never written"),
]


@pytest.mark.parametrize(("name", "kind", "array", "index", "count", "says"), FAULTS)
def test_faults(planted: CompiledModule, name: str, kind: str, array: str, index: Any, count: int, says: str):
    with be_runtime.debug("-values"), pytest.raises(FindingError) as caught:
        planted[name](X + 1)
    line = here(-1)
    (finding,) = caught.value.findings
    assert (finding.kind, finding.array, finding.index, finding.count) == (kind, array, index, count)
    assert finding.kernel == f"planted.{name}"
    assert finding.certain
    assert says in finding.message
    assert line in finding.caller
    assert finding.message in str(caught.value)
    assert "hint: " in str(caught.value)
    assert caught.value.code == "BE801"
    assert caught.value.__suppress_context__, "XLA's error says nothing more"
    assert ("inout[n]:float32 in place of arg[n]" in str(caught.value)) == (kind == "inputs")
    with be_runtime.debug(f"-{kind},-values") as found:
        planted[name](X + 1)
    assert len(found) == 0, "each check can be left out"


def test_values_that_are_not_finite(planted: CompiledModule):
    zeros = jnp.zeros(6).at[4].set(jnp.nan)
    with be_runtime.debug(), pytest.raises(FindingError, match="NaN in result 0") as caught:
        planted.divides(X, zeros)
    (finding,) = caught.value.findings
    assert (finding.kind, finding.index, finding.count) == ("values", (0,), 2)
    assert "4 are infinite" in finding.message
    assert "argument 1 has NaN too, first at [4]" in finding.message
    with be_runtime.debug("-values"):
        planted.divides(X, zeros)


def test_a_jitted_function_that_was_compiled_before_is_checked(planted: CompiledModule):
    step = jax.jit(lambda x: planted.good(planted.skips(x), by=1.0))
    step(X)
    with pytest.raises(FindingError, match=r"planted\.skips does not write all") as caught, be_runtime.debug():
        step(X)
    assert caught.value.findings[0].caller.endswith("in <lambda>")
    step(X)


def test_two_calls_of_equal_shapes_have_lines_of_their_own(planted: CompiledModule):
    def step(x: Any) -> Any:
        first = planted.skips(x)
        return first, planted.skips(x)

    line = step.__code__.co_firstlineno
    for function in (step, jax.jit(step)):
        with be_runtime.debug(on_finding="collect") as found:
            jax.block_until_ready(function(X))
        callers = sorted(each.caller.partition(":")[2].partition(" ")[0] for each in found)
        assert callers == [str(line + 1), str(line + 2)]


def test_findings_are_collected_or_warnings(planted: CompiledModule):
    with be_runtime.debug(on_finding="collect") as found:
        planted.skips(X)
        planted.behind(X)
    assert [each.kind for each in found] == ["unwritten", "guards"]
    assert "planted.behind writes 8 bytes past" in found.report()
    with be_runtime.debug(on_finding="warn"), pytest.warns(be_runtime.FindingWarning, match="does not write all"):
        planted.skips(X)


LEAVING = """
import sys
import be_runtime, jax, jax.numpy as jnp
planted = be_runtime.load_cpp_inline("planted", sys.argv[1])
text = lambda: str(jax.jit(lambda x: planted.good(x, by=2.0)).lower(jnp.ones(3)).as_text())
before, method = text(), be_runtime.KernelFunction.__call__
planted.good(jnp.ones(3), by=1.0)
assert "be_runtime.load.checked_mode" not in sys.modules
with be_runtime.debug():
    assert "be_check" in text()
    assert be_runtime.KernelFunction.__call__ is not method
assert text() == before
assert be_runtime.KernelFunction.__call__ is method
"""


def test_a_process_without_it_loads_no_library_and_leaving_it_leaves_calls_as_they_were():
    """Calls look for a checked mode once a module of the process is always checked."""
    run_python(LEAVING, PLANTED)


def test_a_module_that_is_always_checked(planted: CompiledModule):
    module = be_runtime.load_cpp_inline("planted", PLANTED, debug=True, target_prefix="planted_always")
    assert module.path == planted.path, "the library is the same"
    with pytest.raises(FindingError, match=r"planted\.skips does not write all"):
        module.skips(X)
    line = here(-1)
    with pytest.raises(jax.errors.JaxRuntimeError, match="BE801") as caught:
        jax.jit(lambda x: 2 * module.skips(x))(X)
    assert here(-1) in str(caught.value)
    assert line not in str(caught.value)
    with pytest.raises(FindingError):
        module.skips.with_options(vmap_method="sequential")(X)
    planted.skips(X)
    assert module.good(X, by=1.0).tolist() == X.tolist()


def test_some_checks_of_a_module_and_its_names(planted: CompiledModule):
    module = be_runtime.load_cpp_inline("planted", PLANTED, debug="guards", target_prefix="planted_names")
    module.skips(X)
    with pytest.raises(FindingError):
        module.behind(X)
    struct = jax.ShapeDtypeStruct(X.shape, X.dtype)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"BE801 planted_names\.behind writes 8 bytes"):
        call("planted_names.behind", struct, X)
    assert call("planted_names.good", struct, X, by=np.float32(2)).tolist() == (2 * X).tolist()


WHOLE_PROCESS = """
import contextlib, sys
import jax, jax.numpy as jnp
import be_runtime
module = be_runtime.load_cpp_inline("planted", sys.argv[1])
x = jnp.arange(6.0)
seen = []
for call in (module.behind, jax.jit(module.behind), lambda x: jax.ffi.ffi_call("planted.behind", x)(x)):
    try:
        call(x)
    except Exception as error:
        seen.append("XLA" if isinstance(error, jax.errors.JaxRuntimeError) else type(error).__name__)
once = module.skips.with_options(has_side_effect=True)
jax.block_until_ready(jax.jit(once)(x))
be_runtime.debug(False)
print(seen, module.skips(x)[0], jax.jit(module.skips)(x)[0])
with be_runtime.debug(on_finding="collect"):
    jax.block_until_ready(module.adds(x))
be_runtime.debug()
jax.block_until_ready(jax.jit(once)(x))
with contextlib.suppress(be_runtime.FindingError):
    module.before(x)
"""


def test_the_whole_process_and_the_report_at_its_end():
    done = run_python(WHOLE_PROCESS, PLANTED, env=environment(BE_DEBUG="1"))
    assert done.stdout == "['FindingError', 'XLA', 'XLA'] 1.0 1.0\n"
    report = done.stderr.partition("checked mode, in this process:")[2]
    assert report.count("planted.skips may not write all of result 0") == 1
    assert "called at <string>:20 in <module>" in report
    assert report.count("planted.before writes 12 bytes before result 0") == 1
    assert "planted.adds" not in report, "it was collected"


@pytest.mark.full
def test_what_is_running_is_written_for_tools_around_the_process(tmp_path: Path):
    code = (
        "import pathlib, sys, jax.numpy as jnp, be_runtime\n"
        "be_runtime.debug().leave_breadcrumbs(pathlib.Path(sys.argv[2]))\n"
        "module = be_runtime.load_cpp_inline('planted', sys.argv[1])\n"
        "module.dies(jnp.arange(6.0))"
    )
    done = run_python(code, PLANTED, str(tmp_path / "crumbs"), check=False)
    assert done.returncode < 0
    assert (tmp_path / "crumbs").read_bytes().startswith(b"planted.dies\n<string>:4 in <module>\0")


@pytest.mark.full
def test_three_hundred_targets():
    entry = "// @BE f{0} arg[n] ret[n]\nvoid f{0}(const T x, T y) {{ *y.data_ptr<float>() = {0}; }}\n"
    head = '#include "brainevent/common.h"\nusing T = BE::Tensor;\n'
    text = head + "".join(entry.format(number) for number in range(300))
    module = be_runtime.load_cpp_inline("targets", text, optimization_level=0, auto_register=False)
    with be_runtime.debug(on_finding="collect") as found:
        for name in module.function_names:
            module[name](X[:3])
    assert len({each.kernel for each in found}) == 300


def test_a_batch_is_one_call_with_indices_of_the_batch_or_one_for_each_element(planted: CompiledModule):
    with be_runtime.debug(), pytest.raises(FindingError, match=r"float32\[3, 6\]") as caught:
        jax.vmap(planted.skips_seventh)(jnp.ones((3, 6)))
    assert caught.value.findings[0].index == (1, 1)
    one_by_one = planted.skips_one.with_options(vmap_method="sequential")
    with be_runtime.debug(on_finding="collect") as found:
        jax.block_until_ready(jax.vmap(one_by_one)(jnp.ones((3, 6))))
    assert [each.index for each in found] == [(5,)]


def test_the_kernel_of_a_derivative_has_the_line_of_the_forward_call(planted: CompiledModule):
    def loss(x: Any) -> Any:
        return planted.square(x).sum()

    with be_runtime.debug(on_finding="collect") as found:
        jax.block_until_ready(jax.grad(loss)(Z))
        jax.block_until_ready(jax.jit(jax.grad(loss))(Z))
    (finding,) = found
    assert finding.kernel == "planted.square_backward"
    assert f"test_guarded.py:{loss.__code__.co_firstlineno + 1} in " in finding.caller


def test_loops(planted: CompiledModule):
    with be_runtime.debug(on_finding="collect") as found:
        jax.block_until_ready(jax.lax.scan(lambda x, _: (planted.skips_one(x), None), Z, None, length=3))
        jax.block_until_ready(jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: planted.skips_one(y), x))(Z))
    assert len({each.caller for each in found}) == 2


def test_a_result_that_takes_over_an_argument_keeps_its_content(planted: CompiledModule):
    in_place = planted.adds_to.with_options(input_output_aliases={0: 0})
    with be_runtime.debug() as found:
        assert in_place(Z, jnp.ones(6)).tolist() == (Z + 1).tolist()
        assert jax.jit(in_place, donate_argnums=0)(Z + 0, jnp.ones(6)).tolist() == (Z + 1).tolist()
    assert len(found) == 0
    with be_runtime.debug(), pytest.raises(FindingError, match="reads uninitialized memory"):
        planted.adds_to(Z, jnp.ones(6))


def test_a_kernel_with_state_or_side_effects_runs_once_and_is_not_certain(planted: CompiledModule):
    step = jax.jit(planted.counts)
    with pytest.warns(be_runtime.FindingWarning, match="may not write all of result 0"), be_runtime.debug():
        assert [float(step(Z)[0]) for _ in range(2)] == [1, 2]
    skips = planted.skips_one
    for each in (step, skips.with_options(has_side_effect=True), skips.with_options(ordered=True)):
        with be_runtime.debug(on_finding="collect") as found:
            jax.block_until_ready(jax.jit(each)(Z))
        assert [(each.certain, each.index, each.count) for each in found] == [(False, (5,), 1)]


def test_an_error_of_the_kernel_names_the_line(planted: CompiledModule):
    with be_runtime.debug(), pytest.raises(jax.errors.JaxRuntimeError, match="too short") as caught:
        planted.refuses(Z)
    assert here(-1) in str(caught.value)
    with be_runtime.debug(), pytest.raises(jax.errors.JaxRuntimeError, match=r"BE801 planted\.skips") as caught:
        jax.jit(planted.skips)(X)
    assert here(-1) in str(caught.value)


def test_contexts_within_each_other(planted: CompiledModule):
    with be_runtime.debug(on_finding="collect") as outer:
        with be_runtime.debug("guards") as inner:
            planted.skips_one(Z)
        assert len(inner) == 0
        planted.skips_one(Z)
    assert len(outer) == 1
    with be_runtime.debug(), pytest.raises(FindingError):
        planted.skips_one(Z)
    planted.skips_one(Z)


def test_threads_have_modes_of_their_own(planted: CompiledModule):
    def plain() -> None:
        jax.block_until_ready(planted.skips_one(Z))

    def checked() -> None:
        for _ in range(20):
            with be_runtime.debug(), pytest.raises(FindingError):
                planted.skips_one(Z)

    with be_runtime.debug(on_finding="collect"), ThreadPoolExecutor(3) as pool:
        for ended in [pool.submit(function) for function in (plain, checked, checked)]:
            ended.result()


def test_a_checked_program_is_not_exported(planted: CompiledModule):
    pytest.importorskip("flatbuffers")  # jax.export needs it
    with be_runtime.debug(), pytest.raises(be_runtime.BeRuntimeError, match=r"be\.checked\."):
        be_runtime.export(jax.jit(planted.square), Z)


def test_a_call_that_is_split_over_devices(planted: CompiledModule):
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")), ("d",))
    x = jax.device_put(jnp.ones((8, 4)), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d")))
    assert len(x.sharding.device_set) > 1
    with be_runtime.debug(on_finding="collect") as found:
        jax.block_until_ready(jax.jit(jax.vmap(planted.skips_one))(x))
    assert "does not write all of result 0" in found.report()
    assert here(-2) in found.report()


def test_a_numba_kernel():
    numba = pytest.importorskip("numba")

    @numba.njit  # type: ignore[untyped-decorator]
    def skips(x: Any, y: Any) -> None:
        for i in range(x.size - 1):
            y[i] = x[i]

    kernel = be_runtime.numba_kernel(skips, outs=jax.ShapeDtypeStruct((6,), np.float32))
    with be_runtime.debug(), pytest.raises(FindingError, match="1 of 6 elements are never written") as caught:
        kernel(Z)
    assert here(-1) in caught.value.findings[0].caller


TWIN = """
#include "brainevent/common.h"
// @BE shifted arg[n] ret[n] attr.by:int64
void shifted(const BE::Tensor x, BE::Tensor y, int64_t by) {
  for (int64_t i = 0; i < x.numel(); ++i) y.at<float>(i) = i + by < x.numel() || BE_LAST ? x.at<float>(i + by) : 0;
}
"""
V = jnp.arange(4.0)
MESSAGE = "twin.shifted: argument 0: twin:5: at<float>(): index 0 is 4, and axis 0 has 4 elements"


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Any]:
    options: dict[str, Any] = {"build_directory": tmp_path, "auto_register": False}
    return partial(be_runtime.load_cpp_inline, "twin", TWIN, extra_cflags=["-DBE_LAST=1"], **options)


def test_the_second_library_is_built_when_a_call_needs_it(load: Callable[..., Any], tmp_path: Path):
    module = load()
    module.shifted(V, by=1)
    for mode, count in (("guards", 1), ("bounds", 2)):
        with be_runtime.debug(mode):
            assert module.shifted(V, by=0).tolist() == V.tolist()
        assert len(libraries(tmp_path)) == count


def test_an_index_outside_is_an_error_of_the_call(load: Callable[..., Any]):
    module = load()
    shifts: list[Any] = [lambda x: module.shifted(x, by=1), jax.jit(lambda x: module.shifted(x, by=1))]
    for shift in shifts:
        with pytest.raises(be_runtime.FindingError) as raised, be_runtime.debug():
            shift(V)
        assert MESSAGE in str(raised.value)
        assert "test_guarded.py" in raised.value.findings[0].caller
        shift(V)
    with pytest.raises(be_runtime.FindingError) as raised:
        load(debug=True).shifted(V, by=1)
    assert MESSAGE in str(raised.value)


def test_a_module_that_does_not_compile_checked_says_how_to_leave_it_out(tmp_path: Path):
    text = TWIN.replace("#include", "#ifdef BE_INTERNAL_CHECKED\n#error only ordinary\n#endif\n#include")
    module = be_runtime.load_cpp_inline("only_ordinary", text, extra_cflags=["-DBE_LAST=0"], build_directory=tmp_path)
    with pytest.raises(be_runtime.BuildError, match=r"debug\('-bounds'\)"), be_runtime.debug():
        module.shifted(V, by=0)
    with be_runtime.debug("-bounds"):
        assert module.shifted(V, by=0).tolist() == V.tolist()


def test_a_prebuilt_module_has_no_twin(tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    """A note says so."""
    flags = ["-DBE_LAST=0"]
    be_runtime.load_cpp_inline("ahead", TWIN, extra_cflags=flags)
    be_runtime.export_prebuilt(tmp_path / "prebuilt")
    monkeypatch.setenv("BE_PREBUILT_DIR", str(tmp_path / "prebuilt"))
    module = be_runtime.load_cpp_inline("ahead", TWIN, extra_cflags=flags, auto_register=False)
    with be_runtime.debug("guards") as found:
        module.shifted(V, by=0)
    assert found.notes == ()
    with be_runtime.debug("all,-stream") as found:
        module.shifted(V, by=0)
    assert found.notes == ("ahead: its accesses through tensors were not checked, since it was built ahead of time",)


def test_where_no_twin_may_be_compiled(load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    """An error says how to leave it out."""
    load()
    monkeypatch.setenv("BE_JIT", "never")
    module = load()
    with pytest.raises(be_runtime.LoadError, match=r"debug\('-bounds'\)"), be_runtime.debug("bounds"):
        module.shifted(V, by=0)


def test_each_call_of_a_pretended_gpu(tmp_path: Path):
    """Right, outside of its stream, one element skipped, what can't be recorded, a fault, and no context after that."""
    driver, made = tmp_path / "libcuda.so.1", tmp_path / "guarded_device"
    common: list[Any] = [real_compiler(), "-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*common, "-shared", "-fPIC", HERE / "programs/pretended_driver.cc", "-o", driver], check=True)
    places = [f"-I{NATIVE_DIR}", f"-I{INCLUDE_DIR}", f"-isystem{port.ffi_include_dir()}"]
    end = [str(driver), "-ldl", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run([*common, *places, HERE / "programs/guarded_device.cc", "-o", made, *end], check=True)
    done = subprocess.run([made], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == (HERE / "golden/guarded_device.txt").read_text()
