"""Functions of a module for NumPy's arrays and PyTorch's tensors: results, attributes, derivatives, and errors."""

from __future__ import annotations

import copy
import importlib.util
import math
import os
import pickle
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import be_runtime
import be_runtime.numpy
from be_runtime import ArgumentError, CompiledModule
from be_runtime.foreign import ForeignFunctions
from tests.support.requirements import OPTIONAL

KERNELS = Path(__file__).parents[1] / "include" / "kernels" / "tvm_calls.cc"
X = np.arange(4, dtype=np.float32)
SQUARES = r"""
#include "brainevent/common.h"
// @BE square arg[n]:float32 ret[n]:float32 attr.k:float32=1
void square(const BE::Tensor x, BE::Tensor y, float k) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = k * x.data_ptr<float>()[i] * x.data_ptr<float>()[i];
}
// @BE square_kept arg[n]:float32 ret[n]:float32 ret[n]:float32 attr.k:float32=1
void square_kept(const BE::Tensor x, BE::Tensor y, BE::Tensor kept, float k) {
  square(x, y, k);
  for (int64_t i = 0; i < x.numel(); ++i) kept.data_ptr<float>()[i] = x.data_ptr<float>()[i];
}
// @BE square_back arg[n]:float32 arg[n]:float32 ret[n]:float32 attr.k:float32=1
void square_back(const BE::Tensor x, const BE::Tensor g, BE::Tensor y, float k) {
  for (int64_t i = 0; i < x.numel(); ++i)
    y.data_ptr<float>()[i] = 2 * k * x.data_ptr<float>()[i] * g.data_ptr<float>()[i];
}
// @BE copy arg ret:like(0)
void copy(const BE::Tensor x, BE::Tensor y) { memcpy(y.data(), x.data(), x.nbytes()); }
"""


@pytest.fixture(name="module", scope="module")
def _module() -> CompiledModule:
    return be_runtime.load_cpp_file(KERNELS, name="foreign", auto_register=False)


@pytest.fixture(name="squares", scope="module")
def _squares() -> CompiledModule:
    return be_runtime.load_cpp_inline("foreign_squares", SQUARES, auto_register=False)


def numpy_functions(module: CompiledModule) -> tuple[ForeignFunctions, Any, Any]:
    return be_runtime.numpy.functions(module), np.asarray, np.asarray


def torch_functions(module: CompiledModule) -> tuple[ForeignFunctions, Any, Any]:
    import torch

    import be_runtime.torch

    return be_runtime.torch.functions(module), torch.as_tensor, lambda tensor: tensor.numpy()


needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=f"{OPTIONAL}PyTorch")
FRAMEWORKS = [numpy_functions, pytest.param(torch_functions, marks=needs_torch)]


@pytest.mark.parametrize("functions", FRAMEWORKS)
def test_values(module: CompiledModule, functions: Any):
    f, to, back = functions(module)
    x = to(X)
    assert back(f.scaled(x, x, by=3)).tolist() == [0, 4, 8, 12]
    assert back(f.scaled(x, x)).tolist() == [0, 2, 4, 6]
    assert back(f.last(to(np.full((2, 3), 5, np.int16)), first=1, flag=True, count=2)).tolist() == [5211]
    assert back(f.mode(mode="slow")).tolist() == [3]
    assert back(f.sum(values=[1, 2], z=1 - 2j, type="bool")).tolist() == [3, 12, 1, -2]
    assert back(f.halves(h=1.5)).tolist() == [np.float16(1.5).view(np.uint16)]
    c, d = f.some(None, x, want="c")
    assert (back(c).tolist(), back(d).tolist()) == ([0, 3, 6, 9], [0, 2, 4, 6])
    assert f.some(x, x)[0] is None
    changed, zeros = f.add_to(x, by=2)
    assert (back(changed).tolist(), back(zeros).shape, back(x).tolist()) == ([2, 3, 4, 5], (2, 4), [0, 1, 2, 3])
    assert "scaled" in dir(f)
    assert f.scaled is f.scaled


