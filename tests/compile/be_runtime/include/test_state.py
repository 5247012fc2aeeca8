"""State: one object for each call site, made from attributes when a program is compiled, deleted with it."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import be_runtime
from tests.support.jax_names import shard_map
from tests.support.requirements import OPTIONAL
from tests.support.runtime import environment, real_compiler, run_python

SOURCE = r"""
#include "brainevent/common.h"
#include "brainevent/state.h"
#include <complex>
#include <stdexcept>
#include <string>
#include <vector>

static int made, deleted;
static const struct Plan* last;
template <class T>
static int next(T& counter) { return __atomic_add_fetch(&counter, 1, __ATOMIC_SEQ_CST); }

struct Plan {
  explicit Plan(const BE::Attributes& attributes) : scale(attributes.get<float>("scale")) {
    if (scale < 0) throw std::runtime_error("a negative scale");
    number = next(made);
    last = this;
  }
  ~Plan() { next(deleted); }
  float scale;
  int number;
  mutable int calls = 0;
};

// result: scale * x, then which object it is and how often it was used
// @BE scaled
void scaled(const BE::Tensor x, BE::Tensor y, const BE::State<Plan>& plan, double scale) {
  BE_CHECK(static_cast<float>(scale) == plan->scale);
  y.data_ptr<float>()[0] = plan->scale * x.data_ptr<float>()[0];
  y.data_ptr<float>()[1] = static_cast<float>(plan->number);
  y.data_ptr<float>()[2] = static_cast<float>(next(plan->calls));
}

// Another of the same state, by value.
// @BE other
void other(const BE::Tensor x, BE::Tensor y, BE::State<Plan> plan, float scale) { scaled(x, y, plan, scale); }

// Which object, of a class without a constructor for attributes: counted from 1000 on.
struct Counter {
  Counter() : number(1000) {}
  int number;
  BE::PerDevice<std::vector<int>> tables;
};

// @BE counted
void counted(BE::Tensor y, const BE::State<Counter>& counter) {
  const std::vector<int>& table = counter->tables.get(3, 7);
  BE_CHECK(&table == &(*counter).tables.get());
  y.data_ptr<float>()[0] = static_cast<float>(counter->number + table.size() + table[2]);
}

struct Floats {
  Floats(const float* first, size_t count) : total(0) {
    for (size_t i = 0; i < count; ++i) total += first[i];
  }
  const float* data() const;
  float total;
};

struct Ask {
  explicit Ask(const BE::Attributes& attributes) {
    const int what = attributes.get<int>("what");
    if (what == 1) attributes.get<double>("nothing");
    if (what == 2) attributes.get<std::string>("n");
    if (what == 3) attributes.get<int8_t>("n");
    if (what == 4) attributes.get<Floats>("n");
    if (what == 5) attributes.get<float>("z");
    if (what == 6) throw 6;
    if (what == 7) total = attributes.has("n") + 10 * attributes.has("m");
    if (what == 8) total = attributes.get<double>("n") + attributes.get<uint16_t>("n");
    if (what == 9) total = attributes.get<Floats>("z").total;
  }
  double total = 0;
};

// @BE ask ret state attr.n:int32 attr.what:int32 attr.z:complex64
void ask(BE::Tensor y, const BE::State<Ask>& asked, int32_t, int32_t, std::complex<float>) {
  y.data_ptr<float>()[0] = static_cast<float>(asked->total);
}

