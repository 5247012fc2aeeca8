"""What an operation does besides being transformed: kernels are picked, rules are functions, and benchmarks are run."""

from __future__ import annotations

import traceback
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

import be_runtime
from be_runtime import (
    ArgumentError,
    BenchmarkConfig,
    BuildError,
    FallbackWarning,
    GeneratorError,
    XLACustomKernel,
    benchmark_function,
    defjvp,
    general_batching_rule,
)
from be_runtime.jax.transforms import repeated
from be_runtime.kernels import benchmark
from be_runtime.kernels.benchmark import BenchmarkRecord, BenchmarkResult
from be_runtime.kernels.dispatch import KernelEntry, Kernels, check_name, check_platform
from tests.unit.be_runtime.compile.codegen.golden_files import answer, check_golden

X = jnp.arange(3.0)
OUT = jax.ShapeDtypeStruct((3,), jnp.float32)


def constant(value: float) -> Any:
    return lambda outs: lambda x: [jnp.full_like(x, value)]


def same(outs: Any) -> Any:
    return lambda x: [x]


def raising(error: Exception) -> Any:
    def generator(outs: Any) -> Any:
        raise error

    return generator


def operation(**kernels: Any) -> XLACustomKernel:
    made = XLACustomKernel("op", "What it does.")
    for backend, generator in kernels.items():
        made.def_kernel(backend, "cpu", generator)
    return made


@pytest.fixture(autouse=True)
def _no_choice() -> Generator[None]:
    yield
    be_runtime.clear_backends()


@pytest.mark.parametrize(
    ("entries", "defaults", "platform", "backends"),
    [
        ("a@cpu x@gpu b@cpu c@cpu", "", "cpu", "a b c"),
        ("a@cpu x@gpu b@cpu c@cpu", "", "tpu", ""),
        ("a@cpu b@cpu c@cpu", "c@cpu", "cpu", "c a b"),
        ("a@cpu b@cpu c@cpu", "c@cpu b@cpu", "cpu", "b a c"),
        ("a@cpu b@cpu a@gpu b@gpu", "b@gpu", "cpu", "a b"),
        ("a@cpu b@cpu a@gpu b@gpu", "b@gpu", "gpu", "b a"),
    ],
)
def test_a_default_goes_before_the_others_in_their_order(entries: str, defaults: str, platform: str, backends: str):
    table = Kernels()
    for backend, _, at in (each.partition("@") for each in entries.split()):
        table = table.with_entry(KernelEntry(backend, at, same))
    for backend, _, at in (each.partition("@") for each in defaults.split()):
        table = table.with_default(at, backend)
    assert table.backends(platform) == tuple(backends.split())
    again = KernelEntry("a", "cpu", constant)
    replaced = table.with_entry(again)
    assert (replaced.backends("cpu"), replaced.candidates("cpu", "a")) == (table.backends("cpu"), (again,))


def test_the_result_has_the_structure_of_outs_which_a_generator_is_given_with_the_keywords():
    given = []

    def generator(**parameters: Any) -> Any:
        given.append(parameters)
        return lambda x: {"b": x, "a": (x + 1,)}

    result = operation(jax=generator)(X, outs=[OUT, {"k": OUT}], backend="jax", factor=2, mode="a")
    assert result[0].tolist() == [1, 2, 3]
    assert result[1]["k"].tolist() == [0, 1, 2]
    assert given == [{"outs": (OUT, OUT), "factor": 2, "mode": "a"}]


def test_a_backend_can_be_asked_for_and_the_default_changed():
    op = operation(a=constant(1), b=constant(2))
    assert op.available_backends("cpu") == ("a", "b")
    assert (op(X, outs=OUT)[0], op(X, outs=OUT, backend="b")[0]) == (1, 2)
    op.set_default("cpu", "b")
    assert op(X, outs=OUT)[0] == 2
    op.def_kernel("c", "cpu", constant(3), asdefault=True)
    assert op(X, outs=OUT)[0] == 3
    assert op.available_backends("cpu") == ("c", "a", "b")