@pytest.mark.parametrize("functions", FRAMEWORKS)
def test_errors(module: CompiledModule, functions: Any):
    f, to, _ = functions(module)
    x = to(X)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: f.scaled(x, to(np.ones(3, np.float32))), "axis n is 4 in argument 0"),
        (lambda: f.scaled(x), "takes 2 arrays"),
        (lambda: f.scaled(x, [1, 2]), "argument 1 is .1, 2., not a"),
        (lambda: f.scaled(x, 3), "argument 1 is 3, not an array"),
        (lambda: f.scaled(to(X.astype(np.float64)), x), "is float64.4., but float32 is declared"),
        (lambda: f.scaled(to(X.reshape(2, 2)), x), r"has the shape \(2, 2\)"),
        (lambda: f.scaled(x, x, by="a"), "not a valid float32"),
        (lambda: f.scaled(x, x, to=1), "no attribute 'to'"),
        (lambda: f.mode(mode="quick"), "mode"),
        (lambda: f.add_to(x), "needs the number 'by'"),
        (lambda: f.throws(how=1), "does not follow from the arg_spec"),
        (lambda: f.many, "only JAX can call it"),
        (lambda: f.point(point={"x": 1}), "only JAX can pass point"),
    ]
    for call, message in calls:
        with pytest.raises(ArgumentError, match=message):
            call()
    with pytest.raises(TypeError, match="is not contiguous"):
        f.scaled(x, to(np.ones(8, np.float32))[::2])
    with pytest.raises(AttributeError, match="has no function 'scale'; it has scaled, "):
        _ = f.scale


@pytest.mark.parametrize("functions", FRAMEWORKS)
@pytest.mark.parametrize("given", ["scale", Path("scale.cc"), None, math], ids=repr)
def test_functions_are_of_a_module(functions: Any, given: Any):
    with pytest.raises(TypeError, match="takes a loaded module, as load_cpp_file"):
        functions(given)


@needs_torch
def test_a_tensor_after_an_array_of_jax():
    import torch

    module: Any = be_runtime.load_cpp_file(KERNELS, name="foreign")
    x = jnp.asarray(X)
    assert module.scaled(x, x).tolist() == [0, 2, 4, 6]
    for arrays in ((x, torch.ones(4)), (torch.ones(4), x)):
        with pytest.raises(ArgumentError, match=r"argument . is Array.*not a tensor of PyTorch"):
            module.scaled(*arrays)
    assert module.some(None, x, want="c")[0].tolist() == [0, 3, 6, 9]
    assert module.some(None, torch.ones(4), want="c")[0].tolist() == [3, 3, 3, 3], "None may come before a tensor"


def test_types_that_numpy_lacks(squares: CompiledModule):
    x = np.array([1.5, 2], ml_dtypes.bfloat16)
    y = be_runtime.numpy.functions(squares).copy(x)
    assert (y.dtype, y.tolist()) == (x.dtype, [1.5, 2])


def forward(x: Any, k: float) -> Any:
    return x * x * k, {"slope": [2 * k * x]}


RULES: dict[str, tuple[Any, Any]] = {
    "kernel": (None, "square_back"),
    "kernels": ("square_kept", "square_back"),
    "function": (None, lambda inputs, g, k: (2 * k * inputs[0] * g,)),
    "functions": (forward, lambda kept, g, k: (kept["slope"][0] * g,)),
}


def fresh() -> CompiledModule:
    """The module without rules."""
    return be_runtime.load_cpp_inline("foreign_squares", SQUARES, auto_register=False)