// @BE counts
void counts(BE::Tensor out) {
  out.data_ptr<int32_t>()[0] = __atomic_load_n(&made, __ATOMIC_SEQ_CST);
  out.data_ptr<int32_t>()[1] = __atomic_load_n(&deleted, __ATOMIC_SEQ_CST);
}
"""

HANDLERS: dict[str, list[str]] = {"inlined": [], "shared": ["-lm"]}
OUT = jax.ShapeDtypeStruct((3,), jnp.float32)
X = jnp.ones(3, jnp.float32)
Run = Callable[..., Any]


@pytest.fixture(scope="module", params=HANDLERS, name="name")
def _name(request: pytest.FixtureRequest) -> str:
    name = f"state_{request.param}"
    be_runtime.load_cpp_inline(name, SOURCE, extra_ldflags=HANDLERS[request.param])
    return name


def call(target: str, outs: Any, *args: Any, **attrs: Any) -> Any:
    caller: Any = jax.ffi.ffi_call(target, outs, vmap_method="sequential")
    return caller(*args, **attrs)


def scaled(name: str, x: jax.Array, scale: float = 2.0, function: str = "scaled") -> Any:
    return call(f"{name}.{function}", OUT, x, scale=np.float64(scale))


def counts(name: str) -> tuple[int, int]:
    caller = jax.ffi.ffi_call(f"{name}.counts", jax.ShapeDtypeStruct((2,), jnp.int32), has_side_effect=True)
    made, deleted = jax.jit(caller)().tolist()
    return made, deleted


def test_ten_thousand_calls_make_one_object(name: str):
    run = jax.jit(lambda x: jax.lax.fori_loop(0, 10_000, lambda _, y: scaled(name, y, 1.0), x))
    made = counts(name)[0]
    assert run(X).tolist() == [1, made + 1, 10_000]
    assert run(X)[2] == 20_000
    assert counts(name)[0] == made + 1


def test_it_is_deleted_with_the_program(name: str):
    run = jax.jit(lambda x: scaled(name, x, 3.0))
    run(X)
    gc.collect()
    made, deleted = counts(name)
    del run
    gc.collect()
    assert counts(name) == (made, deleted + 1)


def test_each_call_site_has_its_own(name: str):
    run = jax.jit(lambda x: (scaled(name, x, 4.0), scaled(name, x, 5.0), scaled(name, x, 4.0, "other")))
    results = run(X)
    assert [float(result[0]) for result in results] == [4, 5, 4]
    assert len({float(result[1]) for result in results}) == 3


def test_scan_and_sequential_vmap_share_one(name: str):
    made = counts(name)[0]
    _, rows = jax.jit(lambda x: jax.lax.scan(lambda y, _: (scaled(name, y, 1.0),) * 2, x, None, length=5))(X)
    assert rows[:, 1:].tolist() == [[made + 1, used] for used in (1, 2, 3, 4, 5)]
    batch = jax.jit(jax.vmap(lambda x: scaled(name, x)))(jnp.ones((4, 3), jnp.float32))
    assert sorted(batch[:, 1:].tolist()) == [[made + 2, used] for used in (1, 2, 3, 4)]


def test_two_devices_of_a_program_share_one(name: str):
    devices = jax.devices("cpu")[:2]
    mesh = Mesh(np.array(devices), "d")
    x = jax.device_put(jnp.ones(3 * len(devices), jnp.float32), NamedSharding(mesh, PartitionSpec("d")))
    spec = PartitionSpec("d")
    made = counts(name)[0]
    both = np.asarray(jax.jit(shard_map(lambda x: scaled(name, x), mesh=mesh, in_specs=spec, out_specs=spec))(x))
    assert both.reshape(-1, 3)[:, :2].tolist() == [[2, made + 1]] * len(devices)
    assert sorted(both.reshape(-1, 3)[:, 2]) == [1, 2][: len(devices)]


def test_a_class_without_attributes_and_an_object_for_each_device(name: str):
    assert call(f"{name}.counted", jax.ShapeDtypeStruct((1,), jnp.float32))[0] == 1010


def test_the_same_library_under_two_prefixes():
    for prefix in ("state_one", "state_two"):
        be_runtime.load_cpp_inline("state_inlined", SOURCE, target_prefix=prefix)
    assert scaled("state_one", X)[0] == scaled("state_two", X)[0] == 2


def compile_ask(name: str, what: int, **changed: Any) -> Any:
    attrs: dict[str, Any] = {"n": np.int32(300), "what": np.int32(what), "z": np.array([1.5, 2], np.float32)}
    out = jax.ShapeDtypeStruct((1,), jnp.float32)
    return jax.jit(lambda: call(f"{name}.ask", out, **(attrs | changed))).lower().compile()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (1, "the state asks for the attribute nothing as float64, but the call has no attribute of this name"),
        (2, "the state asks for the attribute n as string, but the call passes n: int32 300"),
        (3, "the state asks for the attribute n as int8, but the call passes n: int32 300"),
        (4, "the state asks for the attribute n as array of float32, but the call passes n: int32 300"),
        (5, "the state asks for the attribute z as float32, but the call passes z: array of float32"),
        (6, "threw a C\\+\\+ exception that is not derived from std::exception"),
    ],
)
def test_what_a_constructor_throws_fails_the_compilation(name: str, what: int, message: str):
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"{name}\.ask: {message}"):
        compile_ask(name, what)


def test_attributes_that_the_function_does_not_take_fail_the_compilation(name: str):
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"takes the attributes \(n=np\.int32.*passes \(n: string"):
        compile_ask(name, 0, n="text")
    with pytest.raises(jax.errors.JaxRuntimeError, match="a negative scale"):
        jax.jit(lambda x: scaled(name, x, -1.0)).lower(X).compile()


@pytest.mark.parametrize(("what", "total"), [(7, 1), (8, 600), (9, 3.5)])
def test_attributes_are_read_by_name(name: str, what: int, total: float):
    assert compile_ask(name, what)()[0] == total


def test_a_function_without_a_state_parameter_says_so():
    source = '#include "brainevent/common.h"\n// @BE f ret state\nvoid f(BE::Tensor y, int n) {}\n'
    with pytest.raises(be_runtime.SpecError, match="'state' is at the position of parameter 'n'"):
        be_runtime.load_cpp_inline("state_missing", source)
    hidden = source.replace("int n", "Plan n").replace("// @BE", "struct Plan {};\n// @BE")
    with pytest.raises(be_runtime.BuildError, match=r"has no parameter BE::State<T>"):
        be_runtime.load_cpp_inline("state_missing", hidden)


SANITIZED = """
import gc, sys
import jax, jax.numpy as jnp, numpy as np
import be_runtime