def test_each_way_to_define_a_kernel_has_its_backend_and_platform():
    op = XLACustomKernel("all")
    for name in ("numba", "numba_cuda", "cuda_raw", "warp", "triton"):
        getattr(op, f"def_{name}_kernel")(constant(0))
    op.def_warp_kernel(constant(0), platform="cpu")
    op.def_pallas_kernel("tpu", constant(0))
    op.def_pallas_kernel("cuda", constant(0), asdefault=True)
    assert op.available_backends("cpu") == ("numba", "warp")
    assert op.available_backends("gpu") == ("pallas", "numba_cuda", "cuda_raw", "warp", "triton")
    assert op.available_backends("tpu") == ("pallas",)


def test_a_kernel_whose_language_is_missing_is_passed_over_and_said():
    op = operation(a=raising(ImportError("no module named nowhere")), b=constant(2))
    text = "the kernel 'a' of op can't be used: no module named nowhere; b is used instead"
    with pytest.warns(FallbackWarning, match=text):
        assert op(X, outs=OUT)[0] == 2
    with pytest.raises(ImportError, match="nowhere"):
        op(X, outs=OUT, backend="a")
    op = operation(a=constant(1), b=raising(ImportError("nowhere")), c=constant(3))
    op.set_default("cpu", "c")
    be_runtime.set_backend("cpu", "b")  # which comes before the default
    with pytest.warns(FallbackWarning, match="the kernel 'b' of op can't be used: nowhere; c is used instead"):
        assert op(X, outs=OUT)[0] == 3
    assert op.get_default("gpu") is None


def test_a_kernel_that_is_wrong_is_named_with_the_other_backends():
    op = operation(a=raising(KeyError("boom")), b=constant(2), c=constant(3))
    with pytest.raises(GeneratorError, match="the kernel 'a' of op can't be made: KeyError: 'boom'") as caught:
        jax.jit(jax.vmap(lambda x: op(x, outs=OUT)))(X[None])
    assert "the kernel 'a' of op for cpu; others: b, c (backend=..., set_default or set_backend)" in str(caught.value)
    assert "in generator" in "".join(traceback.format_exception(caught.value)), "the author's line is shown"
    op = operation(a=raising(BuildError("it does not compile")), b=constant(2))
    with pytest.raises(BuildError, match="this was the kernel 'a' of op for cpu; others: b"):
        op(X, outs=OUT)
    op = operation(a=lambda outs: lambda x: 1 / 0, b=constant(2))
    with pytest.raises(ZeroDivisionError) as failed:
        op(X, outs=OUT)
    assert "this was the kernel 'a' of op for cpu; others: b" in failed.value.__notes__[0]


def test_jitted_functions_follow_the_process_s_backend():
    op, other = operation(a=constant(1), b=constant(2)), operation(a=constant(3))
    run = jax.jit(lambda x: (op(x, outs=OUT), other(x, outs=OUT), op(x, outs=OUT, backend="a")))

    def found() -> list[float]:
        return [float(each[0]) for each in run(X)]

    assert found() == [1, 3, 1]
    be_runtime.set_backend("cpu", "b")
    assert be_runtime.get_backend("cpu") == "b"
    with pytest.warns(FallbackWarning, match="op has no b kernel for cpu; a is used instead"):
        assert found() == [2, 3, 1]
    assert op(X, outs=OUT)[0] == 2
    assert (op.get_default("cpu"), op.available_backends("cpu")) == ("a", ("b", "a"))
    assert jax.vmap(lambda x: op(x, outs=OUT))(X[None])[0, 0] == 2
    be_runtime.set_backend("cpu", None)
    assert found() == [1, 3, 1]
    be_runtime.set_backend("cpu", "b")
    be_runtime.clear_backends()
    assert (found(), be_runtime.get_backend("cpu")) == ([1, 3, 1], None)


def test_the_same_choice_again_and_a_definition_keep_programs():
    traced = []

    @jax.jit
    def run(x: Any) -> Any:
        traced.append(x)
        return x

    be_runtime.set_backend("gpu", "a")
    run(X)
    be_runtime.set_backend("cuda", "a")
    be_runtime.set_backend("cpu", None)
    run(X)
    operation(a=constant(1), b=constant(2)).set_default("cpu", "b")
    run(X)
    assert len(traced) == 1


