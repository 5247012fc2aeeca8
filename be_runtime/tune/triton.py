"""Make Triton kernels callable from JAX, including kernels with Triton's tuning decorators.

``@triton.autotune`` gives the configurations of `Tuned`; ``@triton.heuristics`` computes constants from a call.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from be_runtime import checks
from be_runtime.call.array_function import ArrayFunction, ArrayKernel
from be_runtime.call.attributes import check_options, numpy_dtype
from be_runtime.call.compiled_function import KernelTarget
from be_runtime.call.resolve import Resolved
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.frames import public
from be_runtime.jax import port, transforms
from be_runtime.jax.arrays import Value
from be_runtime.kernels.launcher import Memo
from be_runtime.kernels.parameters import check_constants
from be_runtime.kernels.sizes import Size
from be_runtime.kernels.source import number_of
from be_runtime.kernels.triton import (
    DECORATORS,
    OPTIONS,
    Declaration,
    TritonLayout,
    array_kernel,
    check_function,
    layout_of,
    parameter_names,
    source_key,
)
from be_runtime.load.process import PROCESS
from be_runtime.request.options import check_arch_list, check_bool, note
from be_runtime.signature.model import Param, Role
from be_runtime.tune.timing import Trials
from be_runtime.tune.tuned import Tuned
from be_runtime.tune.winners import Config, bucket_of, expand, name_config, name_of

_RUNS = 10
"""Samples of each configuration."""


@public
def triton_kernel(
    function: Any,
    signature: str | Sequence[str],
    *,
    grid: Size,
    num_warps: int | None = None,
    num_stages: int | None = None,
    num_ctas: int | None = None,
    maxnreg: int | None = None,
    launch_pdl: bool = False,
    block_shapes: Mapping[str, Sequence[int | str]] | None = None,
    compute_capability: str | Sequence[str] | None = None,
    outs: Any = None,
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    ordered: bool = False,
    input_layouts: Sequence[Sequence[int] | None] | None = None,
    output_layouts: Sequence[Sequence[int] | None] | None = None,
    random: bool = False,
    **constants: Any,
) -> ArrayFunction:
    """Make a Triton kernel callable from JAX. Native code launches the kernel on XLA's stream.

    Triton compiles the kernel when JAX first traces a call, for the dtypes of the call. The cache keeps the machine
    code.

    Parameters
    ----------
    function : JITFunction, Autotuner or Heuristics
        Function decorated with ``@triton.jit``, and optionally with ``@triton.autotune`` and ``@triton.heuristics``.
    signature : str or sequence of str
        Tokens for the parameters that are not constants, in the function's order: ``arg``, ``ret``, ``inout`` and
        ``scratch`` with axes for pointers, and ``attr.NAME:TYPE`` for numbers. A parameter with the name of an input's
        axis, such as ``n``, needs no token: the value of the parameter is the extent of the axis. The token ``=n``
        passes the extent of the axis ``n``, ``=1`` passes the number 1, and ``none`` passes None in place of a pointer.
    grid : int, str, tuple of int or str, or callable
        Number of programs along one to three axes. A string is arithmetic over the axes of the signature and the names
        of constants, such as ``"ceil(n/BLOCK)"``. A callable receives the shapes and dtypes of the inputs.
    num_warps : int, optional
        Number of warps per program. The default is the value of the ``triton.Config``, or 4.
    num_stages : int, optional
        Number of stages in software pipelines. The default is the value of the ``triton.Config``, or Triton's default.
    num_ctas : int, optional
        Number of blocks per cluster. The default is the value of the ``triton.Config``, or 1.
    maxnreg : int, optional
        Maximum number of registers per thread.
    launch_pdl : bool, default False
        Let the kernel start before the previous kernel ends. Your kernel must call ``tl.extra.cuda.gdc_wait`` before
        using memory that the previous kernel reads or writes.
    block_shapes : dict of str to sequence of (int or str), optional
        Block shape of each parameter that is a tensor descriptor, as numbers or names of constants. At each call,
        native code makes a descriptor of the parameter's array.
    compute_capability : str or list of str, optional
        Architectures, such as ``"sm_90"``. By default, the architectures come from the first of these places that names
        an architecture: `set_compute_capabilities`, the variable ``BE_COMPUTE_CAPABILITIES``, the GPUs of this machine.
    outs : ShapeDtypeStruct, pytree of them, or callable, optional
        Shape and dtype of each result, unless `signature` declares them. A callable receives the shapes and dtypes of
        the inputs.
    vmap_method : str, optional
        Value of ``vmap_method`` for ``jax.ffi.ffi_call``. With ``"broadcast_all"`` or ``"expand_dims"``, a call passes
        the whole batch, and native code launches the kernel once for each element. If the axes of each array in the
        signature begin with ``...``, the default is ``"broadcast_all"``. If all arrays have axes in the signature, but
        the axes of an array begin differently, the default is ``"sequential"``. If an array has no axes in the
        signature, ``vmap`` needs this argument.
    input_output_aliases : dict of int to int, optional
        Dictionary from the index of an input to the index of the result that may share the input's memory. The kernel
        gets a pointer to the input and a pointer to the result.
    has_side_effect : bool, default False
        Run the kernel even if the program does not use the results. XLA chooses the order of such calls.
    ordered : bool, default False
        Run all calls with this option in the order of the program. This option implies `has_side_effect`.
    input_layouts : sequence of (sequence of int or None), optional
        Axes of each input from major to minor in memory, as for ``jax.ffi.ffi_call``.
    output_layouts : sequence of (sequence of int or None), optional
        Axes of each result from major to minor in memory, as for ``jax.ffi.ffi_call``.
    random : bool, default False
        Declare that results differ from call to call. Otherwise the checks of `be_runtime.debug` report the difference.
    **constants
        Values of the function's ``tl.constexpr`` parameters.

    Returns
    -------
    callable
        Function that takes the inputs by position and the attributes by name, and returns the results. If `function` is
        decorated with ``@triton.autotune``, the returned function also has the methods ``tune`` and ``config`` of
        `Tuned`.

    Raises
    ------
    ImportError
        Triton 3 is not installed.
    ArgumentError
        The tokens don't fit the function's parameters, `function` is not decorated with ``@triton.jit``, an option has
        a wrong value, or a decorator has a hook, which would run Python at a launch. At a call: no architecture is
        named, and the machine has no GPU.
    BuildError
        At a call: Triton can't compile the kernel.

    See Also
    --------
    - :doc:`/kernels`: launch sizes, scalars, scratch memory and derivatives.
    - :doc:`/from-triton`: port a program from ``jax_triton``.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> import triton  # doctest: +SKIP
    >>> import triton.language as tl  # doctest: +SKIP
    >>> @triton.jit  # doctest: +SKIP
    ... def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    ...     at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ...     inside = at < n
    ...     tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)
    >>> add = be_runtime.triton_kernel(  # doctest: +SKIP
    ...     add_kernel, "arg[n] arg[n] ret[n]", grid="ceil(n/BLOCK)", BLOCK=1024
    ... )
    >>> add(jnp.ones(4), jnp.ones(4)).tolist()  # doctest: +SKIP
    [2.0, 2.0, 2.0, 2.0]
    """
    options = check_options(locals())
    chosen = {"num_warps": num_warps, "num_stages": num_stages, "num_ctas": num_ctas, "maxnreg": maxnreg}
    chosen |= {"launch_pdl": True} if check_bool(launch_pdl, "launch_pdl") else {}
    decorated = read_decorators(function)
    check_function(decorated.function)
    archs = check_arch_list(compute_capability, "compute_capability")
    blocks = {} if block_shapes is None else block_shapes
    declared = Declaration(decorated.function, signature, grid, constants, chosen, blocks, archs, options)
    if decorated.tuner is None and not decorated.heuristics:
        return ArrayFunction(declared.kernel(), options)
    choices = Choices(declared, decorated)
    note(f"triton {source_key(decorated.function)} {constants} {chosen} {choices.configs}")
    if decorated.tuner is not None:
        return TunedTriton(choices)
    return ArrayFunction(array_kernel(choices.layout, choices), options)


class Decorated(NamedTuple):
    """A Triton function and its decorators.

    Parameters
    ----------
    function : JITFunction
    tuner : Autotuner or None
    heuristics : tuple of (str, callable)
        Names of constants, each with the function that computes it from a call's arguments; outer decorators first.
    """

    function: Any
    tuner: Any = None
    heuristics: tuple[tuple[str, Callable[[dict[str, Any]], Any]], ...] = ()


def read_decorators(function: Any) -> Decorated:
    """Separate a function from its decorators.

    Raises
    ------
    ArgumentError
        A decorator runs Python at a launch, or the function has ``@triton.autotune`` twice.
    """
    tuner, heuristics = None, ()
    while (kind := type(function).__name__) in DECORATORS:
        if kind == "Heuristics":
            heuristics = (*heuristics, *function.values.items())
        elif tuner is None:
            tuner = function
        else:
            raise ArgumentError(
                "the function has @triton.autotune twice", hints=("list all configurations in one decorator",)
            )
        function = function.fn
    if tuner is not None:
        _check_tuner(tuner)
    return Decorated(function, tuner, heuristics)


def _check_tuner(tuner: Any) -> None:
    """Raise an error for the parts of ``@triton.autotune`` that run Python at a launch."""
    found = [
        f"@triton.autotune has a {name}"
        for name in ("pre_hook", "post_hook")
        if getattr(tuner, f"user_defined_{name}", False)
    ]
    for config in tuner.configs:
        parts = (name for name in ("pre_hook", "ir_override") if getattr(config, name, None) is not None)
        found += [f"a configuration of @triton.autotune, {config.kwargs}, has a {name}" for name in parts]
    if found:
        raise ArgumentError(
            f"{found[0]}, and no Python runs at a launch",
            hints=(
                "leave it out: block_shapes={'a': ('BM', 'BK')} sets the shapes of the blocks of descriptors",
                "an inout token with jnp.zeros as the argument clears memory",
            ),
        )


class ArrayArgument(NamedTuple):
    """An array as the Python functions of Triton's decorators get it, without values, since traced arrays have none.

    Parameters
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    """

    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    def element_size(self) -> int:
        """Return the size of an element in bytes."""
        return int(self.dtype.itemsize)

    def stride(self, axis: int) -> int:
        """Return the number of elements between neighbors along an axis."""
        return math.prod(self.shape[axis % self.ndim + 1 :])


class Choices:
    """The kernels of a decorated function, of which a call uses one, depending on its arrays and attributes.

    It implements `be_runtime.call.function.KernelSource`.

    Parameters
    ----------
    declared : Declaration
        Arguments of `triton_kernel`.
    decorated : Decorated
    """

    def __init__(self, declared: Declaration, decorated: Decorated) -> None:
        label, signature, options = str(decorated.function.__name__), declared.signature, declared.options
        self.declared, self.decorated = declared, decorated
        self.layout: TritonLayout = layout_of(label, parameter_names(decorated.function), signature, 1, {}, options)
        tuner = decorated.tuner
        self.is_pruned = tuner is not None and bool(tuner.early_config_prune or tuner.perf_model)
        self.configs = ({},) if tuner is None else expand([each.all_kwargs() for each in tuner.configs])
        self._made, self.tunings = Memo[ArrayKernel](), dict[tuple[str, ...], Tuned]()
        self._check()

    def _check(self) -> None:
        """Check the properties that are known without a call."""
        declared, tuner, heuristics = self.declared, self.decorated.tuner, dict(self.decorated.heuristics)
        own = {*declared.constants, *(name for name, value in declared.chosen.items() if value is not None)}
        for config in self.configs:
            if twice := own & {*config}:
                raise ArgumentError(
                    f"{self.layout.label}: {min(twice)} is given, and @triton.autotune chooses it",
                    hints=("leave it out of triton_kernel",),
                )
            if heuristics:
                params = [param for param in self.decorated.function.params if param.is_constexpr]
                wanted, optional = {each.name for each in params}, {each.name for each in params if each.has_default}
                given = own | {*config} | {*heuristics}
                check_constants(self.layout.label, wanted, optional, given - (declared.chosen.keys() - wanted))
            else:
                self.kernel(config, {})
        cleared = set() if tuner is None else {*tuner.reset_to_zero}
        for name, param in self.layout.arguments:
            if name in cleared and isinstance(param, Param) and param.role is Role.RET and not param.in_place:
                raise ArgumentError(
                    f"{self.layout.label}: reset_to_zero has {name}, and the memory of a ret is not cleared",
                    hints=(f"declare {name} as an inout, and pass jnp.zeros",),
                )

    def target(self, call: Resolved, scalars: Mapping[str, Value]) -> KernelTarget:
        """Return the target of a call; if Triton can't compile the chosen configuration, try the others."""
        given = self.arguments(call, scalars)
        chosen, failed = self._choose(call, given), list[BuildError]()
        rest = [config for config in self._pruned(given) if config != chosen] if len(self.configs) > 1 else ()
        for config in (chosen, *rest):
            try:
                return self.target_of(config, call, scalars, given)
            except BuildError as error:
                if config:
                    name_config(error, config)
                if not _is_skipped(error):
                    raise
                failed.append(error)
        raise failed[0]

    def target_of(
        self, config: Config, call: Resolved, scalars: Mapping[str, Value], given: Mapping[str, Any]
    ) -> KernelTarget:
        """Return the target of a call in a configuration."""
        made: KernelTarget = self.kernel(config, given).source.target(call, scalars)
        # The part of the arrays on one of several devices may need other constants.
        return made._replace(computed=None) if self.decorated.heuristics or self.is_pruned else made

    def arguments(self, call: Resolved, scalars: Mapping[str, Value]) -> dict[str, Any]:
        """Return the arguments of a call that are not constants, by the names of the parameters."""
        specs, rest = (*call.inputs, *call.results), iter(self.layout.declared.order)
        found: dict[str, Any] = dict(self.layout.constants)
        for name, param in self.layout.arguments:
            if isinstance(param, str):
                found[name] = call.values[param]
            elif param.role is Role.ATTR:
                assert param.dtype is not None, "declare() raises for a scalar without a type"
                found[name] = np.frombuffer(number_of(scalars[name]).data, numpy_dtype(param.dtype))[0].item()
            else:
                spec = specs[next(rest)]
                found[name] = ArrayArgument(spec.shape, numpy_dtype(spec.dtype))
        return found

    def kernel(self, config: Config, given: Mapping[str, Any]) -> ArrayKernel:
        """Return the kernel of a configuration, with the heuristics' values for the arguments of a call."""
        declared, label = self.declared, self.layout.label
        constants = {**declared.constants, **{name: each for name, each in config.items() if name not in OPTIONS}}
        values: dict[str, Any] = {}
        for name, function in self.decorated.heuristics:
            try:
                values[name] = function({**given, **declared.chosen, **config, **constants, **values})
            except Exception as error:
                raise ArgumentError(
                    f"{label}: the heuristic of {name} raised {type(error).__name__}: {error}",
                    hints=("an array has shape, dtype, ndim, numel(), element_size() and stride(axis), and no values",),
                ) from error
        chosen = {name: values.get(name, config.get(name, each)) for name, each in declared.chosen.items()}
        constants |= {name: each for name, each in values.items() if name not in OPTIONS}
        made = declared._replace(constants=constants, chosen=chosen)
        return self._made.get((name_of(config), repr(values)), made.kernel)

    def tuned(self, given: Mapping[str, Any]) -> Tuned:
        """Return the tuned function of the configurations that pruning leaves for a call."""
        configs = self._pruned(given)
        made = Tuned(self.fixed, configs, self.layout.label, None, self.bucket, None, _RUNS, ())
        return self.tunings.setdefault(tuple(map(name_of, configs)), made)

    def _pruned(self, given: Mapping[str, Any]) -> tuple[Config, ...]:
        if not self.is_pruned:
            return self.configs
        own = copy.copy(self.decorated.tuner)
        own.nargs = dict(given)
        try:
            return expand([each.all_kwargs() for each in own.prune_configs(dict(self.declared.constants))])
        except Exception as error:
            raise ArgumentError(
                f"{self.layout.label}: prune_configs_by raised {type(error).__name__}: {error}",
                hints=("an array has shape, dtype, ndim, numel(), element_size() and stride(axis), and no values",),
            ) from error

    def _choose(self, call: Resolved, given: Mapping[str, Any]) -> Config:
        if len(self.configs) == 1:
            return self.configs[0]
        return self.tuned(given).config_of(self._bucket(call, given))

    def _bucket(self, call: Resolved, given: Mapping[str, Any]) -> str:
        """Name the sizes and the attributes in ``key`` whose calls share a choice."""
        numbers = {param.name for param in self.layout.declared.params if param.role is Role.ATTR}
        keys = [f"{name}={given[name]}" for name in self.decorated.tuner.keys if name in numbers]
        return " ".join([bucket_of([(spec.dtype.name, spec.shape) for spec in call.inputs]), *keys])

    def bucket(self, *arrays: Any, **keywords: Any) -> str:
        """Name the bucket of a call with these arrays and keywords."""
        call, given = self.probe(arrays, keywords)
        return self._bucket(call, given)

    def fixed(self, **config: Any) -> ArrayFunction:
        """Return the function of one configuration."""
        note(f"triton {source_key(self.decorated.function)} {self.declared.constants} {config}")
        return ArrayFunction(array_kernel(self.layout, Fixed(self, config)), self.declared.options)

    def probe(self, arrays: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Resolved, dict[str, Any]]:
        """Return a call with checked arrays, and its arguments, without compiling a kernel."""
        source = Probe(self, [])
        function = ArrayFunction(array_kernel(self.layout, source), self.declared.options)
        transforms.trace_only(lambda *given: function(*given, **keywords), arrays)
        return source.found[0]


