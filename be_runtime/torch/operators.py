"""Make the PyTorch operators that represent calls in programs of ``torch.compile``."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from be_runtime.errors import ArgumentError
from be_runtime.torch.derivatives import listed

if TYPE_CHECKING:
    from be_runtime.torch import TorchFunction

_NUMBERS = itertools.count()
"""Numbers for the names of operators, of which each function has its own."""


def attribute_text(attributes: Mapping[str, Any]) -> str:
    """Return attributes as a text, whose format makes a number that a PyTorch program varies a constant."""
    plain = {
        name: each if type(each) in (int, float) or not hasattr(each, "tolist") else each.tolist()
        for name, each in attributes.items()
    }
    return "{" + ", ".join([f"{name!r}: {each!r}" for name, each in plain.items()]) + "}"


def _read(text: str) -> dict[str, Any]:
    """Parse the text of `attribute_text`.

    Raises
    ------
    ArgumentError
        A value is neither a number nor a text.

    Examples
    --------
    >>> _read("{'by': -inf, 'names': ('nan', 2)}")
    {'by': -inf, 'names': ('nan', 2)}
    """
    try:
        return dict(ast.literal_eval(_Floats().visit(ast.parse(text, mode="eval"))))
    except (SyntaxError, ValueError):
        raise ArgumentError(
            f"an operator of PyTorch, as in torch.compile, can't pass one of the attributes {text}",
            hints=("pass numbers, texts, or tuples of them; the name of a dtype is a text",),
        ) from None


class _Floats(ast.NodeTransformer):
    """Replaces the floats that Python writes as names, which are ``nan``, ``inf``, and imaginary ones."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(complex(node.id) if node.id.endswith("j") else float(node.id))


def call_operator(function: TorchFunction) -> Any:
    """Return the PyTorch operator that stands for a call in programs of ``torch.compile``.

    Its second argument is the text of the attributes, since operators take no dictionaries.
    """

    def run(arrays: Sequence[Any], attributes: str) -> list[Any]:
        given, named = [function.arrays.fit(each) for each in arrays], _read(attributes)
        return [each for each in listed(function.run(given, function.plan(given, named))) if each is not None]

    def describe(arrays: Sequence[Any], attributes: str) -> list[Any]:
        return [each for each in function.empty_results(arrays, _read(attributes)) if each is not None]

    made = _new_operator(function.__qualname__, run)
    made.register_fake(describe)
    return made


def derived_operator(function: TorchFunction) -> Any:
    """Make the operator of a call with derivatives, which also returns the residuals of a forward rule."""

    def run(arrays: Sequence[Any], attributes: str) -> list[Any]:
        given = [function.arrays.fit(each) for each in arrays]
        made, kept = function.ruled(given, _read(attributes)).ahead(given)
        return [*(each for each in made if each is not None), *kept]

    def keep(ctx: Any, inputs: tuple[Sequence[Any], str], output: Sequence[Any]) -> None:
        arrays, attributes = inputs
        ctx.call = function.ruled(arrays, _read(attributes))
        ctx.is_there = [each is not None for each in arrays]
        ctx.save_for_backward(*(each for each in arrays if each is not None), *output)

    def back(ctx: Any, cotangents: Sequence[Any]) -> tuple[Any, None]:
        saved = iter(ctx.saved_tensors)
        arrays = [next(saved) if is_there else None for is_there in ctx.is_there]
        made = [*saved]
        count = ctx.call.results
        given = [x.new_zeros(x.shape) if g is None else g for x, g in zip(made[:count], cotangents, strict=False)]
        return [*ctx.call.back(arrays, made[count:], given)], None

    made = _new_operator(f"{function.__qualname__}_derived", run)
    made.register_fake(run)
    made.register_autograd(back, setup_context=keep)
    return made


def _new_operator(name: str, run: Any) -> Any:
    import torch

    identifier = f"{re.sub('[^A-Za-z0-9_]', '_', name)}_{next(_NUMBERS)}"
    schema = "(Tensor?[] arrays, str attributes) -> Tensor[]"
    return torch.library.custom_op(f"be_runtime::{identifier}", run, mutates_args=(), schema=schema)