def test_what_is_defined_again_takes_effect_in_programs_that_are_compiled():
    op = operation(a=constant(1), b=constant(2))
    run = jax.jit(lambda x: op(x, outs=OUT))
    assert run(X)[0] == 1
    op.def_kernel("a", "cpu", constant(10))
    assert run(X)[0] == 10
    op.set_default("cpu", "b")
    assert run(X)[0] == 2
    op = operation(a=same)
    derived = jax.jit(jax.grad(lambda x: op(x, outs=OUT).sum()))
    for factor in (2, 3):
        op.def_jvp_rule2(lambda t, x, factor=factor, **parameters: (factor * t,))
        assert derived(X)[0] == factor


SYMBOLIC = jax.ShapeDtypeStruct((*jax.export.symbolic_shape("b"), 3), jnp.float32)
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    *((arguments, {}) for arguments in (("text",), (X, None), (["text"] * 9,))),
    *(((X,), {"outs": outs}) for outs in ((), "float32", SYMBOLIC)),
    *(((X,), each) for each in ({"backend": "z"}, {"sizes": [1, 2]})),
]
METHODS: list[tuple[str, tuple[Any, ...]]] = [
    *(("def_kernel", arguments) for arguments in (("a", "cpu", 3), ("", "cpu", print), ("a", "fpga", print))),
    *(("def_tags", ("fine", 3)), ("def_call", (3,)), ("def_benchmark_data", (3,)), ("benchmark", ())),
    *(("set_default", ("cpu", "z")), ("get_default", ("fpga",))),
]
KERNELS: list[Any] = [lambda x: [x, x], lambda x: [x[:2]], lambda x: [x.astype(jnp.int32)], lambda x: None, 3]


def test_what_is_refused_and_why():
    op, distant = operation(a=constant(1)), XLACustomKernel("distant")
    distant.def_triton_kernel(constant(0))
    rows = [answer(op, *arguments, **({"outs": OUT} | options)) for arguments, options in CALLS]
    rows += [answer(getattr(op, name), *arguments) for name, arguments in METHODS]
    rows += [answer(be_runtime.set_backend, *each) for each in (("fpga", "a"), ("cpu", ""))]
    rows += [answer(be_runtime.get_backend, "fpga"), answer(XLACustomKernel, "")]
    rows += [answer(check_platform, given) for given in ("cpu", "gpu", "cuda", "rocm", "CPU!", "", None, 3)]
    rows += [answer(check_name, given) for given in ("", None, 3, b"a")]
    rows += [answer(XLACustomKernel("lonely"), X, outs=OUT), answer(distant, X, outs=OUT, backend="triton")]
    rows.append(answer(jax.jit(lambda x: distant(x, outs=OUT)), X))
    rows += [answer(operation(a=lambda outs, kernel=kernel: kernel), X, outs=OUT) for kernel in KERNELS]
    check_golden(Path(__file__).parent / "golden" / "refused.txt", "\n".join(rows) + "\n")


def test_a_kernel_that_does_not_take_what_it_is_given_is_named():
    for kernel, inputs, message in (
        (same, 1, ".* unexpected keyword argument 'by'"),
        (lambda outs, by, to: lambda x: [x], 1, ".* missing .* 'to'"),
        (lambda outs, by: lambda x: [x], 2, ".* takes 1 positional argument but 2 were given"),
    ):
        with pytest.raises(TypeError if inputs == 2 else GeneratorError, match=f"the kernel 'numba' of op: {message}"):
            operation(numba=kernel)(*[X] * inputs, outs=OUT, by=2)


def test_a_rule_that_does_not_take_the_parameters_is_named():
    def linear(x: Any) -> Any:
        return op(x, outs=OUT, by=2)

    op = operation(a=lambda outs, by: lambda x: [x])
    for define, kind, transform in (
        (op.def_jvp_rule2, "a JVP", lambda: jax.jvp(linear, (X,), (X,))),
        (op.def_jvp_rule, "the JVP", lambda: jax.jvp(linear, (X,), (X,))),
        (op.def_transpose_rule, "the transpose", lambda: jax.linear_transpose(linear, X)(X)),
        (op.def_batching_rule, "the batching", lambda: jax.vmap(linear)(X[None])),
    ):
        define(lambda first, second: (first, second))
        with pytest.raises(TypeError, match=rf"{kind} rule of op: .* unexpected keyword argument"):
            transform()
    op = operation(a=lambda outs: lambda x, y: [x])
    op.def_jvp_rule2(lambda t, x, y, **parameters: (t,))
    with pytest.raises(ArgumentError, match="op has JVP rules for 1 input, but the call has 2"):
        jax.jvp(lambda x: op(x, X, outs=OUT), (X,), (X,))


