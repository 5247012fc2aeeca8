"""A module's functions for PyTorch's tensors, without JAX: ``functions(module).f(x, alpha=2)``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from be_runtime.call.attributes import known_dtype, with_defaults
from be_runtime.call.compiled_function import OfThisProcess
from be_runtime.call.resolve import WANT, Export, asked_results
from be_runtime.dtypes import BY_NAME, DType
from be_runtime.errors import ArgumentError
from be_runtime.foreign import ArrayParts, ForeignFunction, ForeignFunctions, Functions, Plan, Row
from be_runtime.jax.rules import BoundRule, is_inexact
from be_runtime.signature.model import Role
from be_runtime.torch.derivatives import Call, ruled_class
from be_runtime.torch.operators import attribute_text, call_operator, derived_operator

if TYPE_CHECKING:
    from be_runtime.call.function import KernelFunction
    from be_runtime.signature.model import Param

_DEVICES = {"cpu": 1, "cuda": 2}
_INSTALL = "pip install 'brainevent-toolchain[tvm-ffi]'"


class TorchArrays:
    """The `be_runtime.foreign.Arrays` of PyTorch."""

    def __init__(self, platform: str) -> None:
        import torch

        self._torch, self._platform, self._tensor = torch, platform, torch.Tensor
        self._names = {getattr(torch, row.name): row.name for row in BY_NAME.values() if hasattr(torch, row.name)}
        self._is_tracing = torch.jit.is_tracing

    def key(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """Return the properties of inputs on which a call depends, as a key of a dictionary."""
        tensor, key = self._tensor, []
        for x in given:  # faster than a comprehension
            if isinstance(x, tensor):
                shape = x.shape or self._is_tracing()  # torch.jit.trace makes a tensor of each size
                key.append((x.__class__, shape, x.dtype, x.device, x.requires_grad, x.is_conj(), x.is_neg()))
            else:
                key.append(x.__class__)
        return tuple(key)

    def describe(self, array: Any, what: str) -> tuple[tuple[int, ...], str, Any]:
        """Return the shape, dtype and device of a tensor."""
        if isinstance(array, self._torch.fx.Proxy):
            hints: tuple[str, ...] = ("use torch.compile or torch.export", "or keep the call whole by torch.fx.wrap")
            raise ArgumentError(f"{what} is {array!r} of torch.fx's symbolic tracing, not a tensor", hints=hints)
        if not isinstance(array, self._tensor):
            raise ArgumentError(f"{what} is {array!r}, not a tensor of PyTorch")
        if array.is_nested:
            raise ArgumentError(f"{what} is a nested tensor", hints=("pass each of x.unbind(), or a padded tensor",))
        if array.layout is not self._torch.strided:
            raise ArgumentError(f"{what} is a tensor with {array.layout}, not dense", hints=("pass x.to_dense()",))
        name = self._names.get(array.dtype)
        if name is None:
            hints = ("pass x.dequantize()",) if array.is_quantized else ("cast it first",)
            raise ArgumentError(f"{what} is of {array.dtype}, which a kernel can't take", hints=hints)
        if array.device.type != self._platform:
            text = f"{what} is on {array.device}, but the function runs on {self._platform}"
            move = f"pass x.to({self._platform!r})"
            raise ArgumentError(text, hints=("give it memory by to_empty() or torch.empty" if array.is_meta else move,))
        if array.is_conj() or array.is_neg():
            raise ArgumentError(f"{what} is a view by conj()", hints=("pass x.resolve_conj().resolve_neg()",))
        return tuple(array.shape), name, array.device

    def dtype(self, name: str) -> Any:
        """Return the PyTorch dtype with a name."""
        made = getattr(self._torch, name, None)
        if made is None:
            raise ArgumentError(f"a result is of {name}, which PyTorch lacks")
        return made

    def make(self, rows: Sequence[Row | None], given: Sequence[Any], device: Any) -> list[Any]:
        """Return new tensors. A tensor like another one is made in half the time."""
        empty, empty_like, place = self._torch.empty, self._torch.empty_like, device or self._platform
        made: list[Any] = []
        for row in rows:
            if row is None:
                made.append(None)
                continue
            shape, dtype, like = row
            made.append(empty(shape, dtype=dtype, device=place) if like is None else empty_like(given[like]))
        return made

    def copy(self, array: Any) -> Any:
        """Return a contiguous copy of a tensor."""
        return array.detach().clone(memory_format=self._torch.contiguous_format)

    def fit(self, array: Any) -> Any:
        """Return a tensor that a kernel can take, which is the tensor itself or a copy."""
        if not isinstance(array, self._tensor):
            return array
        plain = array.resolve_conj().resolve_neg().contiguous()
        is_fake = type(array) is not self._tensor or self._torch.compiler.is_compiling()
        return plain if is_fake or plain.data_ptr() % 16 == 0 else plain.clone()

    def parts(self, array: Any) -> ArrayParts:
        """Return the address, shape, strides, dtype and device of a tensor."""
        device = (_DEVICES[array.device.type], array.device.index or 0)
        return ArrayParts(array.data_ptr(), tuple(array.shape), array.stride(), self._names[array.dtype], device)


class TorchFunction(ForeignFunction):
    """A function of a module, for tensors on one platform.

    Parameters
    ----------
    function : KernelFunction
        The function for JAX, which has the derivative rules.
    export : Export
    """

    arrays: TorchArrays

    def __init__(self, function: KernelFunction[..., Any], export: Export) -> None:
        import torch
        from torch.autograd import forward_ad
        from torch.utils import _python_dispatch

        self._platform = "cpu" if export.platform == "cpu" else "cuda"
        super().__init__(export, TorchArrays(self._platform))
        self._torch, self._is_compiling, self._modes = torch, torch.compiler.is_compiling, _python_dispatch
        self._count_modes = torch._C._len_torch_dispatch_stack  # noqa: SLF001 - no public name
        self.is_grad_enabled = torch.is_grad_enabled
        self._has_transforms, self._forward_mode = torch._C._are_functorch_transforms_active, forward_ad  # noqa: SLF001
        self._function, self._fast = function, None
        self._operator, self._ruled = call_operator(self), ruled_class()
        self._derived = derived_operator(self)
        self._plain = frozenset([torch.Tensor, torch.nn.Parameter])
        if find_spec("tvm_ffi") is not None:
            import tvm_ffi

            name = export.symbol.removeprefix("__tvm_ffi_")
            self._fast = tvm_ffi.load_module(str(export.library)).get_function(name)
        elif self._platform == "cuda":
            raise ImportError(f"{self.__qualname__} runs on a GPU, and TVM-FFI finds its stream\nhint: {_INSTALL}")

    def __call__(self, *arrays: Any, **attributes: Any) -> Any:
        """Call the function with tensors by position and attributes by name, and return new tensors."""
        given: Sequence[Any] = arrays
        if self._has_numbers:
            given, attributes = self._with_numbers(arrays, attributes)
            if self._platform == "cuda":
                given = self._as_tensors(given)
        plan = None
        if not (is_compiling := self._is_compiling()):
            self.refuse_transforms(given)
        elif self._forward_mode._current_level >= 0:  # noqa: SLF001 - no public name
            text = f"{self.__qualname__}: a compiled program loses the tangents of forward mode"
            raise ArgumentError(text, hints=("use torch.autograd in place of jvp",))
        # The flag is of all threads, and false if another thread leaves its mode first; the number is without modes of
        # pre_dispatch.
        is_in_mode = not is_compiling and (self._modes._is_in_torch_dispatch_mode or self._count_modes() != 0)  # noqa: SLF001
        if is_compiling or (is_in_mode and not self._torch.jit.is_tracing()):
            self._refuse_gradients(attributes)
            route = self.route(given) or "operator"
        else:
            plan = self.plan(given, attributes)
            route = plan.route
            if not route:
                return self.run(given, plan)
        if route == "derivative" and self.is_grad_enabled():
            return self._differentiable(self._as_tensors(given), attributes, plan)
        if route == "derivative" and plan is not None and self._plain.issuperset(map(type, given)):
            return self.run(given, plan)
        return self._by_operator(self._operator, self._as_tensors(given), attributes)

    def refuse_transforms(self, given: Sequence[Any]) -> None:
        """Raise an error for a tensor of ``torch.func`` or of forward mode, since a call would lose its other parts."""
        if not self._has_transforms() and self._forward_mode._current_level < 0:  # noqa: SLF001 - no public name
            return
        for number, each in enumerate(given):
            if isinstance(each, self._torch.Tensor) and (
                self._torch.func.debug_unwrap(each) is not each
                or self._forward_mode.unpack_dual(each).tangent is not None
            ):
                raise ArgumentError(
                    f"{self.__qualname__}: argument {number} is a tensor of torch.func or of forward mode",
                    hints=("use torch.autograd in place of grad and jvp", "and, in place of vmap, axes [... n]"),
                )

    def route(self, given: Sequence[Any]) -> str:
        """Return the kind of a call, ``"operator"`` for other classes of tensors, ``"derivative"``, or empty."""
        tensors = [each for each in given if isinstance(each, self._torch.Tensor)]
        if any(each.requires_grad for each in tensors):
            return "derivative"
        return "" if self._plain.issuperset(map(type, tensors)) else "operator"

    def _as_tensors(self, given: Sequence[Any]) -> list[Any]:
        """Return all inputs, with each number converted to a tensor."""
        if not self._has_numbers:
            return list(given)
        device = next((each.device for each in given if isinstance(each, self._torch.Tensor)), self._platform)
        return [
            self._torch.tensor(value, dtype=self.arrays.dtype(known_dtype(param).name), device=device)
            if isinstance(value, bool | int | float)
            else value
            for param, value in zip(self._args, given, strict=False)
        ] + [*given[len(self._args) :]]

    def call(self, arguments: Sequence[Any], device: Any) -> None:
        """Call the C function on the current stream of the tensors' device."""
        if self._fast is None:
            super().call(arguments, device)
        elif self._platform == "cuda" and device is not None and device.index != self._torch.cuda.current_device():
            with self._torch.cuda.device(device):
                self._fast(*arguments)
        else:
            self._fast(*arguments)

    def value(self, param: Param, converted: Any) -> Any:
        """Convert an attribute to an argument of the C function."""
        made = super().value(param, converted)
        if isinstance(made, ArrayParts):
            numbers = bytearray(converted.data)
            dtype = self.arrays.dtype(made.dtype)
            return self._torch.frombuffer(numbers, dtype=dtype) if numbers else self._torch.empty(0, dtype=dtype)
        if isinstance(made, DType) and self._fast is not None:
            import tvm_ffi

            return tvm_ffi.dtype(made.name)
        return made

    def _by_operator(self, operator: Any, given: Sequence[Any], attributes: dict[str, Any]) -> Any:
        """Call an operator, which ``torch.compile``, dispatch modes and tensor subclasses can intercept."""
        found = iter(operator(list(given), attribute_text(attributes)))
        want = attributes.get(WANT, ())
        asked = asked_results(self.__qualname__, self._rets, None, (want,) if isinstance(want, str) else want)
        every = [next(found) if is_asked else None for is_asked in asked]
        return every[0] if len(every) == 1 else tuple(every)

    def _differentiable(self, given: list[Any], attributes: dict[str, Any], plan: Plan | None) -> Any:
        """Call the function inside ``torch.autograd``; calls with one plan and unchanged rules share a `Call`."""
        rules = self._function.derivative
        if plan is None and (rules.forward is None or rules.forward.is_kernel):
            return self._by_operator(self._derived, given, attributes)
        given += [None] * (len(self._args) - len(given))  # rules also get the optional inputs that the call omits
        kept_rules, call = (None, None) if plan is None else plan.kept.get("call", (None, None))
        if kept_rules is not rules:
            call = self.ruled(given, attributes, plan)
            if plan is not None:
                plan.kept["call"] = rules, call
        return self._ruled.apply(call, *given)

    def ruled(self, given: Sequence[Any], attributes: dict[str, Any], plan: Plan | None = None) -> Call:
        """Bind the function's current derivative rules to a call.

        Raises
        ------
        ArgumentError
            An input requires a gradient, and the function has no rule for it.
        """
        label, rules = self.__qualname__, self._function.derivative
        every = {**attributes, **with_defaults(self._attrs, attributes)}
        forward, backward = (
            None if rule is None else rule.bound(label, every, None) for rule in (rules.forward, rules.backward)
        )
        transposes = {index: rule.bound(label, every, None) for index, rule in rules.transposes}
        moving = [index for index, each in enumerate(given) if each is not None and each.requires_grad]
        if backward is None and not transposes.keys() >= set(moving):
            where = f" with respect to argument {moving[0]}" if transposes else ""
            raise ArgumentError(
                f"{label} has no derivative{where}, but an argument requires one",
                hints=("give it a rule by defvjp", "or pass x.detach(), or call it under torch.no_grad()"),
            )
        plain = plan if self._plain.issuperset(type(each) for each in given if each is not None) else None
        direct = None if plain is None or forward is not None else self._direct(backward, given)
        return Call(self, attributes, len(self._rets), moving, forward, backward, transposes, plain, direct)

    def _direct(self, backward: BoundRule | None, given: Sequence[Any]) -> BoundRule | None:
        """Return the rule as a call of its kernel in C, which takes half the time; None if that is not possible."""
        if backward is None or not backward.rule.is_kernel or not all(x is not None and is_inexact(x) for x in given):
            return None
        kernel, results = backward.rule.function.in_torch(), len(self._rets)  # type: ignore[attr-defined]
        is_direct = (
            isinstance(kernel, TorchFunction)
            and not kernel.signature.has_optional_results
            and len(kernel.signature.with_role(Role.RET)) == len(given)
            and backward.rule.inputs in (results, results + len(given))
        )
        if not is_direct:
            return None
        return dataclasses.replace(backward, rule=backward.rule._replace(function=kernel.straight))

    def _new_plan(self, given: Sequence[Any], attributes: Mapping[str, Any]) -> Plan:
        if self._torch.jit.is_tracing():
            raise ArgumentError(
                f"{self.__qualname__}: torch.jit.trace can't record the call",
                hints=("use torch.export or torch.compile",),
            )
        self._refuse_gradients(attributes)
        return super()._new_plan(given, attributes)

    def _refuse_gradients(self, attributes: Mapping[str, Any]) -> None:
        """Raise an error for an attribute that is a tensor with a gradient, which the call would lose."""
        for name, value in attributes.items():
            if isinstance(value, self._torch.Tensor) and value.requires_grad:
                raise ArgumentError(
                    f"{self.__qualname__}: {name} requires a gradient, but attributes have none",
                    hints=(f"pass {name}.item()", "or declare an input, arg[], whose cotangent the rule gives"),
                )

    def straight(self, *arrays: Any, **attributes: Any) -> Any:
        """Call the function with plain tensors, outside of ``torch.autograd``."""
        return self.run(arrays, self.plan(arrays, attributes))


