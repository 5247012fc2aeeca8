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

    A *generator* is a function that makes a kernel. The generator takes the keywords of a call and ``outs``, a tuple of
    ShapeDtypeStruct, and returns a function from arrays to arrays, such as a kernel made by `numba_kernel`. When JAX
    compiles a program for the generator's platform, JAX calls the generator.

    If a kernel or a rule is defined after the operation was used, JAX traces and compiles all programs again.

    Parameters
    ----------
    name : str
        Name of the operation, which error messages and printed jaxprs show.
    doc : str, optional
        Description of the operation, its ``__doc__``.

    Attributes
    ----------
    name : str
        Name of the operation.
    tags : frozenset of str
        Search words, added by `def_tags`.
    primitive : jax.extend.core.Primitive
        JAX primitive, for which other packages can define rules.

    See Also
    --------
    - `set_backend`: prefer a backend in all operations.
    - :doc:`/custom-kernels`: an operation with kernels in C++, CUDA, Warp and Pallas.

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
            Inputs of the kernel.
        outs : ShapeDtypeStruct or pytree of them
            Shape and dtype of each result.
        backend : str, optional
            Backend of the kernel. By default, the backends are tried in the order of `available_backends`. If a package
            or a compiler that a kernel needs is missing, the kernel of the next backend is used, and a
            `FallbackWarning` is issued.
        **keywords
            Keywords of the generator and the rules. JAX compiles a program for each value, so values must be hashable.

        Returns
        -------
        pytree of array
            Results, in the structure of `outs`.

        Raises
        ------
        ArgumentError
            `outs` does not describe arrays, or the value of a keyword can't be hashed.
        KernelNotAvailableError
            The operation has no kernel of the backend, or no kernel for the platform of the program.
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
        """Define the kernel of a backend for a platform, or replace an earlier kernel.

        Parameters
        ----------
        backend : str
            Name of the backend: any text, such as ``"cpp"``.
        platform : {"cpu", "gpu", "tpu"}
            Platform of the kernel.
        kg : callable
            Generator. The generator takes the keywords of a call and ``outs``, a tuple of ShapeDtypeStruct, and returns
            a function from arrays to arrays.
        asdefault : bool, default False
            Make the backend the platform's default. Without a default, the backend that was defined first is used.

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
        """Define the CPU kernel of the backend ``"numba"``: a kernel of `numba_kernel`.

        Parameters
        ----------
        kg : callable
            Function that makes the kernel: the argument `kg` of `def_kernel`.
        asdefault : bool, default False
            Make the backend the platform's default.
        """
        self.def_kernel("numba", "cpu", kg, asdefault)

    def def_numba_cuda_kernel(self, kg: Generator, asdefault: bool = False) -> None:
        """Define the GPU kernel of the backend ``"numba_cuda"``: a kernel of `numba_cuda_kernel`.

        Parameters
        ----------
        kg : callable
            Function that makes the kernel: the argument `kg` of `def_kernel`.
        asdefault : bool, default False
            Make the backend the platform's default.
        """
        self.def_kernel("numba_cuda", "gpu", kg, asdefault)

    def def_cuda_raw_kernel(self, kg: Generator, asdefault: bool = False) -> None:
        """Define the GPU kernel of the backend ``"cuda_raw"``: a kernel of `cuda_kernel` or a loaded module.

        Parameters
        ----------
        kg : callable
            Function that makes the kernel: the argument `kg` of `def_kernel`.
        asdefault : bool, default False
            Make the backend the platform's default.
        """
        self.def_kernel("cuda_raw", "gpu", kg, asdefault)

    def def_warp_kernel(self, kg: Generator, asdefault: bool = False, *, platform: str = "gpu") -> None:
        """Define the kernel of the backend ``"warp"``: a kernel of `warp_kernel`.

        Parameters
        ----------
        kg : callable
            Function that makes the kernel: the argument `kg` of `def_kernel`.
        asdefault : bool, default False
            Make the backend the platform's default.
        platform : {"cpu", "gpu"}, default "gpu"
            Platform of the kernel.
        """
        self.def_kernel("warp", platform, kg, asdefault)

    def def_triton_kernel(self, kg: Generator, asdefault: bool = False) -> None:
        """Define the GPU kernel of the backend ``"triton"``: a kernel of `triton_kernel`.

        Parameters
        ----------
        kg : callable
            Function that makes the kernel: the argument `kg` of `def_kernel`.
        asdefault : bool, default False
            Make the backend the platform's default.
        """
        self.def_kernel("triton", "gpu", kg, asdefault)

    def def_pallas_kernel(self, platform: str, kg: Generator, asdefault: bool = False) -> None:
        """Define the kernel of the backend ``"pallas"`` for a platform.

        Parameters
        ----------
        platform : {"cpu", "gpu", "tpu"}
            Platform of the kernel.
        kg : callable
            Function that makes the kernel: the argument `kg` of `def_kernel`.
        asdefault : bool, default False
            Make the backend the platform's default.
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
            Names, in the order in which the backends are tried: first the backend that `set_backend` prefers, then the
            default, then the other backends in the order of definition.
        """
        return self._preferred().backends(check_platform(platform))

    def get_default(self, platform: str) -> str | None:
        """Return the operation's default backend for a platform, regardless of `set_backend`.

        Parameters
        ----------
        platform : {"cpu", "gpu", "tpu"}
            Platform.

        Returns
        -------
        str or None
            Name of the backend; None if there is no kernel for the platform.
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
        """Set the rule for ``vmap``.

        Parameters
        ----------
        rule : callable
            ``rule(arguments, axes, **parameters)`` returns a pair: the results, and the axis of the batch in each
            result. The axis of an argument or a result is None if all elements of the batch share this array. The
            parameters are the keywords of the call and also ``outs`` and ``backend``. To compute one
            element of the batch in the rule, call ``operation(*arguments, **parameters)`` with the arguments of this
            element.
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
        """Set the general rule for ``vmap``, which is the default.

        The general rule calls the kernel under ``vmap``. If the kernel has no rule for ``vmap``, the general rule calls
        the kernel for one element after the other.
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
        """Apply the general rule for ``vmap`` to a batch, for example inside a rule of `def_batching_rule`.

        Parameters
        ----------
        arguments : sequence of array
            Inputs, with the axis of the batch.
        axes : sequence of (int or None)
            Axis of the batch in each input; None for an input that all elements share.
        outs : ShapeDtypeStruct or pytree of them
            Shape and dtype of each result of one element.
        backend : str, optional
            Backend of the kernel.
        **keywords
            Keywords of the call.

        Returns
        -------
        tuple
            Pair of the results, and the axis of the batch in each result.
        """
        leaves, _ = port.flatten(outs)
        call = self._describe(leaves, backend, keywords)
        return transforms.batch(self.primitive.bind, arguments, axes, call=call)

    def def_jvp_rule(self, rule: Function) -> None:
        """Set the JVP rule, from which JAX computes derivatives.

        Parameters
        ----------
        rule : callable
            ``rule(primals, tangents, **parameters)`` returns a pair: the results and their tangents. A tangent may be a
            symbolic zero, ``jax.interpreters.ad.Zero``. The parameters are the keywords of the call, ``outs`` and
            ``backend``.
        """
        with self._changing():
            transforms.jvp_rules[self.primitive] = partial(transforms.jvp, self.name, rule)

    def def_jvp_rule2(self, *rules_by_input: Function | None) -> None:
        """Set the JVP rule as one rule for each input.

        Parameters
        ----------
        *rules_by_input : callable or None
            ``rule(tangent, *primals, **parameters)`` returns the tangents of the results for the tangent of one input.
            None stands for a derivative of zero.

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
        """Set the transpose rule, for reverse-mode derivatives of an operation that is linear in some inputs.

        Parameters
        ----------
        rule : callable
            ``rule(cotangents, *arguments, **parameters)`` returns the cotangent of each linear argument, and None for
            the others. Linear arguments are passed as ``jax.interpreters.ad.UndefinedPrimal``.
        """
        with self._changing():
            transforms.transpose_rules[self.primitive] = partial(transforms.transpose, self.name, rule)

    # Public function, tags and benchmark

    def def_call(self, function: Function) -> None:
        """Set the operation's public function. The methods `call` and `benchmark` run this function.

        Parameters
        ----------
        function : callable
            Function called as ``function(*arrays, backend=..., **keywords)``.

        Raises
        ------
        ArgumentError
            The argument is not callable.
        """
        if not callable(function):
            raise ArgumentError(f"{self.name}: def_call takes a function, not {function!r}")
        self._function = function

    def call(self, *inputs: Any, **keywords: Any) -> Any:
        """Call the function that `def_call` set. If no function was set, call the operation itself.

        Parameters
        ----------
        *inputs : array
            Inputs.
        **keywords
            Keyword arguments of the function.

        Returns
        -------
        pytree of array
            Results of the function.
        """
        return (self._function or self)(*inputs, **keywords)

    def def_tags(self, *tags: str) -> None:
        """Add tags, which are search words for `get_primitives_by_tags`.

        Parameters
        ----------
        *tags : str
            Words.
        """
        self.tags |= frozenset(map(check_name, tags))

    def def_benchmark_data(self, function: Function) -> None:
        """Set the function that returns the configurations of `benchmark`.

        Parameters
        ----------
        function : callable
            ``function(platform=...)`` returns `BenchmarkConfig` objects.

        Raises
        ------
        ArgumentError
            The argument is not callable.
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
        """Time each backend on each configuration of `def_benchmark_data`, in turns.

        A sample is ``(t2 - t1) / calls`` in seconds: `t1` is the time of a compiled loop with `calls` iterations, and
        `t2` is the time of a loop with ``2 * calls`` iterations. The difference excludes the time that JAX takes to
        start the program. Each call waits for all results of the previous call.

        Parameters
        ----------
        platform : {"cpu", "gpu", "tpu"}, default "cpu"
            Platform. Its first device is used.
        backends : sequence of str, optional
            Backends to time. By default, all backends with a kernel for the platform are timed.
        n_warmup : int, default 2
            Number of samples that are discarded.
        n_runs : int, default 10
            Number of samples that are kept.
        calls : int, default 100
            Number of calls in a loop.

        Returns
        -------
        BenchmarkResult
            Measurements. The record of a backend that fails contains the error.

        Raises
        ------
        BenchmarkDataFnNotProvidedError
            `def_benchmark_data` was not called.
        ArgumentError
            JAX has no device of the platform, or a number is too small.

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