def test_what_belongs_to_an_operation():
    op = operation(a=constant(1))
    op.def_tags("sparse", "event")
    op.def_tags("event", "matrix")
    assert op.tags == {"sparse", "event", "matrix"}
    assert op.call(X, outs=OUT)[0] == 1
    op.def_call(lambda x, backend=None: op(x, outs=OUT, backend=backend) + 1)
    assert op.call(X)[0] == 2
    assert op.__doc__ == "What it does."
    assert repr(op) == "XLACustomKernel('op': it has kernels for cpu: a)"


XS = jnp.array([[1.0, 2.0, 3.0], [0.5, -1.0, 4.0]])
Y = jnp.array([2.0, 3.0, 5.0])


def product() -> XLACustomKernel:
    operation = XLACustomKernel("product")
    operation.def_kernel("jax", "cpu", lambda outs, by=1: lambda x, y: [by * x * y])
    return operation


@pytest.fixture(params=[lambda operation: operation, lambda operation: operation.primitive])
def of(request: pytest.FixtureRequest) -> Any:
    """An operation itself, or its primitive."""
    return request.param


def test_a_rule_for_each_input_of_an_operation(of: Any):
    operation = product()
    defjvp(of(operation), lambda t, x, y, **_: [t * y], lambda t, x, y, **_: [t * x])
    primal, tangent = jax.jvp(lambda x, y: operation(x, y, outs=OUT), (XS[0], Y), (XS[1], 2 * Y))
    np.testing.assert_allclose(primal, XS[0] * Y)
    np.testing.assert_allclose(tangent, XS[1] * Y + 2 * Y * XS[0])


def test_the_general_rule_within_an_author_s_rule(of: Any):
    operation, seen = product(), []

    def rule(arguments: Any, axes: Any, **parameters: Any) -> Any:
        seen.append(sorted(parameters))
        return general_batching_rule(of(operation), arguments, axes, **parameters)

    operation.def_batching_rule(rule)
    run = jax.jit(jax.vmap(lambda x, y: operation(x, y, outs=OUT, by=3), in_axes=(1, None)))
    np.testing.assert_allclose(run(XS.T, Y), 3 * XS * Y)
    assert seen == [["backend", "by", "outs"]]
    results, axes = general_batching_rule(of(operation), (XS[0], Y), (None, None), outs=OUT)
    np.testing.assert_allclose(results[0], XS[0] * Y)
    assert list(axes) == [None]
    batching.primitive_batchers[operation.primitive] = partial(general_batching_rule, operation.primitive)
    np.testing.assert_allclose(jax.vmap(lambda x: operation(x, Y, outs=OUT))(XS), XS * Y)


@pytest.mark.parametrize("multiple", [False, True])
def test_rules_of_primitives_that_are_jax_s_own(multiple: bool):
    """A primitive as people make them: the product, alone or with the sum."""

    def first(results: Any) -> Any:
        return results[0] if multiple else results

    def compute(x: Any, y: Any) -> Any:
        return [x * y, x + y] if multiple else x * y

    primitive: Any = Primitive("plain")
    primitive.multiple_results = multiple
    primitive.def_impl(compute)
    primitive.def_abstract_eval(lambda x, y: [x, x] if multiple else x)
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=multiple))
    defjvp(primitive, lambda t, x, y: [t * y, t] if multiple else t * y, None)
    tangents = jax.jvp(jax.jit(primitive.bind), (XS[0], Y), (XS[1], Y))[1]
    np.testing.assert_allclose(first(tangents), XS[1] * Y)
    batching.primitive_batchers[primitive] = partial(general_batching_rule, primitive)
    np.testing.assert_allclose(first(jax.vmap(primitive.bind, in_axes=(1, None))(XS.T, Y)), XS * Y)
    results, axes = general_batching_rule(primitive, (XS[0], Y), (None, None))
    np.testing.assert_allclose(first(results), XS[0] * Y)
    assert axes == ([None, None] if multiple else None)


@pytest.mark.parametrize("call", [lambda: defjvp(3), lambda: general_batching_rule("add", (XS,), (0,))])
def test_what_is_no_primitive(call: Any):
    with pytest.raises(TypeError, match="an XLACustomKernel or a JAX primitive is expected, not"):
        call()