@needs_torch
@pytest.mark.parametrize("way", ["functions", "module"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_rules_for_jax_are_rules_for_torch(rule: Any, way: str):
    import torch

    import be_runtime.torch

    module = fresh()
    square: Any = be_runtime.torch.functions(module).square if way == "functions" else module.square
    x = torch.arange(3.0).requires_grad_()
    with pytest.raises(ArgumentError, match="has no derivative, but an argument requires one"):
        square(x)
    module.square.defvjp(*rule)
    y: Any = square(x, k=3)
    assert y.tolist() == [0, 3, 12]
    y = torch.cat([torch.ones(1), y])
    (y * y).sum().backward()  # the cotangent does not begin at a multiple of 16 bytes
    assert x.grad is not None
    assert x.grad.tolist() == [0, 36, 288]
    with torch.no_grad():
        assert not square(x).requires_grad
    assert jax.grad(lambda x: module.square(x, k=3).sum())(X).tolist() == [0, 6, 12, 18]


@needs_torch
def test_second_derivatives():
    import torch

    module, x = fresh(), torch.arange(3.0).requires_grad_()
    module.square.defvjp(*RULES["function"])
    (slope,) = torch.autograd.grad(module.square(x, k=3).sum(), x, create_graph=True)
    assert torch.autograd.grad(slope.sum(), x)[0].tolist() == [6, 6, 6]
    module.square.defvjp(*RULES["kernel"])
    module.square_back.defvjp(None, lambda inputs, g, k: (2 * k * inputs[1] * g, 2 * k * inputs[0] * g))
    (slope,) = torch.autograd.grad(module.square(x, k=3).sum(), x, create_graph=True)
    assert torch.autograd.grad(slope.sum(), x)[0].tolist() == [6, 6, 6]
    module.square.defvjp(*RULES["functions"])
    (slope,) = torch.autograd.grad(module.square(x, k=3).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"does not require grad|once_differentiable"):
        torch.autograd.grad(slope.sum(), x)


@needs_torch
def test_calls_follow_the_rules_of_now():
    import torch

    module = fresh()
    module.square.defvjp(*RULES["kernel"])
    x = torch.arange(3.0).requires_grad_()
    slopes = [torch.autograd.grad(module.square(x, k=k).sum(), x)[0].tolist() for k in (1, 2, 1)]
    assert slopes == [[0, 2, 4], [0, 4, 8], [0, 2, 4]]
    before = module.square(x)
    module.square.defvjp(None, lambda inputs, g, k: (inputs[0] + k * g,))
    assert torch.autograd.grad(module.square(x).sum(), x)[0].tolist() == [1, 2, 3]
    assert torch.autograd.grad(before.sum(), x)[0].tolist() == [0, 2, 4]
    module.square.defvjp(None, "copy")
    (slope,) = torch.autograd.grad(module.square(x).sum(), x)
    assert slope.tolist() == [1, 1, 1]


@needs_torch
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", ["square", "copy"])
def test_transforms_are_refused(name: str):
    import torch
    from torch.autograd import forward_ad

    module, x, refused = fresh(), torch.ones(2, 3), r"is a tensor of torch\.func or of forward mode"
    module.square.defvjp(None, "square_back")
    call = module[name]
    calls: list[Callable[[], Any]] = [
        lambda: torch.func.vmap(call)(x),
        lambda: torch.func.grad(lambda x: call(x).sum())(x[0]),
        lambda: torch.func.jvp(call, (x[0],), (x[0],)),
    ]
    if name == "square":
        row = torch.ones(3).requires_grad_()
        y = call(row)
        calls.append(lambda: torch.func.vmap(lambda g: torch.autograd.grad(y, row, g))(torch.eye(3)))
    call(x[0].clone())  # a call without transforms, of the same shape
    for each in calls:
        with pytest.raises(ArgumentError, match=refused):
            each()
    with forward_ad.dual_level():
        with pytest.raises(ArgumentError, match=refused):
            call(forward_ad.make_dual(x[0], x[0]))
        assert call(x[0]).tolist() == [1, 1, 1]


@needs_torch
def test_transposes_for_jax_are_rules_for_torch():
    import torch

    module, x = fresh(), torch.arange(3.0).requires_grad_()
    module.copy.deftranspose("copy")
    (module.copy(x) * torch.tensor([1.0, 2, 3])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1, 2, 3]


@needs_torch
@pytest.mark.parametrize("rule", [lambda x, g, k: (jnp.sin(x[0]) * g * k,), lambda _x, _g, k: (jnp.ones(3) * k,)])
def test_rules_that_call_jax(rule: Any):
    import torch

    module, x = fresh(), torch.arange(3.0).requires_grad_()
    module.square.defvjp(None, rule)
    with pytest.raises(ArgumentError, match=r"the rule <lambda> (calls JAX with tensors|returns an array of JAX)"):
        module.square(x).sum().backward()


@needs_torch
@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch warns of such tensors
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_tensors_of_other_kinds(squares: CompiledModule):
    import torch

    import be_runtime.torch

    f = be_runtime.torch.functions(squares)
    dense = torch.ones(2)
    assert f.copy(dense).tolist() == [1, 1]  # its plan would be that of sparse tensors of its shape
    for tensor, message in (
        (torch.ones(2, device="meta"), "(?s)is on meta, but the function runs on cpu.*by to_empty"),
        (dense.to_sparse(), r"(?s)argument 0 is a tensor with torch\.sparse_coo, not dense.*pass x\.to_dense"),
        (torch.eye(2).to_sparse_csr(), r"with torch\.sparse_csr, not dense"),
        (torch.nested.nested_tensor([dense, torch.ones(3)], layout=torch.jagged), r"nested tensor\n.*x\.unbind"),
        (torch.nested.nested_tensor([dense, torch.ones(3)]), r"argument 0 is a nested tensor"),
        (torch.quantize_per_tensor(dense, 0.1, 0, torch.quint8), r"(?s)is of torch\.quint8.*x\.dequantize"),
        (torch.ones(2, dtype=torch.complex64).conj(), "a view by conj"),
        (torch.ones(2, dtype=torch.complex64).conj().imag, "a view by conj"),
    ):
        for call in (f.copy, squares.copy):
            with pytest.raises(ArgumentError, match=message):
                call(tensor)
    for program in (lambda x: f.copy(x) + 1, lambda x: squares.copy(x) + 1):
        with pytest.raises(ArgumentError, match=r"(?s)argument 0 is Proxy.*symbolic tracing.*torch\.export"):
            torch.fx.symbolic_trace(program)
    with pytest.raises(TypeError, match="not a multiple of 16, as a slice of a tensor may"):
        f.copy(torch.ones(3)[1:])
    with pytest.raises(ArgumentError, match="outs is for arrays of JAX"):
        squares.copy(torch.ones(3), outs=torch.ones(3))
    halves = torch.tensor([1.5, 2], dtype=torch.bfloat16)
    assert torch.equal(f.copy(halves), halves)


@pytest.mark.parametrize("name", ["numpy", pytest.param("torch", marks=needs_torch)])
def test_a_call_leaves_jax_alone(name: str):
    array = {"numpy": "np.ones(2, np.float32)", "torch": "torch.ones(2)"}[name]
    program = (
        "import sys, be_runtime, numpy as np\n"
        f"import be_runtime.{name}, {name}\n"
        f"module = be_runtime.load_cpp_inline('foreign_squares', {SQUARES!r}, auto_register=False)\n"
        f"print(be_runtime.{name}.functions(module).square({array}, k=2).tolist(), 'jax' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[2.0, 2.0] False\n"


@needs_torch
def test_calls_of_a_package_leave_jax_alone(tmp_path: Path):
    package = tmp_path / "squares"
    package.mkdir()
    (package / "square.cc").write_text(SQUARES)
    (package / "kernels.toml").write_text('[modules.module]\nsources = "square.cc"\n')
    (package / "__init__.py").write_text(
        "from be_runtime import package_kernels\nops = package_kernels(__name__)\n"
        "def setup(): ops.square.defvjp(None, 'square_back')\n"
    )
    program = """
import sys, torch, squares
squares.setup()
x = torch.arange(3.0, requires_grad=True)
squares.ops.square(x, k=2).sum().backward()
print(x.grad.tolist(), "jax" in sys.modules)
import jax, jax.numpy as jnp
x = jnp.arange(3.0)
print(jax.grad(lambda x: squares.ops.square(x).sum())(x).tolist())
print(jax.ffi.ffi_call("squares.module.square", x)(x).tolist())
"""
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ran.stdout == "[0.0, 4.0, 8.0] False\n[0.0, 2.0, 4.0]\n[0.0, 1.0, 4.0]\n", ran.stderr


@needs_torch
@pytest.mark.filterwarnings("ignore:.*torch.jit")  # by jvp
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_programs(squares: CompiledModule, backend: str):
    import torch

    import be_runtime.torch

    square = be_runtime.torch.functions(squares).square

    def program(x: Any) -> Any:
        return square(x + 1, k=2) * 3

    compiled = torch.compile(program, fullgraph=True, backend=backend)
    assert compiled(torch.arange(3.0)).tolist() == [6, 24, 54]
    assert compiled(torch.arange(4.0)).tolist() == [6, 24, 54, 96]
    with pytest.raises(ArgumentError, match="forward mode"):
        torch.compile(lambda x: torch.func.jvp(square, (x,), (x,)), backend=backend)(torch.ones(3))


@needs_torch
def test_a_compiled_call_takes_numbers_by_name(module: CompiledModule):
    import torch

    import be_runtime.torch

    add_to = be_runtime.torch.functions(module).add_to
    compiled = torch.compile(lambda x: add_to(x, by=2.5)[0], fullgraph=True, backend="aot_eager")
    assert compiled(torch.ones(2)).tolist() == [3.5, 3.5]


@pytest.mark.parametrize("functions", FRAMEWORKS)
def test_copies_are_the_function_itself(module: CompiledModule, functions: Any):
    f, _, _ = functions(module)
    for each in (f, f.scaled):
        assert copy.deepcopy([each]) == copy.copy([each]) == [each]
        with pytest.raises(TypeError, match="can't be pickled, since its code is loaded in this process alone"):
            pickle.dumps(each)


@needs_torch
@pytest.mark.parametrize("rule", ["kernel", "kernels", "function"])
def test_traced_programs(rule: str):
    """The graph has the kernels, and not only their results' memory."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    module, x, y = fresh(), torch.ones(3), torch.arange(3.0)
    module.square.defvjp(*RULES[rule])
    module.square(x), module.square(x.clone().requires_grad_())  # make plans

    def slope(x: Any) -> Any:
        return torch.autograd.grad(module.square(x, k=2).sum(), x)[0]

    for how in ({}, {"pre_dispatch": True}, {"tracing_mode": "fake"}, {"tracing_mode": "symbolic"}):
        assert make_fx(lambda x: module.square(x + 1, k=2) * 3, **how)(x.detach())(y.detach()).tolist() == [6, 24, 54]
    for mode in ("real", "fake", "symbolic"):
        assert make_fx(slope, tracing_mode=mode)(x.requires_grad_())(y.requires_grad_()).tolist() == [0, 4, 8]


@needs_torch
def test_a_mode_sees_calls_after_another_thread_left_its_own(squares: CompiledModule):
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Log(TorchDispatchMode):  # type: ignore[misc, unused-ignore]  # Any without PyTorch
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def other() -> None:
        with Log():
            entered.set()
            left.wait()

    seen, entered, left = list[str](), threading.Event(), threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    with Log():
        left.set()
        thread.join()
        squares.copy(torch.ones(3))
    assert any("copy" in each for each in seen)


@needs_torch
@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated:FutureWarning")
@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_trace_of_torchscript_is_refused(squares: CompiledModule, shape: tuple[int, ...]):
    import torch

    trace: Any = torch.jit.trace
    x = torch.ones(shape)
    squares.copy(x)  # makes a plan
    with pytest.raises(ArgumentError, match=r"torch\.jit\.trace can't record the call\nhint: use torch\.export"):
        trace(lambda x: squares.copy(x) + 1, (x,), check_trace=False)


@needs_torch
@pytest.mark.parametrize("rule", ["kernel", "kernels", "function"])
@pytest.mark.parametrize("way", ["functions", "module"])
def test_compiled_derivatives(rule: str, way: str):
    import torch

    import be_runtime.torch

    module = fresh()
    module.square.defvjp(*RULES[rule])
    square: Any = be_runtime.torch.functions(module).square
    if way == "module":  # it finds the function that was made
        square = module.square

    def program(x: Any) -> Any:
        return square(x + 1, k=2) * 3

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    x = torch.arange(3.0).requires_grad_()
    compiled(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [12, 24, 36]


def test_numbers_that_equal_others(module: CompiledModule):
    f = be_runtime.numpy.functions(module)
    parts = [f.sum(values=(1.0,), z=np.complex64(complex(1, zero)))[3] for zero in (0.0, -0.0)]
    assert np.signbit(parts).tolist() == [False, True]


@needs_torch
def test_attributes_that_equal_others(squares: CompiledModule):
    import torch

    x = torch.ones(1)
    signs = [torch.signbit(squares.square(x, k=k)).item() for k in (0.0, -0.0, 0, -0.0)]
    assert signs == [False, True, False, True]


@needs_torch
def test_attributes_that_are_tensors(squares: CompiledModule):
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    x, k = torch.ones(1), torch.tensor(2.0)
    assert squares.square(x, k=k).tolist() == [2]
    k += 1
    assert squares.square(x, k=k).tolist() == [3]
    k.requires_grad_()
    for program in (lambda x, k: squares.square(x, k=k), make_fx(lambda x, k: squares.square(x, k=k))):
        with pytest.raises(ArgumentError, match="k requires a gradient, but attributes have none"):
            program(x, k)
    with pytest.raises(ArgumentError, match="has no attribute 'out'"):
        squares.square(x, out=torch.ones(3))


@needs_torch
@pytest.mark.parametrize("number", [math.inf, math.nan, -0.0, np.float32(2)])
def test_each_number_passes_through_an_operator(squares: CompiledModule, number: float):
    import torch

    other: Any = type("Other", (torch.Tensor,), {})
    found = squares.square(torch.ones(1).as_subclass(other), k=number)
    assert np.array_equal(found.numpy(), np.array([number], np.float32), equal_nan=True)
    assert np.signbit(found.item()) == np.signbit(number)


@needs_torch
@pytest.mark.parametrize("rule", ["vjp", "transpose"])
def test_complex_rules_are_as_in_jax(rule: str):
    import torch

    module = fresh()
    if rule == "vjp":
        module.copy.defvjp(lambda x: (1j * x, ()), lambda _kept, g: (1j * g,))
    else:
        module.copy.deftranspose(lambda g: g)
    x, w, factor = torch.tensor([1 + 2j]), torch.tensor([3 - 1j]), 1j if rule == "vjp" else 1
    grads = []
    functions: list[Any] = [module.copy, lambda x: factor * x]
    for function in functions:
        leaf = x.clone().requires_grad_()
        (w * function(w * leaf)).real.sum().backward()
        assert leaf.grad is not None
        grads.append(leaf.grad.tolist())
    assert grads[0] == grads[1]
    y = jax.grad(lambda x: (w.numpy() * module.copy(w.numpy() * x)).real.sum())(x.numpy())
    assert np.conj(y).tolist() == grads[0]


@needs_torch
def test_layouts_and_outs_are_for_jax_alone(squares: CompiledModule):
    import torch

    for options in ({"input_layouts": [(0,)]}, {"outs": jax.ShapeDtypeStruct((1,), "float32")}):
        with pytest.raises(ArgumentError, match="has outs or layouts by with_options, which are for arrays of JAX"):
            squares.square.with_options(**options)(torch.ones(1))


@needs_torch
def test_a_compiled_program_whose_attributes_change(squares: CompiledModule):
    import torch

    import be_runtime.torch

    square = be_runtime.torch.functions(squares).square
    compiled = torch.compile(lambda x, k: square(x, k=k), fullgraph=True, backend="eager")
    assert [compiled(torch.ones(1), k).item() for k in (1.5, 2.5, 3, 4, math.inf)] == [1.5, 2.5, 3, 4, math.inf]


@needs_torch
def test_kernels_without_a_module_take_no_tensors():
    import torch

    operation = be_runtime.cuda_kernel(
        "__global__ void f(float* y) {}", "f", jax.ShapeDtypeStruct((1,), "float32"), grid=1, block=1
    )
    with pytest.raises(ArgumentError, match="takes arrays of JAX; functions of modules take tensors, too"):
        operation(torch.ones(1))


@pytest.mark.full
@needs_torch
def test_many_calls_from_torch_keep_no_memory():
    import torch

    module = fresh()
    module.square.defvjp(None, "square_back")
    x, wrong = torch.ones(4).requires_grad_(), torch.ones(9)[1:]

    def run(count: int) -> int:
        for number in range(count):
            loss: Any = module.square(x, k=float(number)).sum()
            loss.backward()
            with pytest.raises(TypeError, match="not a multiple of 16"):
                module.square(wrong)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = run(2000)
    assert run(10_000) - before < 4096