class Fixed(NamedTuple):
    """A decorated function in one configuration."""

    choices: Choices
    config: Config

    def target(self, call: Resolved, scalars: Mapping[str, Value]) -> KernelTarget:
        """Return the target of a call."""
        return self.choices.target_of(self.config, call, scalars, self.choices.arguments(call, scalars))


class Probe(NamedTuple):
    """A source of kernels that records the calls, for traces that do not run."""

    choices: Choices
    found: list[tuple[Resolved, dict[str, Any]]]

    def target(self, call: Resolved, scalars: Mapping[str, Value]) -> KernelTarget:
        """Record a call."""
        self.found.append((call, self.choices.arguments(call, scalars)))
        return KernelTarget((), ())


class TunedTriton(ArrayFunction):
    """The function of a kernel with ``@triton.autotune``, whose calls use the fastest known configuration.

    A call outside of a program times the configurations, if no choice for its sizes is stored, see `autotune`. A call
    in a program uses the stored choice, or else the first configuration. ``print`` shows times or stored choices.
    """

    def __init__(self, choices: Choices) -> None:
        super().__init__(array_kernel(choices.layout, choices), choices.declared.options)
        self._choices = choices
        self._seen: set[object] = set()

    @public
    def __call__(self, /, *arrays: Any, **keywords: Any) -> Any:
        """Call the kernel, see `CompiledFunction`. The first call for some sizes times the configurations."""
        if all(map(_is_of_one_device, arrays)):
            key = (tuple((str(each.dtype), each.shape) for each in arrays), repr(keywords))
            if key not in self._seen and self._may_tune():
                self._seen.add(key)
                tuned = self._tuned(arrays, keywords)
                if len(tuned.configs) > 1:
                    tuned.tune_unless_known(*arrays, **keywords)
                    self._programs.clear()  # earlier traces keep their configuration
                    self.clear()
        return super().__call__(*arrays, **keywords)

    def _may_tune(self) -> bool:
        is_on = PROCESS.settings().autotune == "on" and checks.active() is None and self.mode is None
        return is_on and transforms.default_device().platform != "cpu" and not transforms.is_tracing()

    def _tuned(self, arrays: Sequence[Any], keywords: Mapping[str, Any]) -> Tuned:
        _, given = self._choices.probe(arrays, keywords)
        return self._choices.tuned(given)

    @public
    def tune(self, *arrays: Any, **keywords: Any) -> Trials:
        """Time all configurations for a call and store the choice, in place of an earlier one.

        Raises
        ------
        ArgumentError
            An array is traced, so that its values are not known, or JAX's device is the CPU.
        """
        if transforms.default_device().platform == "cpu":
            raise ArgumentError(
                f"{self._choices.layout.label}: JAX has no GPU here, and configurations are timed on a GPU",
                hints=("python -m be_toolchain doctor prints why none is found",),
            )
        trials = self._tuned(arrays, keywords).tune(*arrays, **keywords)
        self.clear()
        return trials

    @public
    def config(self, *arrays: Any, **keywords: Any) -> Config:
        """Return the configuration for a call, without timing anything."""
        return self._tuned(arrays, keywords).config(*arrays, **keywords)

    def __str__(self) -> str:
        """Return tables of the times, or, if this object timed nothing, a table of the stored choices."""
        if not self._choices.is_pruned:
            self._choices.tuned({})
        return "\n\n".join(map(str, self._choices.tunings.values())) or repr(self)


def _is_skipped(error: BuildError) -> bool:
    """Return whether Triton's autotuner skips a configuration after this compiler error."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources, PTXASError

    return isinstance(error.__cause__, CompileTimeAssertionFailure | OutOfResources | PTXASError)


def _is_of_one_device(value: Any) -> bool:
    """Return whether a value is a concrete array that is not sharded over several devices."""
    if port.is_traced(value) or not hasattr(value, "dtype"):
        return False
    return len(getattr(getattr(value, "sharding", None), "device_set", ())) <= 1
