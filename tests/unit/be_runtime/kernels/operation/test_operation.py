"""What an operation does besides being transformed: picking kernels, redefinition, errors."""

from __future__ import annotations

import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import be_runtime
from be_runtime import ArgumentError, BuildError, FallbackWarning, GeneratorError, XLACustomKernel
from be_runtime.kernels.operation.backends import KernelEntry, Kernels, check_name, check_platform
from tests.unit.be_runtime.generate.golden_files import answer, check_golden

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


@pytest.mark.parametrize(
    ("kernel", "inputs", "error", "message"),
    [
        (same, 1, GeneratorError, ".* unexpected keyword argument 'by'"),
        (lambda outs, by, to: lambda x: [x], 1, GeneratorError, ".* missing .* 'to'"),
        (lambda outs, by: lambda x: [x], 2, TypeError, ".* takes 1 positional argument but 2 were given"),
    ],
)
def test_a_kernel_that_does_not_take_what_it_is_given_is_named(
    kernel: Any, inputs: int, error: type[Exception], message: str
):
    with pytest.raises(error, match=f"the kernel 'numba' of op: {message}"):
        operation(numba=kernel)(*[X] * inputs, outs=OUT, by=2)


def test_a_rule_that_does_not_take_the_parameters_is_named():
    def linear(x: Any) -> Any:
        return op(x, outs=OUT, by=2)

    op = operation(a=lambda outs, by: lambda x: [x])
    op.def_jvp_rule2(lambda tangent, x: tangent)
    with pytest.raises(TypeError, match=r"a JVP rule of op: .* unexpected keyword argument"):
        jax.jvp(linear, (X,), (X,))
    op.def_jvp_rule(lambda primals, tangents: (primals, tangents))
    with pytest.raises(TypeError, match=r"the JVP rule of op: .* unexpected keyword argument"):
        jax.jvp(linear, (X,), (X,))
    op.def_transpose_rule(lambda cotangents, x: cotangents)
    with pytest.raises(TypeError, match=r"the transpose rule of op: .* unexpected keyword argument"):
        jax.linear_transpose(linear, X)(X)
    op.def_batching_rule(lambda arguments, axes: (arguments, axes))
    with pytest.raises(TypeError, match=r"the batching rule of op: .* unexpected keyword argument"):
        jax.vmap(linear)(X[None])
    op = operation(a=lambda outs: lambda x, y: [x])
    op.def_jvp_rule2(lambda t, x, y, **parameters: (t,))
    with pytest.raises(ArgumentError, match="op has JVP rules for 1 inputs, but the call has 2"):
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
