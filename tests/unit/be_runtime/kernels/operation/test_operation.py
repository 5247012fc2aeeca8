"""What an operation does besides being transformed: picking kernels, redefinition, errors."""

from __future__ import annotations

import traceback
from collections.abc import Generator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import be_runtime
from be_runtime import ArgumentError, BuildError, FallbackWarning, GeneratorError, XLACustomKernel

X = jnp.arange(3.0)
OUT = jax.ShapeDtypeStruct((3,), jnp.float32)


def constant(value: float) -> Any:
    return lambda outs: lambda x: [jnp.full_like(x, value)]


def operation(**kernels: Any) -> XLACustomKernel:
    made = XLACustomKernel("op", "What it does.")
    for backend, generator in kernels.items():
        made.def_kernel(backend, "cpu", generator)
    return made


@pytest.fixture(autouse=True)
def _no_choice() -> Generator[None]:
    yield
    be_runtime.clear_backends()


def test_the_result_has_the_structure_of_outs():
    op = operation(jax=lambda outs: lambda x: {"b": x, "a": (x + 1,)})
    result = op(X, outs=[OUT, {"k": OUT}])
    assert result[0].tolist() == [1, 2, 3]
    assert result[1]["k"].tolist() == [0, 1, 2]


def test_a_generator_is_given_the_keywords_and_outs():
    given = []

    def generator(**parameters: Any) -> Any:
        given.append(parameters)
        return lambda x: [x]

    operation(jax=generator)(X, outs=OUT, backend="jax", factor=2, mode="a")
    assert given == [{"outs": (OUT,), "factor": 2, "mode": "a"}]


def test_a_backend_can_be_asked_for_and_the_default_changed():
    op = operation(a=constant(1), b=constant(2))
    assert op.available_backends("cpu") == ("a", "b")
    assert op(X, outs=OUT)[0] == 1
    assert op(X, outs=OUT, backend="b")[0] == 2
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
    def missing(outs: Any) -> Any:
        raise ImportError("no module named nowhere")

    op = operation(a=missing, b=constant(2))
    text = "the kernel 'a' of op can't be used: no module named nowhere; b is used instead"
    with pytest.warns(FallbackWarning, match=text):
        assert op(X, outs=OUT)[0] == 2
    with pytest.raises(ImportError, match="nowhere"):
        op(X, outs=OUT, backend="a")


def test_a_kernel_that_is_wrong_is_not_passed_over():
    def wrong(outs: Any) -> Any:
        raise BuildError("it does not compile")

    op = operation(a=wrong, b=constant(2))
    with pytest.raises(BuildError, match="this was the kernel 'a' of op for cpu; others: b"):
        op(X, outs=OUT)


def test_a_generator_that_fails_is_named_with_the_other_backends():
    def failing(outs: Any) -> Any:
        raise KeyError("boom")

    op = operation(a=failing, b=constant(2), c=constant(3))
    with pytest.raises(GeneratorError, match="the kernel 'a' of op can't be made: KeyError: 'boom'") as caught:
        jax.jit(jax.vmap(lambda x: op(x, outs=OUT)))(X[None])
    assert "the kernel 'a' of op for cpu; others: b, c (backend=..., set_default or set_backend)" in str(caught.value)
    assert "in failing" in "".join(traceback.format_exception(caught.value)), "the author's line is shown"


def test_a_kernel_that_fails_has_its_own_error_and_a_note():
    op = operation(a=lambda outs: lambda x: 1 / 0, b=constant(2))
    with pytest.raises(ZeroDivisionError) as caught:
        op(X, outs=OUT)
    assert "this was the kernel 'a' of op for cpu; others: b" in caught.value.__notes__[0]


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


def test_the_process_s_backend_comes_before_the_default_which_stays_second():
    def missing(outs: Any) -> Any:
        raise ImportError("nowhere")

    op = operation(a=constant(1), b=missing, c=constant(3))
    op.set_default("cpu", "c")
    be_runtime.set_backend("cpu", "b")
    with pytest.warns(FallbackWarning, match="the kernel 'b' of op can't be used: nowhere; c is used instead"):
        assert op(X, outs=OUT)[0] == 3
    assert op.get_default("gpu") is None


def test_the_same_choice_again_keeps_programs():
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
    assert len(traced) == 1


def test_a_redefinition_takes_effect_in_programs_that_are_compiled():
    op = operation(a=constant(1), b=constant(2))
    run = jax.jit(lambda x: op(x, outs=OUT))
    assert run(X)[0] == 1
    op.def_kernel("a", "cpu", constant(10))
    assert run(X)[0] == 10
    op.set_default("cpu", "b")
    assert run(X)[0] == 2


