"""`XLACustomKernel`: an operation with kernels and rules that is a JAX primitive."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
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
    """An operation that is a JAX primitive and has one or more kernels.

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

    Attributes
    ----------
    name : str
        Name of the operation.
    tags : frozenset of str
        Search words of `def_tags`.
    primitive : jax.extend.core.Primitive
        The primitive, for rules of other packages.

    See Also
    --------
    - `set_backend`: prefer a backend in all operations.
    - :doc:`/custom-kernels`: the same operation with kernels in C++, CUDA, Warp and Pallas.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> scale = be_runtime.XLACustomKernel("doc_scale")
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
        REGISTRY[name] = self

    @public
    def __call__(self, *inputs: Any, outs: Any, backend: str | None = None, **keywords: Hashable) -> Any:
        """Compute the results.

        Parameters
        ----------
        *inputs : array
            Inputs of any shapes; they are passed to the kernel.
        outs : ShapeDtypeStruct or pytree of them
            Shape and dtype of each result.
        backend : str, optional
            Backend of the kernel. The default is the platform's default. A kernel whose language isn't installed is
            skipped, with a `FallbackWarning`.
        **keywords
            Parameters for the generator and the rules. They must be hashable: JAX compiles programs for their values.

        Returns
        -------
        pytree of array
            Results, in the structure of `outs`.

        Raises
        ------
        ArgumentError
            `outs` does not describe arrays, or a keyword can't be hashed.
        KernelNotAvailableError
            There is no kernel of the backend, or for the platform of the program.
        GeneratorError
            The generator of the kernel failed.
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
            Any name, such as ``"cpp"``.
        platform : {"cpu", "gpu", "tpu"}
            Platform of the kernel.
        kg : callable
            Generator: it takes the keywords of a call and ``outs``, a tuple of ShapeDtypeStruct, and returns a function
            from arrays to arrays.
        asdefault : bool, default False
            Make the kernel the platform's default. The first kernel is the default in any case.

        Raises
        ------
        ArgumentError
            An argument has a wrong type or value.

        Examples
        --------
        >>> import be_runtime
        >>> negate = be_runtime.XLACustomKernel("doc_negate")
        >>> negate.def_kernel("jax", "cpu", lambda outs: lambda x: [-x])
        >>> negate.available_backends("cpu")
        ('jax',)
        """
        if not callable(kg):
            raise ArgumentError(f"{self.name}: kg must be a function that returns a kernel, not {kg!r}")
        entry = KernelEntry(check_name(backend), check_platform(platform), kg)
        with self._changing():
            kernels = self._kernels.with_entry(entry)
            self._kernels = kernels.with_default(entry.platform, entry.backend) if asdefault else kernels

    def def_numba_kernel(self, kg: Generator, asdefault: bool = False) -> None:
        """Define the ``"numba"`` kernel for the CPU, made by `be_runtime.numba_kernel`.

        Parameters
        ----------
        kg : callable
            Generator, which returns the function from arrays to arrays, see `def_kernel`.
        asdefault : bool, default False
            Make it the platform's default.
        """
        self.def_kernel("numba", "cpu", kg, asdefault)

    def def_numba_cuda_kernel(self, kg: Generator, asdefault: bool = False) -> None:
        """Define the ``"numba_cuda"`` kernel for the GPU, made by `be_runtime.numba_cuda_kernel`.

        Parameters
        ----------
        kg : callable
            Generator, which returns the function from arrays to arrays, see `def_kernel`.
        asdefault : bool, default False
            Make it the platform's default.
        """
        self.def_kernel("numba_cuda", "gpu", kg, asdefault)

    def def_cuda_raw_kernel(self, kg: Generator, asdefault: bool = False) -> None:
        """Define the ``"cuda_raw"`` kernel for the GPU, made by `be_runtime.cuda_kernel` or a loaded module.

        Parameters
        ----------
        kg : callable
            Generator, which returns the function from arrays to arrays, see `def_kernel`.
        asdefault : bool, default False
            Make it the platform's default.
        """
        self.def_kernel("cuda_raw", "gpu", kg, asdefault)

    def def_warp_kernel(self, kg: Generator, asdefault: bool = False, *, platform: str = "gpu") -> None:
        """Define the ``"warp"`` kernel, made by `be_runtime.warp_kernel`.

        Parameters
        ----------
        kg : callable
            Generator, which returns the function from arrays to arrays, see `def_kernel`.
        asdefault : bool, default False
            Make it the platform's default.
        platform : {"cpu", "gpu"}, default "gpu"
            Platform of the kernel.
        """
        self.def_kernel("warp", platform, kg, asdefault)

    def def_triton_kernel(self, kg: Generator, asdefault: bool = False) -> None:
        """Define the ``"triton"`` kernel for the GPU, made by `be_runtime.triton_kernel`.

        Parameters
        ----------
        kg : callable
            Generator, which returns the function from arrays to arrays, see `def_kernel`.
        asdefault : bool, default False
            Make it the platform's default.
        """
        self.def_kernel("triton", "gpu", kg, asdefault)

    def def_pallas_kernel(self, platform: str, kg: Generator, asdefault: bool = False) -> None:
        """Define the ``"pallas"`` kernel for a platform.

        Parameters
        ----------
        platform : {"cpu", "gpu", "tpu"}
            Platform of the kernel.
        kg : callable
            Generator, which returns the function from arrays to arrays, see `def_kernel`.
        asdefault : bool, default False
            Make it the platform's default.
        """
        self.def_kernel("pallas", platform, kg, asdefault)

    def available_backends(self, platform: str) -> tuple[str, ...]:
        """List the backends that have a kernel for a platform.

        Parameters
        ----------
        platform : {"cpu", "gpu", "tpu"}
            Platform.

        Returns
        -------
        tuple of str
            Names, in the order in which they are tried.
        """
        return self._preferred().backends(check_platform(platform))

    def get_default(self, platform: str) -> str | None:
        """Return the operation's default backend for a platform, which `be_runtime.set_backend` overrides.

        Parameters
        ----------
        platform : {"cpu", "gpu", "tpu"}
            Platform.

        Returns
        -------
        str or None
            Name of the backend; None without a kernel.
        """
        return next(iter(self._kernels.backends(check_platform(platform))), None)

    @property
    def defaults(self) -> dict[str, str]:
        """The operation's default backend for each platform that has a kernel."""
        return {each: default for each in PLATFORMS if (default := self.get_default(each)) is not None}

    def set_default(self, platform: str, backend: str) -> None:
        """Make a backend the default for a platform.

        Parameters
        ----------
        platform : {"cpu", "gpu", "tpu"}
            Platform.
        backend : str
            Backend that has a kernel for the platform.

        Raises
        ------
        KernelNotAvailableError
            The backend has no kernel for the platform.
        """
        with self._changing():
            self._kernels = self._kernels.with_default(check_platform(platform), check_name(backend))

    # Rules

    def def_batching_rule(self, rule: Function) -> None:
        """Use a rule under ``vmap``.

        Parameters
        ----------
        rule : callable
            ``rule(arguments, axes, **parameters)`` returns the results and their axes. An axis is None if an argument,
            or a result, is the same for all elements. The parameters are the keywords of the call, ``outs`` and
            ``backend``, so that ``self(*arguments, **parameters)`` is the call for one element.
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
        """Apply the general rule to a batch, for example inside a rule of `def_batching_rule`.

        Parameters
        ----------
        arguments : sequence of array
            Inputs, with the axis of the batch.
        axes : sequence of (int or None)
            Axis of the batch in each input; None for an input that is the same for all elements.
        outs : ShapeDtypeStruct or pytree of them
            Shape and dtype of each result of one element.
        backend : str, optional
            Backend of the kernel.
        **keywords
            Keywords of the call.

        Returns
        -------
        tuple
            Results, and the axis of the batch in each.
        """
        leaves, _ = port.flatten(outs)
        call = self._describe(leaves, backend, keywords)
        return transforms.batch(self.primitive.bind, arguments, axes, call=call)

    def def_jvp_rule(self, rule: Function) -> None:
        """Use a rule for derivatives.

        Parameters
        ----------
        rule : callable
            ``rule(primals, tangents, **parameters)`` returns the results and their tangents. A tangent can be a
            symbolic zero, ``jax.interpreters.ad.Zero``. The parameters are the keywords of the call, ``outs`` and
            ``backend``.
        """
        with self._changing():
            transforms.jvp_rules[self.primitive] = partial(transforms.jvp, self.name, rule)

    def def_jvp_rule2(self, *rules_by_input: Function | None) -> None:
        """Use one rule for each input.

        Parameters
        ----------
        *rules_by_input : callable or None
            ``rule(tangent, *primals, **parameters)`` returns the results' tangents. None stands for an input that has
            no effect on the derivative.

        Examples
        --------
        >>> import be_runtime
        >>> import jax
        >>> import jax.numpy as jnp
        >>> square = be_runtime.XLACustomKernel("doc_square")
        >>> square.def_kernel("jax", "cpu", lambda outs: lambda x: [x * x])
        >>> square.def_jvp_rule2(lambda tangent, x, **parameters: [2 * x * tangent])
        >>> x = jnp.arange(3.0)
        >>> jax.grad(lambda x: square(x, outs=jax.ShapeDtypeStruct(x.shape, x.dtype)).sum())(x).tolist()
        [0.0, 2.0, 4.0]
        """
        self.def_jvp_rule(transforms.jvp_by_input(self, rules_by_input, self.name))

    def def_transpose_rule(self, rule: Function) -> None:
        """Use a rule for reverse mode, for calls that are linear in some arguments.

        Parameters
        ----------
        rule : callable
            ``rule(cotangents, *arguments, **parameters)`` returns the cotangents of the arguments in which the call is
            linear, and None for the others. The arguments in which the call is linear are passed as
            ``jax.interpreters.ad.UndefinedPrimal``.
        """
        with self._changing():
            transforms.transpose_rules[self.primitive] = partial(transforms.transpose, self.name, rule)

    # Public function, tags and benchmark

    def def_call(self, function: Function) -> None:
        """Set the public function, which `benchmark` times.

        Parameters
        ----------
        function : callable
            Function called as ``function(*arrays, backend=..., **keywords)``.

        Raises
        ------
        ArgumentError
            The argument can't be called.
        """
        if not callable(function):
            raise ArgumentError(f"{self.name}: def_call takes a function, not {function!r}")
        self._function = function

    def call(self, *inputs: Any, **keywords: Any) -> Any:
        """Call the function of `def_call`, or the operation itself if there is none.

        Parameters
        ----------
        *inputs : array
            Inputs.
        **keywords
            Keyword arguments of the function.

        Returns
        -------
        pytree of array
            The results of the function.
        """
        return (self._function or self)(*inputs, **keywords)

    def def_tags(self, *tags: str) -> None:
        """Add search words for the operation, for `be_runtime.get_primitives_by_tags`.

        Parameters
        ----------
        *tags : str
            Words.
        """
        self.tags |= frozenset(map(check_name, tags))

    def def_benchmark_data(self, function: Function) -> None:
        """Set the data of `benchmark`.

        Parameters
        ----------
        function : callable
            ``function(platform=...)`` returns `BenchmarkConfig` objects.

        Raises
        ------
        ArgumentError
            The argument can't be called.
        """
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
        by `calls`, so that it does not include the cost of a dispatch. Every call waits for all results of the previous
        call, and the compiler can't remove a call or move it out of the loop.

        Parameters
        ----------
        platform : {"cpu", "gpu", "tpu"}, default "cpu"
            Platform, of which the first device is used.
        backends : sequence of str, optional
            Backends to time. By default all backends with a kernel for the platform are timed.
        n_warmup : int, default 2
            Number of samples that are discarded.
        n_runs : int, default 10
            Number of samples that are kept.
        calls : int, default 100
            Number of calls in a loop.

        Returns
        -------
        BenchmarkResult
            The measurements. A backend that fails is included with its error.

        Raises
        ------
        BenchmarkDataFnNotProvidedError
            There is no data.
        ArgumentError
            There is no such device, or a number is too small.

        Examples
        --------
        >>> import be_runtime
        >>> import jax
        >>> import jax.numpy as jnp
        >>> double = be_runtime.XLACustomKernel("doc_double")
        >>> double.def_kernel("jax", "cpu", lambda outs: lambda x: [2 * x])
        >>> double.def_call(
        ...     lambda x, backend=None: double(x, outs=jax.ShapeDtypeStruct(x.shape, x.dtype), backend=backend)
        ... )
        >>> double.def_benchmark_data(lambda platform: [be_runtime.BenchmarkConfig("small", (jnp.arange(8.0),))])
        >>> result = double.benchmark(n_runs=2, calls=10)
        >>> result.fastest("small").backend
        'jax'
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


REGISTRY: dict[str, XLACustomKernel] = {}
"""The operations of this process by name; of several with one name, the last one counts."""
