"""Integer arithmetic over axes in an arg_spec: ``2*n+1``, ``n//2``, ``ceil(n/256)``, ``attr.bins``.

An expression is a Python expression of integers, names, ``attr.NAME``, parentheses, ``+``, ``-``, ``*``, ``//``, ``/``,
``%``, ``min(a,b)``, ``max(a,b)``, ``ceil(a/b)``, ``sizeof(DTYPE)``, and ``f()`` for a C++ function of the sources.
``//`` rounds towards minus infinity, and a division with ``/`` must leave no remainder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from operator import add, floordiv, mod, mul, sub
from typing import Any

from be_runtime.dtypes import BY_NAME
from be_toolchain.named import NamedTuple

Node = int | str | tuple[str, tuple["Node", ...]]
"""A number, a name, or an operation and its operands. ``attr.bins``, ``sizeof(T)`` and ``f()`` are names."""

_LONGEST = 200
_WORDS = r"(?:[^\W\d]\w*|(?:0[xX][0-9a-fA-F]+|[0-9][0-9_]*)(?![\w.])|[\s.+\-*/%(),])*"
"""Text that Python parses without a warning: no strings, and no letters directly after numbers."""
_LARGEST = 2**63 - 1
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Div: "/", ast.Mod: "%"}


class Expression(NamedTuple):
    """One expression, as its author wrote it and as a tree."""

    text: str
    node: Node

    def __str__(self) -> str:
        return self.text

    @property
    def names(self) -> tuple[str, ...]:
        """The axes and attributes in the expression, in the order of their first use."""
        return tuple(dict.fromkeys(_names(self.node)))


def parse_expression(text: str) -> Expression:
    """Parse an expression.

    Raises
    ------
    ValueError
        The text is not an expression. The message has the text and a caret.

    Examples
    --------
    >>> parse_expression("2*n+1").node
    ('+', (('*', (2, 'n')), 1))
    >>> parse_expression("n**2")
    Traceback (most recent call last):
    ValueError: this is not arithmetic over axes
        n**2
        ^
    """
    stripped = re.sub(r"\s+", " ", text.strip())
    if len(stripped) > _LONGEST:
        raise ValueError(f"an expression has at most {_LONGEST} characters")
    match = re.match(_WORDS, stripped)
    if match is None or match.end() < len(stripped):
        raise _bad(stripped, match.end() if match else 0)
    try:
        tree = ast.parse(stripped, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise _bad(stripped, (getattr(error, "offset", 1) or 1) - 1) from None
    return Expression(stripped.replace(" ", ""), _node(tree, stripped))


def _bad(text: str, column: int) -> ValueError:
    return ValueError(f"this is not arithmetic over axes\n    {text}\n    {' ' * min(column, len(text))}^")


def _node(tree: ast.expr, text: str) -> Node:
    """Convert Python's syntax tree; raise an error for other kinds of expressions."""
    match tree:
        case ast.Constant(value=int(value)) if not isinstance(value, bool) and value <= _LARGEST:
            return value
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="attr"), attr=name):
            return f"attr.{name}"
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return "-", (0, _node(operand, text))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _OPERATORS[type(operator)], (_node(left, text), _node(right, text))
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]):
            return _call(function, arguments, tree, text)
    raise _bad(text, tree.col_offset)


def _call(function: str, arguments: list[ast.expr], tree: ast.expr, text: str) -> Node:
    match function, arguments:
        case "ceil", [ast.BinOp(left=left, op=ast.Div(), right=right)]:
            return "ceil", (_node(left, text), _node(right, text))
        case (("min" | "max"), [first, second]):
            return function, (_node(first, text), _node(second, text))
        case "sizeof", [ast.Name(id=name)] if name not in BY_NAME:
            return f"sizeof({name})"
        case "sizeof", [ast.Name(id=name)] if BY_NAME[name].size_bytes:
            return BY_NAME[name].size_bytes
        case _, [] if function not in ("ceil", "min", "max", "sizeof"):
            return f"{function}()"
    raise _bad(text, tree.col_offset)


def _names(node: Node) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, tuple):
        for operand in node[1]:
            yield from _names(operand)


def _exact(first: Any, second: Any) -> Any:
    if first % second != 0:
        raise ValueError(f"{first} is not {'' if isinstance(first, int) else 'known to be '}divisible by {second}")
    return first // second


def _smaller(first: Any, second: Any) -> Any:
    if isinstance(first, int):
        return min(first, second) if isinstance(second, int) else second.rmin(first)
    return first.min(second)


def _larger(first: Any, second: Any) -> Any:
    if isinstance(first, int):
        return max(first, second) if isinstance(second, int) else second.rmax(first)
    return first.max(second)


_EVALUATED: dict[str, Callable[[Any, Any], Any]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "//": floordiv,
    "%": mod,
    "/": _exact,
    "ceil": lambda first, second: -(-first // second),
    "min": _smaller,
    "max": _larger,
}


def evaluate(expression: Expression, values: Mapping[str, Any]) -> Any:
    """Return the value of an expression.

    A value may be a symbolic dimension of ``jax.export``, which has all operators; then the result may be symbolic, and
    its bounds are not checked.

    Raises
    ------
    ValueError
        A divisor is zero, ``/`` does not divide, or the result is below 0 or above 2**63 - 1.

    Examples
    --------
    >>> evaluate(parse_expression("ceil(n/256)"), {"n": 257})
    2
    """
    try:
        number = _value(expression.node, values)
    except ZeroDivisionError:
        raise ValueError("it divides by zero") from None
    if isinstance(number, int) and not 0 <= number <= _LARGEST:
        raise ValueError(f"it is {number}")
    return number


def _value(node: Node, values: Mapping[str, Any]) -> Any:
    if isinstance(node, int):
        return node
    if isinstance(node, str):
        return values[node]
    operation, operands = node
    first, second = (_value(operand, values) for operand in operands)
    return _EVALUATED[operation](first, second)