def test_a_rule_that_is_defined_again_takes_effect():
    op = operation(a=lambda outs: lambda x: [x])
    run = jax.jit(jax.grad(lambda x: op(x, outs=OUT).sum()))
    op.def_jvp_rule2(lambda t, x, **parameters: (2 * t,))
    assert run(X)[0] == 2
    op.def_jvp_rule2(lambda t, x, **parameters: (3 * t,))
    assert run(X)[0] == 3


def test_programs_are_kept_while_an_operation_is_defined():
    traced = []

    @jax.jit
    def run(x: Any) -> Any:
        traced.append(x)
        return x

    run(X)
    operation(a=constant(1), b=constant(2)).set_default("cpu", "b")
    run(X)
    assert len(traced) == 1


def test_no_kernel_for_the_platform():
    op = XLACustomKernel("lonely")
    with pytest.raises(ArgumentError, match="the operation lonely has no kernel for cpu; it has no kernels yet"):
        op(X, outs=OUT)
    op.def_triton_kernel(constant(0))
    with pytest.raises(ArgumentError, match="no kernel for cpu; it has kernels for gpu: triton"):
        jax.jit(lambda x: op(x, outs=OUT))(X)
    with pytest.raises(ArgumentError, match="no 'triton' kernel for cpu"):
        op(X, outs=OUT, backend="triton")


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda x: [x, x], r"the kernel gives float32\[3\], float32\[3\], but outs is float32\[3\]"),
        (lambda x: [x[:2]], r"gives float32\[2\], but outs is float32\[3\]"),
        (lambda x: [x.astype(jnp.int32)], r"gives int32\[3\], but outs"),
        (lambda x: None, r"gives no arrays, but outs"),
    ],
)
def test_a_kernel_that_gives_something_else(kernel: Any, message: str):
    with pytest.raises(ArgumentError, match=message):
        operation(a=lambda outs: kernel)(X, outs=OUT)


def test_a_generator_that_makes_no_kernel():
    with pytest.raises(GeneratorError, match="must return a function of arrays, not 3"):
        operation(a=lambda outs: 3)(X, outs=OUT)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda op: op("text", outs=OUT), "op: argument 0 is 'text', which is not an array"),
        (lambda op: op(X, None, outs=OUT), "op: argument 1 is None, which is not an array"),
        (lambda op: op(["text"] * 9, outs=OUT), "op: argument 0 is a list, which is not an array"),
        (lambda op: op(X, outs=()), "op: outs is empty"),
        (lambda op: op(X, outs="float32"), r"op: outs\[0\] is 'float32', which has no shape"),
        (lambda op: op(X, outs=OUT, backend="z"), "op has no 'z' kernel; it has kernels for cpu: a"),
        (lambda op: op(X, outs=OUT, sizes=[1, 2]), r"the keyword sizes is \[1, 2\], which can't be hashed"),
        (lambda op: op.def_kernel("a", "cpu", 3), "kg must be a function"),
        (lambda op: op.def_kernel("", "cpu", print), "a name such as 'numba' is expected, not ''"),
        (lambda op: op.def_kernel("a", "fpga", print), "platform must be one of"),
        (lambda op: op.def_tags("fine", 3), "expected, not 3"),
        (lambda op: op.def_call(3), "def_call takes a function"),
        (lambda op: op.def_benchmark_data(3), "def_benchmark_data takes a function"),
        (lambda op: op.benchmark(), "op has no benchmark data"),
        (lambda op: XLACustomKernel(""), "expected, not ''"),
        (lambda op: op.get_default("fpga"), "platform must be one of"),
        (lambda op: be_runtime.set_backend("fpga", "a"), "platform must be one of"),
        (lambda op: be_runtime.get_backend("fpga"), "platform must be one of"),
        (lambda op: be_runtime.set_backend("cpu", ""), "a name such as 'numba' is expected, not ''"),
    ],
)
def test_bad_input(call: Any, message: str):
    with pytest.raises(ArgumentError, match=message):
        call(operation(a=constant(1)))


@pytest.mark.parametrize(
    ("kernel", "inputs", "error", "message"),
    [
        (lambda outs: lambda x: [x], 1, GeneratorError, ".* unexpected keyword argument 'by'"),
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


def test_symbolic_shapes_are_named():
    (size,) = jax.export.symbolic_shape("b")
    op = operation(a=lambda outs: lambda x: [x])
    with pytest.raises(ArgumentError, match=r"op: outs\[0\] has the symbolic shape \(b, 3\)"):
        op(X, outs=jax.ShapeDtypeStruct((size, 3), jnp.float32))


def test_too_few_jvp_rules():
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