flags = ["-fsanitize=address", "-g"]
be_runtime.load_cpp_inline("sanitized", sys.argv[1], extra_cflags=flags, extra_ldflags=flags)
out = jax.ShapeDtypeStruct((3,), jnp.float32)
run = jax.jit(lambda x: jax.ffi.ffi_call("sanitized.scaled", out)(x, scale=np.float64(2)))
print(run(jnp.ones(3)).tolist(), run(jnp.ones(3))[2])
del run
gc.collect()
if "use" in sys.argv:
    jax.ffi.ffi_call("sanitized.after", out)(jnp.ones(3))
print("done")
"""
AFTER = r"""
// @BE after
void after(const BE::Tensor x, BE::Tensor y) {
  y.data_ptr<float>()[0] = last->scale + x.data_ptr<float>()[0];
}
"""


def test_it_is_clean_under_the_address_sanitizer(tmp_path: Any):
    """And the tool sees a use of the object after the program is gone."""
    commands = ([real_compiler(), f"-print-file-name={name}"] for name in ("libasan.so", "libstdc++.so.6"))
    libraries = [subprocess.run(each, capture_output=True, text=True, check=True).stdout.strip() for each in commands]
    if not all("/" in library for library in libraries):
        pytest.skip(f"{OPTIONAL}libasan")
    env = environment(LD_PRELOAD=" ".join(libraries), ASAN_OPTIONS="detect_leaks=0", BE_CACHE_DIR=str(tmp_path))
    done = run_python(SANITIZED, SOURCE + AFTER, env=env, check=False)
    if "ASan runtime does not come first" in done.stderr:
        pytest.skip(f"{OPTIONAL}an address sanitizer that loads")
    assert done.stdout.endswith("[2.0, 1.0, 1.0] 2.0\ndone\n"), done.stdout + done.stderr
    planted = run_python(SANITIZED, SOURCE + AFTER, "use", env=env, check=False)
    assert "heap-use-after-free" in planted.stderr


KINDS = r"""
#include "brainevent/common.h"
#include "brainevent/state.h"
#include <string>
#include <string_view>

enum class Mode { slow, fast };

struct Plan {
  explicit Plan(const BE::Attributes& attributes)
      : norm(attributes.get<std::string_view>("norm")), mode(attributes.get<std::string>("mode")),
        sum(attributes.get<double>("scale")) {
    for (const float weight : attributes.get<BE::Span<const float>>("weights")) sum += weight;
    if (norm == "wrong") attributes.get<float>("norm");
    if (norm == "default") attributes.get<std::string>("scale");
  }
  std::string norm, mode;
  double sum;
};

// Arrays that may be absent, and memory after the result.
void kinds(const BE::Tensor x, const BE::Tensor* bias, BE::Tensor y, const BE::State<Plan>& plan,
           BE::Workspace workspace, std::string_view norm, Mode, BE::Span<const float>, float) {
  BE_CHECK(plan->norm == norm && workspace.size() == x.nbytes());
  for (int64_t i = 0; i < x.numel(); ++i)
    y.data_ptr<float>()[i] = static_cast<float>(plan->sum) + (bias == nullptr ? 0 : bias->data_ptr<float>()[i]);
  if (plan->mode == "slow") y.data_ptr<float>()[0] = -1;
}
"""

KINDS_SPEC = (
    *("arg[n]", "arg?[n]", "ret[n]:like(0)", "state", "scratch[4*n]"),
    *("attr.norm:string=none", "attr.mode:enum(slow fast)=fast", "attr.weights:float32[]", "attr.scale:float32=2"),
)


def test_attributes_of_every_kind_and_their_defaults():
    kinds: Any = be_runtime.load_cpp_inline("state_kinds", KINDS, functions={"kinds": KINDS_SPEC}).kinds
    assert kinds(X, None, weights=[1.0, 2.0]).tolist() == [5, 5, 5]
    assert kinds(X, X, weights=[], scale=1.0, mode="slow").tolist() == [-1, 2, 2]
    assert kinds(X, None, weights=[], norm="ortho").tolist() == [2, 2, 2]
    for norm, message in (
        ("wrong", 'the attribute norm as float32, but the call passes norm: string "wrong"'),
        ("default", "the attribute scale as string, but its default is none"),
    ):
        outs = (OUT, jax.ShapeDtypeStruct((12,), jnp.uint8))
        attrs: dict[str, Any] = {"norm": norm, "weights": np.ones(1, np.float32), "be_present": np.int64(0)}
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            call("state_kinds.kinds", outs, X, **attrs)