def counting(calls: list[str], name: str) -> Any:
    """A generator of kernels with two results that write down each call; XLA may treat them as pure."""

    def count(x: Any) -> Any:
        calls.append(name)
        return np.asarray(x) + 1, np.asarray(x) + 2

    return lambda outs: lambda x: jax.pure_callback(count, outs, x)


def test_no_call_is_left_out_or_moved_out_of_the_loop():
    calls: list[str] = []
    op = XLACustomKernel("counted")
    op.def_kernel("a", "cpu", counting(calls, "a"))
    run = repeated(lambda x: op(x, outs=(OUT, OUT)), [X], jax.devices("cpu")[0])
    for count in (1, 7, 20):
        calls.clear()
        run(count)
        assert len(calls) == count


def test_backends_take_turns_and_every_sample_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(benchmark, "seconds_of", lambda run, count: run(count) or count)  # without noise
    calls: list[str] = []
    op = XLACustomKernel("compared")
    for name in ("a", "b"):
        op.def_kernel(name, "cpu", counting(calls, name))
    op.def_benchmark_data(lambda platform: [BenchmarkConfig("small", (X,), {"outs": (OUT, OUT)})])
    result = op.benchmark(n_warmup=1, n_runs=3, calls=2)
    found = [(each.label, each.backend, len(each.seconds)) for each in result.records]
    assert found == [("small", "a", 3), ("small", "b", 3)]
    forward, backward = "a" * 6 + "b" * 6, "b" * 6 + "a" * 6
    assert "".join(calls) == "aabb" + 2 * (forward + backward)


def test_a_backend_that_fails_is_reported_and_does_not_stop_the_others():
    op = XLACustomKernel("half")
    op.def_kernel("broken", "cpu", raising(ValueError("no such kernel\nmore")))
    op.def_kernel("works", "cpu", lambda outs: lambda x: [x])
    op.def_call(lambda x, backend: op(x, outs=OUT, backend=backend))
    op.def_benchmark_data(lambda platform: [BenchmarkConfig("one", (X,))])
    result = op.benchmark(n_runs=1, calls=1)
    error = "GeneratorError: the kernel 'broken' of half can't be made: ValueError: no such kernel"
    assert (result.records[0].error, result.records[0].seconds) == (error, ())
    assert result.fastest().backend == "works"
    assert "ValueError: no such kernel" in str(result)


def test_the_table_and_the_fastest():
    records = (
        BenchmarkRecord("small", "a", (3e-6, 1e-6, 2e-6)),
        BenchmarkRecord("small", "b", (4e-6,)),
        BenchmarkRecord("large", "b", (1e-3,)),
    )
    result = BenchmarkResult("op", records)
    assert result.fastest() == records[0]
    assert result.fastest("large") == records[2]
    with pytest.raises(ValueError, match="nothing was measured for huge"):
        result.fastest("huge")
    assert str(result).splitlines()[2].split() == ["small", "a", "2.00", "1.00"]


def test_data_that_are_no_configurations_and_numbers_that_are_too_small():
    op, data = XLACustomKernel("op"), Mock()
    op.def_benchmark_data(data)
    for data.return_value in ([], [3], [("label", (X,))]):
        with pytest.raises(ArgumentError, match="the benchmark data of op"):
            op.benchmark()
    data.return_value = [BenchmarkConfig("one", (X,))]
    few: list[dict[str, Any]] = [{"n_runs": 0}, {"calls": 0}, {"n_warmup": -1}]
    for number in few:
        with pytest.raises(ArgumentError, match="at least"):
            op.benchmark(**number)


def test_a_function_is_called_as_often_as_it_says():
    function = Mock(side_effect=lambda x, y: {"sum": x + y})
    mean, deviation, fastest, slowest, result = benchmark_function(function, 2, 3, 4, (X, X))
    assert function.call_count == (2 + 3) * 4
    assert 0 < fastest <= mean <= slowest
    assert deviation >= 0
    np.testing.assert_array_equal(result["sum"], 2 * X)
    for numbers in ((-1, 1, 1), (0, 0, 1), (0, 1, 0)):
        with pytest.raises(ArgumentError, match="at least"):
            benchmark_function(function, *numbers)
