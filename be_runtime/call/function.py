"""The function of an entry point, as an author calls it: arrays and attributes in, arrays out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from be_runtime.call.attributes import convert_attributes
from be_runtime.call.call_options import Options, check_options
from be_runtime.call.compiled_function import CompiledFunction, Converted
from be_runtime.call.resolve import CallSignature, resolve
from be_runtime.call.tracing import Targets, bind_call, default_method
from be_runtime.spec.model import Role
from be_runtime.xla import jax_port


class KernelFunction(CompiledFunction):
    """A function of JAX arrays that calls an entry point of a module.

    Parameters
    ----------
    signature : CallSignature
    targets : callable
        Function that registers the entry point's targets, and returns the names of JAX's platforms with them.
    options : Options
    """

    def __init__(
        self,
        signature: CallSignature,
        targets: Callable[[], Targets],
        options: Options | None = None,
    ) -> None:
        self._signature = signature
        self._targets = targets
        self._options = default_method(options or Options(), signature)
        super().__init__(
            signature.label.rpartition(".")[2],
            signature.label,
            signature.doc or f"The entry point {signature.label}.",
            partial(convert_attributes, signature.label, signature.with_role(Role.ATTR)),
            self._traced,
        )

    def with_options(
        self,
        *,
        vmap_method: str | None = None,
        input_output_aliases: Mapping[int, int] | None = None,
        has_side_effect: bool = False,
        ordered: bool = False,
        outs: Any = None,
        input_layouts: Sequence[Sequence[int] | None] | None = None,
        output_layouts: Sequence[Sequence[int] | None] | None = None,
    ) -> KernelFunction:
        """Return the same function with other options.

        Parameters
        ----------
        vmap_method : str, optional
            As for ``jax.ffi.ffi_call``. By default ``"broadcast_all"`` if all arrays declare leading axes, else none.
        input_output_aliases : dict of int to int, optional
            Inputs whose memory a result may use.
        has_side_effect : bool
            True to run the kernel even if its results are not used. The order of such calls is XLA's choice.
        ordered : bool
            True to run all calls with this option in the order of the program; it implies `has_side_effect`.
        outs : ShapeDtypeStruct, sequence of them, or callable, optional
            Results of all calls that don't pass `outs`.
        input_layouts, output_layouts : sequence of (sequence of int or None), optional
            Axes of each array from major to minor in memory, as for ``jax.ffi.ffi_call``.

        Returns
        -------
        KernelFunction

        Raises
        ------
        ArgumentError
            An option is not allowed.

        Examples
        --------
        >>> log = module.log.with_options(ordered=True)  # doctest: +SKIP
        """
        options = check_options(
            outs, vmap_method, input_output_aliases, has_side_effect, ordered, input_layouts, output_layouts
        )
        return KernelFunction(self._signature, self._targets, options)

    def __repr__(self) -> str:
        from be_runtime.spec import render_spec

        return f"<{self.__qualname__}: {' '.join(render_spec(self._signature.params))}>"

    def _traced(self, outs: Any, attributes: Mapping[str, Any], converted: Converted) -> Callable[..., Any]:
        """Make the function of arrays for some attributes."""
        described, targets = self._options.outs if outs is None else outs, self._targets()

        def run(*arrays: Any) -> Any:
            resolved = resolve(
                self._signature,
                arrays,
                described,
                attributes,
                as_array=jax_port.as_array,
                aliases=dict(self._options.aliases),
            )
            shown = bind_call(self.__qualname__, resolved, self._options, targets, converted)
            return shown[0] if resolved.is_single else shown

        run.__name__ = run.__qualname__ = self.__name__
        return run