class PlatformFunction(OfThisProcess):
    """A function for CPU and GPU, of which the first tensor's device selects one.

    Parameters
    ----------
    functions : mapping of str to TorchFunction
        Functions by PyTorch's name of the platform.
    """

    def __init__(self, functions: Mapping[str, TorchFunction]) -> None:
        self._functions = dict(functions)
        first = next(iter(functions.values()))
        self.__name__, self.__qualname__, self.__doc__ = first.__name__, first.__qualname__, first.__doc__

    def __call__(self, *arrays: Any, **attributes: Any) -> Any:
        """Call the function with tensors by position and attributes by name, and return new tensors."""
        platform = next((each.device.type for each in arrays if hasattr(each, "device")), "cpu")
        function = self._functions.get(platform) or next(iter(self._functions.values()))
        return function(*arrays, **attributes)


def torch_function(function: KernelFunction[..., Any]) -> TorchFunction | PlatformFunction:
    """Make the PyTorch function of a module's function.

    Raises
    ------
    ArgumentError
        The function belongs to no module, or only JAX can call it.
    """
    made = {
        "cpu" if export.platform == "cpu" else "cuda": TorchFunction(function, export) for export in function.exports()
    }
    return PlatformFunction(made) if len(made) > 1 else next(iter(made.values()))


