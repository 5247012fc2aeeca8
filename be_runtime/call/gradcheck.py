"""`gradcheck`: compare the derivatives of a function with finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError, GradientError
from be_runtime.frames import public
from be_runtime.jax import port, primitive

_STEPS = {2: 2e-2, 4: 4e-3, 8: 1e-6}
"""Steps by the bytes of an element: about the cube root of its precision, the optimum for central differences."""

_TOLERANCES = {2: 1e-1, 4: 1e-2, 8: 1e-6}


@public
def gradcheck(
    function: Callable[..., Any],
    args: Sequence[Any],
    *,
    rtol: float | None = None,
    atol: float | None = None,
    elements: int = 200,
    seed: int = 0,
    **attributes: Any,
) -> None:
    """Compare a function's derivatives with central differences.

    The check sums the results with random weights, and computes the gradient of this sum with ``jax.vjp``. For each
    element of an input, or for a random sample of the elements of a large input, the check compares the gradient with
    the central difference. The sums are computed in float64.

    Parameters
    ----------
    function : callable
        Function of arrays, such as ``ops.f``.
    args : sequence of array
        Inputs, of any shapes. Only derivatives with respect to floating-point inputs are compared.
    rtol : float, optional
        Tolerance relative to the central difference. The default is 1e-1 for 16-bit inputs, 1e-2 for float32 and
        1e-6 for float64.
    atol : float, optional
        Additional tolerance. The check multiplies this number by the largest absolute value in the input's gradient, or
        by 1 if the largest value is below 1. The defaults are the defaults of `rtol`.
    elements : int, default 200
        Maximum number of elements of an input that are compared. From a larger input, this number of elements is drawn
        at random.
    seed : int, default 0
        Seed of the weights and of the drawn elements.
    **attributes
        Keyword arguments of `function`.

    Raises
    ------
    GradientError
        A derivative differs by more than the sum of the two tolerances. The error names the argument, the element, and
        the two values. GradientError is a subclass of AssertionError.
    ArgumentError
        No input has a floating-point dtype, or `args` is one array.

    See Also
    --------
    - `KernelFunction.defvjp`: give a function a derivative.
    - :doc:`/transforms`: derivatives of kernels.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> be_runtime.gradcheck(jnp.sin, [jnp.arange(3.0)])
    """
    import numpy as np

    if hasattr(args, "ndim"):
        raise ArgumentError("gradcheck takes a sequence of arrays, not one array", hints=("pass [x]",))
    random = np.random.default_rng(seed)
    arrays = [port.as_array(each) for each in args]
    moving = [
        index for index, array in enumerate(arrays) if getattr(BY_NAME.get(str(array.dtype)), "kind", "") == "float"
    ]
    name = getattr(function, "__qualname__", repr(function))
    if not moving:
        raise ArgumentError(f"{name}: gradcheck needs an argument with a floating-point dtype")

    def run(*inputs: Any) -> Any:
        return function(*inputs, **attributes)

    weights, gradients = primitive.pull_back(
        run, arrays, lambda out: port.as_array(random.standard_normal(out.shape).astype(out.dtype))
    )
    total = _WeightedSum(function, attributes, weights)
    for argument in moving:
        base, gradient = np.asarray(arrays[argument]), np.asarray(gradients[argument], np.float64)
        size = min(base.dtype.itemsize, 8)
        relative = _TOLERANCES[size] if rtol is None else rtol
        absolute = (_TOLERANCES[size] if atol is None else atol) * max(1.0, float(np.abs(gradient).max(initial=0)))
        chosen = range(base.size) if base.size <= elements else random.choice(base.size, elements, replace=False)
        worst, message = -math.inf, ""
        for flat in chosen:
            index = tuple(int(i) for i in np.unravel_index(int(flat), base.shape))
            expected, given = total.slope(arrays, argument, index), float(gradient[index])
            excess = abs(given - expected) - absolute - relative * abs(expected)
            if not excess <= 0 and not excess <= worst:  # true for NaN
                worst = excess
                message = (
                    f"{name}: the derivative with respect to argument {argument}{''.join(f'[{i}]' for i in index)} is "
                    f"{given:.6g}, but finite differences give {expected:.6g}: {abs(given - expected):.3g} off, "
                    "for a weighted sum of the results"
                )
        if message:
            raise GradientError(message)


class _WeightedSum(NamedTuple):
    """The sum of a function's results with weights, in float64."""

    function: Callable[..., Any]
    attributes: Mapping[str, Any]
    weights: Sequence[Any]

    def slope(self, arrays: Sequence[Any], argument: int, index: tuple[int, ...]) -> float:
        """Return the central difference with respect to one element of an argument."""
        import numpy as np

        base = np.asarray(arrays[argument])
        step = _STEPS[min(base.dtype.itemsize, 8)] * max(1.0, float(abs(base[index])))
        sides = []
        for sign in (1, -1):
            moved = base.copy()
            moved[index] = base[index] + sign * step
            sides.append((float(moved[index]), self.of([*arrays[:argument], moved, *arrays[argument + 1 :]])))
        (high, above), (low, below) = sides
        return (above - below) / (high - low)

    def of(self, arrays: Sequence[Any]) -> float:
        """Return the sum for some arguments."""
        import numpy as np

        results = port.flatten(self.function(*arrays, **self.attributes))[0]
        pairs = zip(self.weights, results, strict=True)
        return float(sum(np.sum(np.asarray(w, np.float64) * np.asarray(r, np.float64)) for w, r in pairs))
