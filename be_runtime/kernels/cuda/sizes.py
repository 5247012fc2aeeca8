"""Sizes of a launch, which a caller may give as arithmetic over axes or as functions of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from be_runtime.call.array_function import evaluate, known_outs
from be_runtime.call.kernel_signature import check_names, integers
from be_runtime.call.resolve import CallSignature, Resolved
from be_runtime.call.shapes import compute
from be_runtime.errors import ArgumentError
from be_runtime.expressions import Expression, parse_expression
from be_runtime.kernels.cuda.describe import Geometry

Extent = int | str
Size = Extent | Sequence[Extent] | Callable[..., int | Sequence[int]]
"""A size of a launch, as a caller may give it."""


class Sizes(NamedTuple):
    """The sizes of a launch.

    Parameters
    ----------
    label : str
        Name of the kernel, for messages.
    given : mapping of str to object
        Sizes by the names of their arguments; texts have become expressions.
    make : callable
        Function of the sizes and ``is_empty`` that checks them.
    """

    label: str
    given: Mapping[str, Any]
    make: Callable[..., Geometry]

    def check(self, outs: Any) -> None:
        """Check the sizes where they are the same for all calls."""
        if not any(callable(each) or _expressions(each) for each in self.given.values()):
            known = known_outs(outs)
            self.make(**self.given, is_empty=known is not None and not any(spec.size for spec in known))

    def geometry(self, call: Resolved) -> Geometry:
        """Make the geometry of one call.

        Raises
        ------
        ArgumentError
            A size is not allowed; the message has the expression that it is from, and the values in it.
        """
        numbers = {name: self._numbers(name, size, call) for name, size in self.given.items()}
        try:
            return self.make(**numbers, is_empty=call.is_empty)
        except ArgumentError as error:
            sources = [_source(each, call.values) for size in self.given.values() for each in _expressions(size)]
            if not sources:
                raise
            raise ArgumentError(f"{self.label}: {error.message}; {', '.join(sources)}", hints=error.hints) from None

    def local(self, geometry: Geometry) -> tuple[str, ...] | None:
        """Write the numbers of a geometry as arithmetic over the axes of one device; None if functions compute them."""
        if any(callable(each) for each in self.given.values()):
            return None
        texts = list(map(str, geometry.encode()))
        for name, start in _PLACES.items():
            for index, part in enumerate(_parts(self.given.get(name)), start):
                if isinstance(part, Expression):
                    per_block = name == "launch_dims"
                    texts[index] = f"ceil(({part})/{geometry.block[index]})" if per_block else part.text
        return tuple(texts)

    def _numbers(self, name: str, size: Any, call: Resolved) -> Any:
        if isinstance(size, Expression):
            return compute(f"{self.label}: {name}", size, call.values)
        if isinstance(size, list):
            return [self._numbers(name, each, call) for each in size]
        return evaluate(f"{name} of {self.label}", size, call.operands)


def read_sizes(
    label: str, sizes: Mapping[str, Any], signature: CallSignature | None, make: Callable[..., Geometry]
) -> Sizes:
    """Read the sizes of a launch.

    Raises
    ------
    ArgumentError
        There is arithmetic, but no signature names the axes.
    SpecError
        A text is not arithmetic over the signature's axes.
    """
    given = {name: _read(f"{label}: {name}", size, signature) for name, size in sizes.items()}
    return Sizes(label, given, make)


def _read(what: str, size: Any, signature: CallSignature | None) -> Any:
    if isinstance(size, tuple | list):
        parts = [_read(what, each, signature) for each in size]
        return parts if _expressions(parts) else size
    if not isinstance(size, str):
        return size
    if signature is None:
        raise ArgumentError(
            f"{what}={size!r} is arithmetic over axes, and there is no signature that names them",
            hints=("pass a signature, as in signature='arg[n] ret[n]:like(0)'",),
        )
    try:
        expression = parse_expression(size)
    except ValueError as error:
        raise ArgumentError(f"{what}={size!r}: {error}") from None
    check_names(what, expression, integers(signature.params))
    return expression


_PLACES = {"grid": 0, "launch_dims": 0, "block": 3, "shared_mem": 6}
"""Places of sizes among the numbers of `Geometry.encode`; a grid that follows from `launch_dims` is at its place."""


def _parts(size: Any) -> list[Any]:
    return size if isinstance(size, list) else [size]


def _expressions(size: Any) -> list[Expression]:
    """Return the expressions of one size; of several numbers, those of each."""
    return [each for each in _parts(size) if isinstance(each, Expression)]


def _source(expression: Expression, values: Mapping[str, int]) -> str:
    """Describe an expression and the values in it."""
    return f"{expression} with {', '.join(f'{name} = {values[name]}' for name in expression.names)}"
