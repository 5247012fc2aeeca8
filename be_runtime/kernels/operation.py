"""`XLACustomKernel`: an operation with kernels and rules that is a JAX primitive, and the registry of operations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from be_runtime.call.resolve import one_array
from be_runtime.errors import ArgumentError, BenchmarkDataFnNotProvidedError, KernelNotAvailableError, call_named
from be_runtime.frames import public
from be_runtime.jax import port, transforms
from be_runtime.jax.arrays import check_known, check_structs
from be_runtime.kernels.benchmark import BenchmarkConfig, BenchmarkResult, check_configs, measure
from be_runtime.kernels.dispatch import PLATFORMS, Call, KernelEntry, Kernels, check_name, check_platform, run
from be_runtime.load.process import PROCESS
from be_toolchain.machine.forks import ThreadLock

Function = Callable[..., Any]
Generator = Callable[..., Function]


class XLACustomKernel:
    """An operation that is a JAX primitive and has one or several kernels.

    A *generator* makes a kernel: it is called with the keywords of a call and with ``outs``, a tuple of the results'
    shapes and dtypes, and returns a function from arrays to arrays, as `be_runtime.numba_kernel` does. Generators run
    while JAX compiles a program, for the program's platform.

    A new definition of a kernel or a rule takes effect everywhere: if the operation was used before, JAX's compiled
    programs are dropped, since they contain the old definition.

    Parameters
    ----------
    name : str
        Name of the operation, in errors and in the text of programs.
    doc : str, optional
        Description of the operation, the ``__doc__`` of the object.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> scale = XLACustomKernel("doc_scale")
    >>> scale.def_kernel("jax", "cpu", lambda factor, outs: lambda x: [factor * x])
    >>> x = jnp.arange(3.0)
    >>> scale(x, outs=jax.ShapeDtypeStruct(x.shape, x.dtype), factor=2).tolist()
    [0.0, 2.0, 4.0]
    """

    def __init__(self, name: str, doc: str | None = None) -> None:
        self.name = check_name(name)
        self.__doc__ = doc or f"The operation {name}."
        self.tags: frozenset[str] = frozenset()
        self._kernels = Kernels()
        self._function: Function | None = None
        self._data: Function | None = None
        self._used = False
        self._lock = ThreadLock()
        self.primitive = transforms.new_primitive(name, run)
        self.primitive.be_runtime_operation = self  # type: ignore[attr-defined]  # for functions given a primitive
        self.register_general_batching()
        _REGISTRY[name] = self

    @public
    def __call__(self, *inputs: Any, outs: Any, backend: str | None = None, **keywords: Hashable) -> Any:
        """Compute the results.

        Parameters
        ----------
        *inputs : array
        outs : ShapeDtypeStruct or pytree of them
            The shape and dtype of each result.
        backend : str, optional
            Backend of the kernel; by default the platform's default. A kernel whose language isn't installed is
            skipped, with a `FallbackWarning`.
        **keywords
            Parameters for the generator and the rules. They must be hashable: JAX compiles programs for their values.

        Returns
        -------
        pytree of array
            Results, in the structure of `outs`.
        """
        leaves, unflatten = port.flatten(outs)
        call = self._describe(leaves, backend, keywords)
        arrays = [one_array(self.name, number, each) for number, each in enumerate(inputs)]
        return unflatten(self.primitive.bind(*arrays, call=call))

    def _describe(self, leaves: Sequence[Any], backend: str | None, keywords: Mapping[str, Hashable]) -> Call:
        """Check the parameters of a call, and return the primitive's parameter."""
        check_structs(leaves, f"{self.name}: outs")
        check_known(f"{self.name}: outs", leaves)
        for name, value in keywords.items():
            try:
                hash(value)
            except TypeError:
                raise ArgumentError(
                    f"{self.name}: the keyword {name} is {value!r}, which can't be hashed",
                    hints=("pass arrays as inputs, and lists as tuples",),
                ) from None
        if backend is not None and not any(entry.backend == backend for entry in self._kernels.entries):
            raise KernelNotAvailableError(f"{self.name} has no {backend!r} kernel; {self._kernels.describe()}")
        self._used = True
        outs = tuple(transforms.struct(leaf) for leaf in leaves)
        return Call(self.name, outs, tuple(sorted(keywords.items())), backend, self._preferred())

    # Kernels

    def def_kernel(self, backend: str, platform: str, kg: Generator, asdefault: bool = False) -> None:
        """Define the kernel of a backend for a platform; it replaces an older kernel.

        Parameters
        ----------
        backend : str
            Any name.
        platform : {"cpu", "gpu", "tpu"}
        kg : callable
            The generator.
        asdefault : bool
            True to make the kernel the platform's default. The first kernel is the default in any case.
        """
        if not callable(kg):
            raise ArgumentError(f"{self.name}: kg must be a function that returns a kernel, not {kg!r}")
        entry = KernelEntry(check_name(backend), check_platform(platform), kg)
        with self._changing():
            kernels = self._kernels.with_entry(entry)
            self._kernels = kernels.with_default(entry.platform, entry.backend) if asdefault else kernels

    def def_numba_kernel(self, kg: Generator, asdefault: bool = False) -> None:
        """Define the ``"numba"`` kernel for the CPU, made by `be_runtime.numba_kernel`."""
        self.def_kernel("numba", "cpu", kg, asdefault)

    def def_numba_cuda_kernel(self, kg: Generator, asdefault: bool = False) -> None:
        """Define the ``"numba_cuda"`` kernel for the GPU, made by `be_runtime.numba_cuda_kernel`."""
        self.def_kernel("numba_cuda", "gpu", kg, asdefault)

    def def_cuda_raw_kernel(self, kg: Generator, asdefault: bool = False) -> None:
        """Define the ``"cuda_raw"`` kernel for the GPU, made by `be_runtime.cuda_kernel` or a loaded module."""
        self.def_kernel("cuda_raw", "gpu", kg, asdefault)

    def def_warp_kernel(self, kg: Generator, asdefault: bool = False, *, platform: str = "gpu") -> None:
        """Define the ``"warp"`` kernel, made by `be_runtime.warp_kernel`."""
        self.def_kernel("warp", platform, kg, asdefault)

    def def_triton_kernel(self, kg: Generator, asdefault: bool = False) -> None:
        """Define the ``"triton"`` kernel for the GPU."""
        self.def_kernel("triton", "gpu", kg, asdefault)

    def def_pallas_kernel(self, platform: str, kg: Generator, asdefault: bool = False) -> None:
        """Define the ``"pallas"`` kernel for a platform."""
        self.def_kernel("pallas", platform, kg, asdefault)

    def available_backends(self, platform: str) -> tuple[str, ...]:
        """List the backends that have a kernel for a platform, in the order in which they are tried."""
        return self._preferred().backends(check_platform(platform))

    def get_default(self, platform: str) -> str | None:
        """Return the backend of the operation's default for a platform, which `be_runtime.set_backend` overrides."""
        return next(iter(self._kernels.backends(check_platform(platform))), None)

    @property
    def defaults(self) -> dict[str, str]:
        """The backend of the operation's default for each platform that has a kernel."""
        return {each: default for each in PLATFORMS if (default := self.get_default(each)) is not None}

    def set_default(self, platform: str, backend: str) -> None:
        """Make a backend the default for a platform.

        Raises
        ------
        KernelNotAvailableError
            The backend has no kernel for the platform.
        """
        with self._changing():
            self._kernels = self._kernels.with_default(check_platform(platform), check_name(backend))

    # Rules

    def def_batching_rule(self, rule: Function) -> None:
        """Use a rule under ``vmap``: ``rule(arguments, axes, **parameters)`` returns the results and their axes.

        An axis is None if an argument, or a result, is the same for all elements. The parameters are the keywords of
        the call, ``outs`` and ``backend``, so that ``self(*arguments, **parameters)`` is the call for one element.
        """

        def batch(arguments: Sequence[Any], axes: Sequence[Any], *, call: Call) -> tuple[Any, Any]:
            if call.levels:
                return transforms.batch(self.primitive.bind, arguments, axes, call=call)
            what = f"the batching rule of {self.name}"
            results, result_axes = call_named(what, rule, arguments, axes, **call.parameters())
            return transforms.leaves(results), transforms.leaves(result_axes)

        with self._changing():
            transforms.batching_rules[self.primitive] = batch

    def register_general_batching(self) -> None:
        """Use the general rule under ``vmap``, the default: the kernel is called once, under ``vmap`` itself.

        A kernel that doesn't define its behavior under ``vmap`` is called for one element after the other.
        """
        with self._changing():
            transforms.batching_rules[self.primitive] = partial(transforms.batch, self.primitive.bind)

    def general_batching_rule(
        self,
        arguments: Sequence[Any],
        axes: Sequence[int | None],
        *,
        outs: Any,
        backend: str | None = None,
        **keywords: Hashable,
    ) -> tuple[Any, Any]:
        """Apply the general rule, also from a rule of `def_batching_rule`, whose arguments and results are equal."""
        leaves, _ = port.flatten(outs)
        call = self._describe(leaves, backend, keywords)
        return transforms.batch(self.primitive.bind, arguments, axes, call=call)

    def def_jvp_rule(self, rule: Function) -> None:
        """Use a rule for derivatives: ``rule(primals, tangents, **parameters)`` returns the results and their tangents.

        A tangent can be a symbolic zero, ``jax.interpreters.ad.Zero``.
        """
        with self._changing():
            transforms.jvp_rules[self.primitive] = partial(transforms.jvp, self.name, rule)

    def def_jvp_rule2(self, *rules_by_input: Function | None) -> None:
        """Use one rule for each input: ``rule(tangent, *primals, **parameters)`` returns the results' tangents.

        None stands for an input that has no effect on the derivative.
        """
        self.def_jvp_rule(transforms.jvp_by_input(self, rules_by_input, self.name))

    def def_transpose_rule(self, rule: Function) -> None:
        """Use a rule for reverse mode: ``rule(cotangents, *arguments, **parameters)``.

        The rule serves calls that are linear in some arguments, which are ``jax.interpreters.ad.UndefinedPrimal``. The
        rule returns their cotangents, and None for the other arguments.
        """
        with self._changing():
            transforms.transpose_rules[self.primitive] = partial(transforms.transpose, self.name, rule)

    # Public function, tags and benchmark

    def def_call(self, function: Function) -> None:
        """Set the public function, called as ``function(*arrays, backend=..., **keywords)``; `benchmark` times it."""
        if not callable(function):
            raise ArgumentError(f"{self.name}: def_call takes a function, not {function!r}")
        self._function = function

    def call(self, *inputs: Any, **keywords: Any) -> Any:
        """Call the function of `def_call`, or the operation itself if there is none."""
        return (self._function or self)(*inputs, **keywords)

    def def_tags(self, *tags: str) -> None:
        """Add search words for the operation to ``tags``."""
        self.tags |= frozenset(map(check_name, tags))

    def def_benchmark_data(self, function: Function) -> None:
        """Set the data of `benchmark`: ``function(platform=...)`` returns `BenchmarkConfig` objects."""
        if not callable(function):
            raise ArgumentError(f"{self.name}: def_benchmark_data takes a function, not {function!r}")
        self._data = function

    def benchmark(
        self,
        platform: str = "cpu",
        *,
        backends: Sequence[str] | None = None,
        n_warmup: int = 2,
        n_runs: int = 10,
        calls: int = 100,
    ) -> BenchmarkResult:
        """Time each backend on each configuration of `def_benchmark_data`, in alternation.

        A sample is the difference in time between a compiled loop of ``2 * calls`` calls and a loop of `calls`, divided
        by `calls`, so that it does not include the cost of a dispatch. Every call waits for all results of the call
        before, and the compiler can't remove a call or move it out of the loop.

        Parameters
        ----------
        platform : str
        backends : sequence of str, optional
            Backends to time; by default all backends with a kernel for the platform.
        n_warmup, n_runs : int
            Numbers of samples that are discarded and kept.
        calls : int

        Returns
        -------
        BenchmarkResult
            The measurements; a backend that fails is included with its error.

        Raises
        ------
        BenchmarkDataFnNotProvidedError
            There is no data.
        ArgumentError
            There is no such device, or a number is below 1.
        """
        where = check_platform(platform)
        if self._data is None:
            hints = ("give some with def_benchmark_data(f)",)
            raise BenchmarkDataFnNotProvidedError(f"{self.name} has no benchmark data", hints=hints)
        if min(n_runs, calls) < 1 or n_warmup < 0:
            raise ArgumentError(f"n_runs={n_runs} and calls={calls} must be at least 1, n_warmup={n_warmup} at least 0")
        found = transforms.devices(where)
        if not found:
            raise ArgumentError(f"{self.name} needs a {where} device, but JAX has none")
        chosen = tuple(backends) if backends is not None else self.available_backends(where)
        configs: tuple[BenchmarkConfig, ...] = check_configs(self._data(platform=where), self.name)
        return measure(
            self.name, self.call, configs, chosen, device=found[0], n_warmup=n_warmup, n_runs=n_runs, calls=calls
        )

    def _preferred(self) -> Kernels:
        """Return the kernels with the process's choice of backends."""
        return self._kernels._replace(chosen=tuple(sorted(PROCESS.backends.items())))

    def __repr__(self) -> str:
        return f"XLACustomKernel({self.name!r}: {self._kernels.describe()})"

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Surround a new definition, and drop compiled programs that may contain the old one."""
        with self._lock:
            yield
            if self._used:
                self._used = False
                transforms.forget_programs()


_REGISTRY: dict[str, XLACustomKernel] = {}


def get_registry() -> dict[str, XLACustomKernel]:
    """Return all operations of this process by name; the last operation of a name counts.

    Examples
    --------
    >>> XLACustomKernel("doc_registered").def_tags("documented")
    >>> list(get_primitives_by_tags(["documented"])), "doc_registered" in get_all_primitive_names()
    (['doc_registered'], True)
    """
    return dict(_REGISTRY)


def get_all_primitive_names() -> list[str]:
    """Return the names of all operations of this process, sorted."""
    return sorted(get_registry())


def get_primitives_by_tags(tags: Iterable[str]) -> dict[str, XLACustomKernel]:
    """Return the operations with all of the given tags of `XLACustomKernel.def_tags`, by name."""
    wanted = frozenset(tags)
    return {name: operation for name, operation in get_registry().items() if wanted <= operation.tags}


def defjvp(primitive: Any, *jvp_rules: Function | None) -> None:
    """Use one JVP rule for each input of an operation or a primitive, as `XLACustomKernel.def_jvp_rule2` does."""
    operation = _operation(primitive)
    if operation is not None:
        operation.def_jvp_rule2(*jvp_rules)
        return
    combined = transforms.jvp_by_input(primitive.bind, jvp_rules, str(primitive))

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any) -> tuple[Any, Any]:
        outs, out_tangents = combined(primals, tangents, **parameters)
        return (outs, out_tangents) if primitive.multiple_results else (outs[0], out_tangents[0])

    transforms.jvp_rules[primitive] = jvp


def general_batching_rule(
    primitive: Any, arguments: Sequence[Any], axes: Sequence[int | None], **parameters: Any
) -> tuple[Any, Any]:
    """Compute a batch: of an operation by its general rule, of a JAX primitive for one element after the other.

    Returns
    -------
    tuple
        Results, and the axis of the batch in each; None if no argument has one.
    """
    operation = _operation(primitive)
    if operation is not None and "call" not in parameters:  # JAX passes it to the primitive's own rule
        return operation.general_batching_rule(arguments, axes, **parameters)
    moved, level = transforms.lead(arguments, axes)
    function = partial(primitive.bind, **parameters)
    results = function(*arguments) if level is None else transforms.loop_levels(function, [level])(*moved)
    axis = None if level is None else 0
    return results, [axis] * len(results) if primitive.multiple_results else axis


def _operation(primitive: Any) -> XLACustomKernel | None:
    """Return the operation of an argument; None for a primitive of JAX."""
    if not isinstance(primitive, XLACustomKernel) and not hasattr(primitive, "bind"):
        raise TypeError(f"an XLACustomKernel or a JAX primitive is expected, not {primitive!r}")
    return primitive if isinstance(primitive, XLACustomKernel) else getattr(primitive, "be_runtime_operation", None)
