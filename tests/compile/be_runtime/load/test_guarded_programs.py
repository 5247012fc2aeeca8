"""Checked calls in JAX's programs: transformations, devices, threads, effects and state, aliases, scratch, Numba."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime import CompiledModule, FindingError
from tests.support.runtime import run_python

SOURCE = r"""
#include "brainevent/common.h"
#include "brainevent/state.h"
#include "brainevent/workspace.h"
using T = BE::Tensor;
static float* out(T& t) { return t.data_ptr<float>(); }
static float* out(BE::Workspace& w) { return static_cast<float*>(w.data()); }
static const float* in(const T& t) { return t.data_ptr<float>(); }
#define EACH(x) for (int64_t i = 0; i < x.numel(); ++i)
// @BE square arg[n] ret[n]
void square(const T x, T y) { EACH(x) out(y)[i] = in(x)[i] * in(x)[i]; }
// @BE square_backward arg[n] arg[n] ret[n]
void square_backward(const T x, const T g, T y) { EACH(x) if (i > 0) out(y)[i] = 2 * in(x)[i] * in(g)[i]; }
// @BE skips arg[... n] ret[... n]
void skips(const T x, T y) { EACH(x) if (i != 7) out(y)[i] = in(x)[i]; }
// @BE skips_one arg[n] ret[n]
void skips_one(const T x, T y) { EACH(x) if (i + 1 < x.numel()) out(y)[i] = in(x)[i]; }
// @BE adds arg[n] arg[n] ret[n]
void adds(const T x, const T by, T y) { EACH(x) out(y)[i] += in(by)[i]; }
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
"""
X = jnp.arange(1.0, 7.0)


@pytest.fixture(scope="module")
def kernels() -> CompiledModule:
    module = be_runtime.load_cpp_inline("guarded_programs", SOURCE)
    module.square.defvjp(None, "square_backward")
    return module


def here(offset: int = 0) -> str:
    return f"test_guarded_programs.py:{inspect.stack()[1].lineno + offset} in "


def test_a_batch_is_one_call_with_indices_of_the_batch_or_one_for_each_element(kernels: CompiledModule):
    with be_runtime.debug(), pytest.raises(FindingError, match=r"float32\[3, 6\]") as caught:
        jax.vmap(kernels.skips)(jnp.ones((3, 6)))
    assert caught.value.findings[0].index == (1, 1)
    one_by_one = kernels.skips_one.with_options(vmap_method="sequential")
    with be_runtime.debug(on_finding="collect") as found:
        jax.block_until_ready(jax.vmap(one_by_one)(jnp.ones((3, 6))))
    assert [each.index for each in found] == [(5,)]


def test_the_kernel_of_a_derivative_has_the_line_of_the_forward_call(kernels: CompiledModule):
    def loss(x: Any) -> Any:
        return kernels.square(x).sum()

    with be_runtime.debug(on_finding="collect") as found:
        jax.block_until_ready(jax.grad(loss)(X))
        jax.block_until_ready(jax.jit(jax.grad(loss))(X))
    (finding,) = found
    assert finding.kernel == "guarded_programs.square_backward"
    assert f"test_guarded_programs.py:{loss.__code__.co_firstlineno + 1} in " in finding.caller


def test_loops(kernels: CompiledModule):
    def body(x: Any, _: Any) -> Any:
        return kernels.skips_one(x), None

    with be_runtime.debug(on_finding="collect") as found:
        jax.block_until_ready(jax.lax.scan(body, X, None, length=3))
        jax.block_until_ready(jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: kernels.skips_one(y), x))(X))
    assert len({each.caller for each in found}) == 2


def test_a_result_that_takes_over_an_argument_keeps_its_content(kernels: CompiledModule):
    in_place = kernels.adds.with_options(input_output_aliases={0: 0})
    with be_runtime.debug() as found:
        assert in_place(X, jnp.ones(6)).tolist() == (X + 1).tolist()
        assert jax.jit(in_place, donate_argnums=0)(X + 0, jnp.ones(6)).tolist() == (X + 1).tolist()
    assert len(found) == 0
    with be_runtime.debug(), pytest.raises(FindingError, match="reads memory that nobody has set"):
        kernels.adds(X, jnp.ones(6))


def test_scratch(kernels: CompiledModule):
    with be_runtime.debug() as found:
        assert kernels.uses_scratch(X).tolist() == X.tolist()
    assert len(found) == 0
    with be_runtime.debug(), pytest.raises(FindingError, match="memory that nobody has set"):
        kernels.reads_scratch(X)
    with be_runtime.debug(), pytest.raises(FindingError, match=r"writes 4 bytes behind scratch 0 \(uint8\[24\]\)"):
        kernels.behind_scratch(X)


def test_elements_that_share_a_byte(kernels: CompiledModule):
    with be_runtime.debug(), pytest.raises(FindingError, match=r"uint4\[5\]") as caught:
        kernels.packs(X[:5])
    assert (caught.value.findings[0].index, caught.value.findings[0].count) == ((2,), 2)


def test_a_kernel_with_state_or_side_effects_runs_once_and_is_not_certain(kernels: CompiledModule):
    step = jax.jit(kernels.counts)
    with pytest.warns(be_runtime.FindingWarning, match="may not write all of result 0"), be_runtime.debug():
        assert [float(step(X)[0]) for _ in range(2)] == [1, 2]
    skips = kernels.skips_one
    for each in (step, skips.with_options(has_side_effect=True), skips.with_options(ordered=True)):
        with be_runtime.debug(on_finding="collect") as found:
            jax.block_until_ready(jax.jit(each)(X))
        assert [(each.certain, each.index, each.count) for each in found] == [(False, (5,), 1)]


def test_an_error_of_the_kernel_names_the_line(kernels: CompiledModule):
    with be_runtime.debug(), pytest.raises(jax.errors.JaxRuntimeError, match="too short") as caught:
        kernels.refuses(X)
    assert here(-1) in str(caught.value)


def test_contexts_within_each_other(kernels: CompiledModule):
    with be_runtime.debug(on_finding="collect") as outer:
        with be_runtime.debug("guards") as inner:
            kernels.skips_one(X)
        assert len(inner) == 0
        kernels.skips_one(X)
    assert len(outer) == 1
    with be_runtime.debug(), pytest.raises(FindingError):
        kernels.skips_one(X)
    kernels.skips_one(X)


def test_threads_have_modes_of_their_own(kernels: CompiledModule):
    done: list[str] = []

    def plain() -> None:
        jax.block_until_ready(kernels.skips_one(X))
        done.append("plain")

    def checked() -> None:
        for _ in range(20):
            with be_runtime.debug(), pytest.raises(FindingError):
                kernels.skips_one(X)
        done.append("checked")

    threads = [threading.Thread(target=function) for function in (plain, checked, checked)]
    with be_runtime.debug(on_finding="collect"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(done) == ["checked", "checked", "plain"]


def test_a_checked_program_is_not_exported(kernels: CompiledModule):
    pytest.importorskip("flatbuffers")  # jax.export needs it
    with be_runtime.debug(), pytest.raises(be_runtime.BeRuntimeError, match=r"be\.checked\."):
        be_runtime.export(jax.jit(kernels.square), X)


def test_a_call_that_is_split_over_devices(kernels: CompiledModule):
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")), ("d",))
    x = jax.device_put(jnp.ones((8, 4)), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d")))
    assert len(x.sharding.device_set) > 1
    with be_runtime.debug(on_finding="collect") as found:
        jax.block_until_ready(jax.jit(jax.vmap(kernels.skips_one))(x))
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
        kernel(X)
    assert here(-1) in caught.value.findings[0].caller


@pytest.mark.full
def test_a_process_says_at_its_end_what_was_found_once():
    code = (
        "import be_runtime, jax.numpy as jnp, sys\n"
        "module = be_runtime.load_cpp_inline('guarded_programs', sys.argv[1])\n"
        "for again in range(2):\n    be_runtime.debug(False)\n    be_runtime.debug(on_finding=sys.argv[2])\n"
        "try:\n    module.skips(jnp.ones(9)).block_until_ready()\nexcept be_runtime.FindingError:\n    pass\n"
    )
    said = run_python(code, SOURCE, "raise").stderr
    assert said.count("checked mode, in this process:\nguarded_programs.skips does not write all of result 0") == 1
    assert "checked mode, in this process" not in run_python(code, SOURCE, "collect").stderr