def functions(module: Functions) -> ForeignFunctions:
    """Return a module's functions in a form that takes PyTorch tensors.

    A function takes contiguous tensors by position and attributes by name, and returns new tensors. The arg_spec
    declares the shapes and dtypes of these tensors. The tensors must be on a device of the module's platform.
    ``torch.autograd`` uses the derivative rules that `KernelFunction.defvjp` and `KernelFunction.deftranspose` set. The
    functions of the module itself, such as ``module.scale``, take tensors or JAX arrays, and are slower to call with
    tensors.

    Parameters
    ----------
    module : CompiledModule or PlatformModule
        Loaded module. If you load the module with ``auto_register=False``, neither the load nor a call imports JAX.

    Returns
    -------
    object
        Object whose attributes and items are the functions: ``ops.scale``, ``ops["scale"]``.

    Raises
    ------
    TypeError
        `module` is not a loaded module.
    ImportError
        At the first use of a function of a GPU module: ``apache-tvm-ffi`` is not installed. Functions of a CPU module
        work without the package.

    See Also
    --------
    - :doc:`/other-frameworks`: tensors, derivatives and ``torch.compile``.

    Examples
    --------
    >>> import be_runtime
    >>> import be_runtime.torch
    >>> import torch  # doctest: +SKIP
    >>> module = be_runtime.load_cpp_file("scale.cc", auto_register=False)  # doctest: +SKIP
    >>> ops = be_runtime.torch.functions(module)  # doctest: +SKIP
    >>> ops.scale(torch.ones(3), by=2)  # doctest: +SKIP
    """
    return ForeignFunctions(module, methodcaller("in_torch"))
