"""The sizes of a launch in the author's form: numbers, arithmetic over axes, and functions of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from be_runtime.call.array_function import evaluate, known_outs
from be_runtime.call.extents import compute
from be_runtime.call.resolve import CallSignature, Resolved
from be_runtime.call.signature import check_names, integers
from be_runtime.errors import ArgumentError
from be_runtime.kernels.geometry import Geometry
from be_runtime.signature.expressions import Expression, parse_expression

Extent = int | str
Size = Extent | Sequence[Extent] | Callable[..., int | Sequence[int]]
"""A size of a launch in a caller's form."""

_PLACES = {"grid": 0, "launch_dims": 0, "block": 3, "shared_mem": 6, "cluster": 7}
"""First indices of sizes in `Geometry.encode`; `launch_dims` determines the grid."""


class Sizes(NamedTuple):
    """The sizes of a launch.

    Parameters
    ----------
    label : str
        Name of the kernel, for messages.
    given : mapping of str to object
        Sizes by the names of their arguments; texts are parsed as expressions.
    make : callable
        Function of the sizes and ``is_empty`` that checks them and makes the geometry.
    """

    label: str
    given: Mapping[str, Any]
    make: Callable[..., Geometry]

    def check(self, outs: Any) -> None:
        """Check the sizes if they are equal for all calls."""
        if not any(callable(each) or _expressions(each) for each in self.given.values()):
            known = known_outs(outs)
            self.make(**self.given, is_empty=known is not None and not any(spec.size for spec in known))

    def names(self) -> list[str]:
        """Return the names in expressions."""
        return [name for size in self.given.values() for each in _expressions(size) for name in each.names]

    def geometry(self, call: Resolved) -> Geometry:
        """Make the geometry of one call.

        Raises
        ------
        ArgumentError
            A size is not allowed. The message has its expression and the values in it.
        """
        numbers = {name: self._numbers(name, size, call) for name, size in self.given.items()}
        try:
            return self.make(**numbers, is_empty=call.is_empty)
        except ArgumentError as error:
            texts = [
                f"{each} with {', '.join(f'{name} = {call.values[name]}' for name in each.names)}"
                for size in self.given.values()
                for each in _expressions(size)
            ]
            if not texts:
                raise
            raise ArgumentError(f"{self.label}: {error.message}; {', '.join(texts)}", hints=error.hints) from None

    def local(self, geometry: Geometry) -> tuple[str, ...] | None:
        """Write a geometry's numbers as arithmetic over one device's axes; None if functions compute the sizes."""
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
        A size is arithmetic, but no signature names the axes.
    SpecError
        A text is not arithmetic over the signature's axes.
    """
    return Sizes(label, {name: _parse(f"{label}: {name}", size, signature) for name, size in sizes.items()}, make)


def _parse(what: str, size: Any, signature: CallSignature | None) -> Any:
    if isinstance(size, tuple | list):
        parts = [_parse(what, each, signature) for each in size]
        return parts if _expressions(parts) else size
    if not isinstance(size, str):
        return size
    if signature is None:
        raise ArgumentError(
            f"{what}={size!r} is arithmetic over axes, and no signature names the axes",
            hints=("pass a signature, as in signature='arg[n] ret[n]:like(0)'",),
        )
    try:
        expression = parse_expression(size)
    except ValueError as error:
        raise ArgumentError(f"{what}={size!r}: {error}") from None
    check_names(what, expression, integers(signature.params))
    return expression


def _parts(size: Any) -> list[Any]:
    return size if isinstance(size, list) else [size]


def _expressions(size: Any) -> list[Expression]:
    """Return the expressions in a size of one or several numbers."""
    return [each for each in _parts(size) if isinstance(each, Expression)]
