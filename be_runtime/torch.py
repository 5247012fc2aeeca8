"""A module's functions for PyTorch's tensors, without JAX: ``functions(module).f(x, alpha=2)``."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from be_runtime.call.attributes import with_defaults
from be_runtime.dtypes import BY_NAME, DType
from be_runtime.errors import ArgumentError
from be_runtime.foreign import ArrayParts, ForeignFunction, ForeignFunctions, bind
from be_runtime.signature.model import Role

if TYPE_CHECKING:
    from be_runtime.load.module import LoadedModule, ModuleInfo

_NUMBERS = itertools.count()
"""For the names of operators, of which each function has one."""
_DEVICES = {"cpu": 1, "cuda": 2}


class TorchArrays:
    """PyTorch's tensors."""

    def __init__(self, platform: str) -> None:
        import torch

        self._torch, self._platform = torch, platform
        self._names = {getattr(torch, row.name): row.name for row in BY_NAME.values() if hasattr(torch, row.name)}

    def key(self, array: Any) -> Any:
        """Return all that calls with a tensor depend on, for a dictionary."""
        if not isinstance(array, self._torch.Tensor):
            return type(array)
        return array.shape, array.dtype, array.device, array.layout, array.is_conj(), array.is_neg()

    def describe(self, array: Any, what: str) -> tuple[tuple[int, ...], str, Any]:
        """Return shape, dtype and device of a tensor."""
        if not isinstance(array, self._torch.Tensor):
            raise ArgumentError(f"{what} is {array!r}, not a tensor of PyTorch")
        name = self._names.get(array.dtype)
        if name is None:
            raise ArgumentError(f"{what} is of {array.dtype}, which a kernel can't take", hints=("cast it first",))
        if array.device.type != self._platform:
            raise ArgumentError(f"{what} is on {array.device}, but the function runs on {self._platform}")
        if array.layout is not self._torch.strided or array.is_conj() or array.is_neg():
            raise ArgumentError(f"{what} is sparse, or a view by conj(); make a dense tensor, as by resolve_conj()")
        return tuple(array.shape), name, array.device

    def make(self, shape: tuple[int, ...], dtype: str, device: Any) -> Any:
        """Return a new tensor."""
        made = getattr(self._torch, dtype, None)
        if made is None:
            raise ArgumentError(f"a result is of {dtype}, which PyTorch lacks")
        return self._torch.empty(shape, dtype=made, device=device or self._platform)

    def copy(self, array: Any) -> Any:
        """Return a contiguous copy."""
        return array.detach().clone(memory_format=self._torch.contiguous_format)

    def parts(self, array: Any) -> ArrayParts:
        """Return address, shape and strides."""
        device = (_DEVICES[self._platform], array.device.index or 0)
        return ArrayParts(array.data_ptr(), tuple(array.shape), array.stride(), self._names[array.dtype], device)


class TorchFunction(ForeignFunction):
    """A function of a module, for tensors."""

    def __init__(self, info: ModuleInfo, name: str) -> None:
        signature, function, symbol = bind(info, name)
        self._platform = "cpu" if info.platform == "cpu" else "cuda"
        super().__init__(signature, function, TorchArrays(self._platform))
        self._info, self._fast = info, None
        self._rules: tuple[TorchFunction | None, TorchFunction] | None = None
        self._operator = _operator(self)
        if find_spec("tvm_ffi") is not None:
            import tvm_ffi

            self._fast = tvm_ffi.load_module(str(info.path)).get_function(symbol.removeprefix("__tvm_ffi_"))
        elif self._platform == "cuda":
            raise ArgumentError(f"{signature.label} runs on a GPU", hints=("pip install apache-tvm-ffi",))

    def __call__(self, *arrays: Any, **attributes: Any) -> Any:
        """Call the function with tensors by position and attributes by name, and return new tensors."""
        import torch

        wanted = torch.is_grad_enabled() and any(
            isinstance(each, torch.Tensor) and each.requires_grad for each in arrays
        )
        if not wanted:
            if torch.compiler.is_compiling() and not self.signature.has_optional_results:
                made = self._operator(list(arrays), repr(attributes))
                return made[0] if len(made) == 1 else tuple(made)
            return self.run(arrays, attributes)
        if self._rules is None:
            raise ArgumentError(
                f"{self.signature.label} has no derivative, but an argument requires one",
                hints=("pass x.detach(), call it under torch.no_grad(), or give it a rule by defvjp",),
            )
        return _differentiable(self, self._rules, arrays, attributes)

    def run(self, arrays: Sequence[Any], attributes: dict[str, Any]) -> Any:
        """Call the function outside of ``torch.compile`` and ``torch.autograd``."""
        return super().__call__(*arrays, **attributes)

    def call(self, arguments: Sequence[Any], device: Any) -> None:
        """Call the function in C on the current stream of the tensors' device."""
        if self._fast is None or any(isinstance(each, ArrayParts | DType) for each in arguments):
            super().call(arguments, device)
        elif self._platform == "cuda":
            with self.arrays._torch.cuda.device(device):  # type: ignore[attr-defined]  # noqa: SLF001
                self._fast(*arguments)
        else:
            self._fast(*arguments)

    def defvjp(self, forward: str | None, backward: str) -> None:
        """Give the function a backward rule of entry points of its module, as `KernelFunction.defvjp` does.

        Parameters
        ----------
        forward : str or None
            Entry point that returns the results and residuals; None if the backward rule needs the inputs alone.
        backward : str
            Entry point that takes the residuals (the inputs, if `forward` is None) and the cotangents of the results,
            optionally after the inputs, and returns the cotangent of each input of floats.
        """
        ahead = None if forward is None else TorchFunction(self._info, forward)
        self._rules = (ahead, TorchFunction(self._info, backward))


