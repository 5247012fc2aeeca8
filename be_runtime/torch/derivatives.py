"""Run derivative rules from ``torch.autograd``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from be_runtime.errors import ArgumentError
from be_runtime.foreign import Plan
from be_runtime.jax.rules import BoundRule, check_cotangents, is_inexact, pull_by_kernel
from be_toolchain.machine.forks import made_once
from be_toolchain.named import NamedTuple

if TYPE_CHECKING:
    from be_runtime.torch import TorchFunction


class Call(NamedTuple):
    """A call with derivatives."""

    function: TorchFunction
    attributes: dict[str, Any]
    results: int
    moving: Sequence[int]
    forward: BoundRule | None
    backward: BoundRule | None
    transposes: Mapping[int, BoundRule]
    plan: Plan | None
    direct: BoundRule | None

    def ahead(self, arrays: Sequence[Any]) -> tuple[list[Any], Any]:
        """Return the results, and the values that the backward rule needs in addition to the inputs."""
        if self.forward is None:
            if self.plan is not None:
                return listed(self.function.run(arrays[: len(arrays) - len(self.plan.absent)], self.plan)), ()
            return listed(self.function(*arrays, **self.attributes)), ()
        given = _asked(self.forward, *arrays)
        if self.forward.rule.is_kernel:
            every = listed(given)
            return every[: self.results], tuple(every[self.results :])
        if not isinstance(given, tuple) or len(given) != 2:
            raise ArgumentError(f"{self.forward} must return a pair: the results, and what the backward rule needs")
        return listed(given[0]), given[1]

    def needs_inputs(self, kept: Any) -> bool:
        """Return whether the backward rule takes the inputs in addition to the values of the forward rule."""
        if self.forward is None or self.backward is None:
            return True
        return self.backward.rule.is_kernel and self.backward.rule.inputs != len(_leaves(kept)) + self.results

    def back(self, arrays: Sequence[Any], kept: Any, cotangents: Sequence[Any]) -> list[Any]:
        """Return the cotangent of each input, or None; PyTorch's cotangents are the complex conjugates of JAX's."""
        fit = self.function.arrays.fit
        self.function.refuse_transforms(cotangents)
        found = self._pull(arrays, kept, [None if each is None else fit(each.conj()) for each in cotangents])
        return [None if each is None else each.conj() for each in found]

    def _pull(self, arrays: Sequence[Any], kept: Any, cotangents: Sequence[Any]) -> Sequence[Any]:
        if self.backward is None:
            found: list[Any] = [None] * len(arrays)
            for index in self.moving:
                rule = self.transposes[index]
                found[index] = _asked(rule, *arrays[:index], *cotangents, *arrays[index + 1 :])
                rule.check_like(f"argument {index}", arrays[index], found[index])
            return found
        if self.backward.rule.is_kernel:
            has_all = all(each is not None for each in cotangents)
            if self.direct is not None and has_all and not self.function.is_grad_enabled():
                inputs = arrays if self.direct.rule.inputs > self.results else ()
                found = listed(self.direct(*inputs, *cotangents))
            else:
                leaves = () if self.forward is None else _leaves(kept)
                found = [*pull_by_kernel(self.backward, arrays, leaves, cotangents)]
        else:
            residuals = tuple(arrays) if self.forward is None else kept
            found = _asked(self.backward, residuals, cotangents[0] if self.results == 1 else tuple(cotangents))
        return check_cotangents(self.backward, arrays, found)


@made_once(1)
def ruled_class() -> Any:
    """Return the ``torch.autograd.Function`` of all calls with derivatives."""
    import torch
    from torch.utils import _pytree

    class Ruled(torch.autograd.Function):  # type: ignore[misc, unused-ignore]  # Any without PyTorch
        @staticmethod
        def forward(ctx: Any, call: Call, *arrays: Any) -> Any:
            made, kept = call.ahead(arrays)
            inputs = arrays if call.needs_inputs(kept) else [each if each is None else _Like(each) for each in arrays]
            kept_leaves, ctx.tree = ((), None) if call.forward is None else _pytree.tree_flatten(kept)
            leaves = [*inputs, *kept_leaves]
            ctx.others = [None if isinstance(each, torch.Tensor) else (each,) for each in leaves]
            ctx.save_for_backward(*[each for each in leaves if isinstance(each, torch.Tensor)])
            ctx.call = call
            if exact := [each for each in made if each is not None and not is_inexact(each)]:
                ctx.mark_non_differentiable(*exact)
            return made[0] if call.results == 1 else tuple(made)

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            back = _pull if ctx.call.forward is None else torch.autograd.function.once_differentiable(_pull)
            return (None, *back(ctx, *cotangents))

    def _pull(ctx: Any, *cotangents: Any) -> Any:
        rest = iter(ctx.saved_tensors)
        leaves = [next(rest) if each is None else each[0] for each in ctx.others]
        count = len(leaves) if ctx.tree is None else len(leaves) - ctx.tree.num_leaves
        kept = () if ctx.tree is None else _pytree.tree_unflatten(leaves[count:], ctx.tree)
        return tuple(ctx.call.back(leaves[:count], kept, cotangents))

    return Ruled


class _Like:
    """Shape and dtype of an input whose elements no rule needs."""

    __slots__ = ("dtype", "shape")

    def __init__(self, tensor: Any) -> None:
        self.shape, self.dtype = tensor.shape, tensor.dtype


def _asked(rule: BoundRule, *arrays: Any) -> Any:
    """Call a rule, which may be a Python function that works only for JAX's arrays.

    Raises
    ------
    ArgumentError
        The rule calls JAX.
    """
    problem, cause = "returns an array of JAX", None
    try:
        found = rule(*arrays)
    except Exception as error:
        if not _is_of_jax(error):
            raise
        problem, cause = f"calls JAX with tensors of PyTorch: {error}", error
    else:
        if not any(type(each).__module__.startswith("jax") for each in listed(found)):
            return found
    raise ArgumentError(
        f"{rule} {problem}",
        hints=(
            "write it with operators and methods of both, such as g * x, and with functions of modules",
            "or name entry points as rules",
        ),
    ) from cause


def _is_of_jax(error: BaseException) -> bool:
    """Return whether a function of JAX raised an error, also if JAX has replaced its frames by a note."""
    within = error.__traceback__
    while within is not None and within.tb_frame.f_globals.get("__name__", "").partition(".")[0] != "jax":
        within = within.tb_next
    return within is not None or any("JAX has removed its" in note for note in getattr(error, "__notes__", ()))


def listed(results: Any) -> list[Any]:
    """Return one or several results as a list."""
    return list(results) if isinstance(results, tuple | list) else [results]


def _leaves(kept: Any) -> list[Any]:
    """Return the tensors that a forward rule kept, in any structure."""
    from torch.utils import _pytree

    return [each for each in _pytree.tree_leaves(kept) if each is not None]