def _operator(function: TorchFunction) -> Any:
    """Return the operator of PyTorch's that ``torch.compile`` puts into its programs in place of a call.

    Its second argument is the text of the attributes, since operators have no dictionaries.
    """
    import torch

    def run(arrays: Sequence[Any], attributes: str) -> list[Any]:
        return _listed(function.run(arrays, ast.literal_eval(attributes)))

    def describe(arrays: Sequence[Any], attributes: str) -> list[Any]:
        return function.empty_results(arrays, ast.literal_eval(attributes))

    identifier = f"{re.sub('[^A-Za-z0-9_]', '_', function.signature.label)}_{next(_NUMBERS)}"
    schema = "(Tensor?[] arrays, str attributes) -> Tensor[]"
    made = torch.library.custom_op(f"be_runtime::{identifier}", run, mutates_args=(), schema=schema)
    made.register_fake(describe)
    return made


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple) else [results]


def _differentiable(
    function: TorchFunction, rules: tuple[TorchFunction | None, TorchFunction], arrays: Any, attributes: dict[str, Any]
) -> Any:
    """Call a function inside ``torch.autograd``."""
    import torch

    ahead, back = rules
    every = with_defaults(function.signature.with_role(Role.ATTR), attributes)
    count = len(function.signature.with_role(Role.RET))

    def named(rule: TorchFunction) -> dict[str, Any]:
        return {name: every[name] for name in rule.signature.attribute_names if every.get(name) is not None}

    class Rule(torch.autograd.Function):  # type: ignore[misc, unused-ignore]  # Any without PyTorch
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            made = _listed(function(*inputs, **attributes) if ahead is None else ahead(*inputs, **named(ahead)))
            residuals = list(inputs) if ahead is None else made[count:]
            takes_inputs = len(back.signature.with_role(Role.ARG)) == len(inputs) + len(residuals) + count
            ctx.save_for_backward(*(inputs if takes_inputs and ahead is not None else ()), *residuals)
            ctx.floats = [each.is_floating_point() or each.is_complex() for each in inputs]
            ctx.shapes = [(each.shape, each.dtype, each.device) for each in made[:count]]
            return made[0] if count == 1 else tuple(made[:count])

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
        def backward(ctx: Any, *cotangents: Any) -> Any:
            filled = [
                torch.zeros(shape, dtype=dtype, device=device) if each is None else each.contiguous()
                for each, (shape, dtype, device) in zip(cotangents, ctx.shapes, strict=True)
            ]
            found = iter(_listed(back(*ctx.saved_tensors, *filled, **named(back))))
            return tuple(next(found) if is_float else None for is_float in ctx.floats)

    return Rule.apply(*arrays)


def functions(module: LoadedModule) -> ForeignFunctions:
    """Return the functions of a module for tensors of PyTorch.

    A function takes tensors by position and attributes by name, and returns new tensors. The arg_spec declares their
    shapes and dtypes. Tensors must be contiguous and on the device that the module is for. A function's
    ``defvjp(forward, backward)`` takes names of entry points and gives it a derivative in ``torch.autograd``.

    Parameters
    ----------
    module : CompiledModule
        Loaded module. With ``auto_register=False``, neither its load nor its calls import JAX.

    Returns
    -------
    object
        Object whose attributes and items are the functions: ``ops.scale``, ``ops["scale"]``.

    Raises
    ------
    ArgumentError
        At the first use of a function: the module is for GPUs, and ``apache-tvm-ffi`` is not installed.

    See Also
    --------
    - :doc:`/other-frameworks`: tensors, derivatives and ``torch.compile``.

    Examples
    --------
    >>> import be_runtime.torch
    >>> import torch  # doctest: +SKIP
    >>> module = be_runtime.load_cpp_file("scale.cc", auto_register=False)  # doctest: +SKIP
    >>> ops = be_runtime.torch.functions(module)  # doctest: +SKIP
    >>> ops.scale(torch.ones(3), by=2)  # doctest: +SKIP
    """
    return ForeignFunctions(module, TorchFunction)
