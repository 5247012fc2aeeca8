"""`cutile_kernel`: compile a function of ``@ct.kernel``, and launch it without Python on XLA's stream."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from be_runtime.call.array_function import ArrayFunction, ArrayKernel
from be_runtime.call.attributes import Options, check_options
from be_runtime.call.resolve import Resolved
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.frames import public
from be_runtime.jax.arrays import ArraySpec, Value
from be_runtime.kernels import launcher
from be_runtime.kernels.content import Content, function_content
from be_runtime.kernels.cubin import Declared
from be_runtime.kernels.device_code import kernel_facts, read_code
from be_runtime.kernels.geometry import LaunchParam, scalar_param, strided_param
from be_runtime.kernels.launcher import Compiled, Kernel, KernelImage, Origin
from be_runtime.kernels.parameters import (
    Argument,
    VariantCode,
    check_constants,
    grid_geometry,
    is_aligned,
    match_arguments,
    split_axes,
    takes_slices,
    with_constants,
)
from be_runtime.kernels.sizes import Size, read_sizes
from be_runtime.kernels.source import Bound, Code, GpuSource, Launch, Variant, scalar_of
from be_runtime.kernels.tile_types import (
    LARGEST,
    Array,
    Constant,
    Hint,
    array_type,
    constraint_of,
    scalar_type,
    sizes_of,
)
from be_runtime.load.identity import Field, own_code_digest
from be_runtime.load.registry import Session
from be_runtime.request.options import check_arch_list, check_bool, note
from be_runtime.signature.model import Param, Role
from be_runtime.store.keys import make_key
from be_toolchain.arch import Arch
from be_toolchain.errors import ArchError, ToolchainError
from be_toolchain.find.devices import probe_devices
from be_toolchain.known.versions import version_key
from be_toolchain.machine.system import System

_INSTALL = "pip install 'brainevent-toolchain[cutile]'"
_OLDEST, _TOO_NEW = (1, 7), (2,)
"""Releases of cuda.tile: the first one whose exported kernels are supported, and the first one that may differ."""
_DRIVER = "13.0"
"""CUDA release of the first driver that runs cuTile's kernels."""
_BY_NAME = ("cuda.tile",)
"""Package that counts by name and version, see `function_content`."""
_SETTINGS = ("CUDA_TILE_TESTING_", "EXPERIMENTAL_CUDA_TILE_")
"""Prefixes of the variables that change the code."""
_RELEASE = re.compile(r"release \d+\.\d+, V([\d.]+)")
_TARGET = re.compile(r"=(sm_\d+)\b")


class TileKernel(NamedTuple):
    """A cuTile function with all inputs of its compilation.

    Parameters
    ----------
    function : cuda.tile.kernel
    read : AnnotatedFunction
        The Python function, its parameters and their annotations, as cuTile reads them.
    parameters : tuple of (str, Constant, Array or str)
        The name of each parameter and its type; a text is the type of a number.
    """

    function: Any
    read: Any
    parameters: tuple[tuple[str, Constant | Array | str], ...] = ()

    @classmethod
    def of(cls, function: Any, hints: Mapping[str, int]) -> TileKernel:
        """Describe a function of ``@ct.kernel``; options of cuTile replace the decorator's options.

        Raises
        ------
        ArgumentError
            An option has a value that cuTile refuses.
        """
        import cuda.tile as ct

        for option, value in hints.items():
            if type(value) is not int and not isinstance(value, ct.ByTarget):
                problem = f"{option} must be a whole number or a ct.ByTarget of them, not {value!r}"
                raise ArgumentError(f"cuTile refuses the options {hints}: {problem}")
        try:
            chosen = function.replace_hints(**hints)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"cuTile refuses the options {hints}: {error}") from None
        return cls(chosen, chosen._annotated_function)  # noqa: SLF001 - cuTile has no public name for it

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(self.read.pyfunc.__name__)

    def for_variant(self, names: Sequence[str], variant: Variant) -> TileKernel:
        """Return the kernel for the types of its arguments."""
        types: dict[str, Constant | Array | str] = dict(self.parameters)
        for name, text in zip(names, variant, strict=True):
            types[name] = Array.parse(text) if text.startswith("[") else text
        return self._replace(parameters=tuple((name, types[name]) for name in self.annotations))

    def build(self, archs: tuple[Arch, ...], session: Session, *, with_ptx: bool = False) -> Kernel:  # noqa: ARG002
        """Return the compiled kernel, from the cache or compiled now; cuTile makes no PTX."""
        import cuda.tile as ct

        check_driver(session.system)
        compiler = (ct.__version__, find_assembler(session.system).version)
        content, environ = self.content(), session.system.environ

        def compile_now(_staging: object) -> Compiled:
            return Compiled(tuple(compile_cutile(self, arch, session.system) for arch in archs), compiler=compiler)

        if content.anchors:
            return launcher.compile_uncached(self.name, session, compile_now)
        options = repr(self.function._compiler_options)  # noqa: SLF001 - the decorator's have no public name
        fields: tuple[Field, ...] = (
            *(("name", self.name), ("content", content.digest), ("options", options)),
            ("parameters", [f"{name}: {each!r}" for name, each in self.parameters]),
            *(("compiler", compiler), ("archs", [arch.sm for arch in archs])),
            ("host", session.system.machine),  # the driver runs a part of the code there, before a launch
            ("settings", [f"{each}={environ[each]}" for each in sorted(environ) if each.startswith(_SETTINGS)]),
        )
        return launcher.obtain_kernel(
            make_key("cutile", *fields, ("generator", own_code_digest())),
            Origin(make_key("cutile", *fields)),
            compile_now,
            self.name,
            session,
        )

    def content(self) -> Content:
        """Return the content of the function and of the constants."""
        return function_content((self.read.pyfunc, self.constants), _BY_NAME, with_objects=True)

    @property
    def constants(self) -> tuple[tuple[str, Any], ...]:
        """The constants by name."""
        return tuple((name, each.value) for name, each in self.parameters if isinstance(each, Constant))

    @property
    def annotations(self) -> dict[str, Any]:
        """The annotation of each parameter of the function."""
        return dict(zip(self.read.pysig.parameters, self.read.parameter_annotations, strict=True))


@public
def cutile_kernel(
    function: Any,
    signature: str | Sequence[str],
    *,
    grid: Size,
    num_ctas: int | None = None,
    occupancy: int | None = None,
    opt_level: int | None = None,
    num_worker_warps: int | None = None,
    programmatic_dependent_launch: bool = False,
    compute_capability: str | Sequence[str] | None = None,
    outs: Any = None,
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    ordered: bool = False,
    random: bool = False,
    **constants: Any,
) -> ArrayFunction:
    """Make a cuTile kernel callable from JAX. Native code launches the kernel on XLA's stream.

    cuTile compiles the kernel when JAX first traces a call, for the dtypes and numbers of dimensions of the call. The
    cache keeps the machine code.

    Parameters
    ----------
    function : cuda.tile.kernel
        Function decorated with ``@ct.kernel``.
    signature : str or sequence of str
        Tokens for the parameters that are not constants, in the function's order: ``arg``, ``ret``, ``inout`` and
        ``scratch`` with axes for arrays, and ``attr.NAME:TYPE`` for numbers. A parameter with the name of an input's
        axis, such as ``n``, needs no token: the value of the parameter is the extent of the axis. The token ``=n``
        passes the extent of the axis ``n``.
    grid : int, str, tuple of int or str, or callable
        Number of tile blocks along one to three axes. A string is arithmetic over the axes of the signature and the
        names of constants, such as ``"ceil(n/BLOCK)"``. A callable receives the shapes and dtypes of the inputs.
    num_ctas : int, optional
        Number of blocks per cluster. The default is the value of ``@ct.kernel``.
    occupancy : int, optional
        Expected number of blocks on a multiprocessor. The default is the value of ``@ct.kernel``.
    opt_level : int, optional
        Level of optimization, 0 to 3. The default is the value of ``@ct.kernel``.
    num_worker_warps : int, optional
        Number of warps in each group of a warp-specialized kernel. The default is the value of ``@ct.kernel``.
    programmatic_dependent_launch : bool, default False
        Let the kernel start before the previous kernel ends. Your kernel must call ``ct.grid_dependency_control_wait``
        before using memory that the previous kernel reads or writes.
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
        gets both arrays.
    has_side_effect : bool, default False
        Run the kernel even if the program does not use the results. XLA chooses the order of such calls.
    ordered : bool, default False
        Run all calls with this option in the order of the program. This option implies `has_side_effect`.
    random : bool, default False
        Declare that results differ from call to call. Otherwise the checks of `be_runtime.debug` report the difference.
    **constants
        Values of the function's ``ct.Constant`` parameters. You can also pass a constant value for any other parameter.

    Returns
    -------
    callable
        Function that takes the inputs by position and the attributes by name, and returns the results.

    Raises
    ------
    ImportError
        ``cuda.tile`` is not installed, its release is older than 1.7, or its release is 2.0 or later.
    ArgumentError
        The tokens don't fit the function's parameters, an option has a wrong value, or `function` is not decorated with
        ``@ct.kernel``. At a call: no architecture is named, and the machine has no GPU.
    ToolchainError
        At a call: cuTile's assembler ``tileiras`` is missing or too old for the architecture, or the driver is too old.
    BuildError
        At a call: cuTile can't compile the kernel.

    See Also
    --------
    - :doc:`/other-compilers`: kernels from cuTile, CuTe DSL, TileLang and FlashInfer.

    Examples
    --------
    >>> import be_runtime
    >>> import cuda.tile as ct  # doctest: +SKIP
    >>> import jax.numpy as jnp
    >>> @ct.kernel  # doctest: +SKIP
    ... def add_kernel(x, y, out, BLOCK: ct.Constant[int]):
    ...     i = ct.bid(0)
    ...     tile = ct.load(x, index=(i,), shape=(BLOCK,)) + ct.load(y, index=(i,), shape=(BLOCK,))
    ...     ct.store(out, index=(i,), tile=tile)
    >>> add = be_runtime.cutile_kernel(  # doctest: +SKIP
    ...     add_kernel, "arg[n] arg[n] ret[n]", grid="ceil(n/BLOCK)", BLOCK=1024
    ... )
    >>> add(jnp.ones(4), jnp.ones(4)).tolist()  # doctest: +SKIP
    [2.0, 2.0, 2.0, 2.0]
    """
    options = check_options(locals())
    hints = {"num_ctas": num_ctas, "occupancy": occupancy, "opt_level": opt_level, "num_worker_warps": num_worker_warps}
    is_programmatic = check_bool(programmatic_dependent_launch, "programmatic_dependent_launch")
    kernel, layout = read_kernel(function, signature, constants, hints, options, is_programmatic=is_programmatic)
    code = VariantCode(kernel, layout.arguments, check_arch_list(compute_capability, "compute_capability"))
    note(f"cutile {kernel.name} {kernel.content().digest} {kernel.parameters}")
    return tile_function(layout, code, with_constants(kernel.name, grid, dict(kernel.constants)), options)


def tile_function(layout: TileLayout, code: Code, grid: Size, options: Options) -> ArrayFunction:
    """Make the function of JAX arrays of a cuTile kernel from any source of code; see `cutile_kernel`."""
    label, signature = layout.label, layout.declared.signature
    source = GpuSource(layout, code, read_sizes(label, {"grid": grid}, signature, grid_geometry))
    source.sizes.check(options.outs)
    doc, numbers = f"The cuTile kernel {label}; see `be_runtime.cutile_kernel`.", signature.with_role(Role.ATTR)
    return ArrayFunction(ArrayKernel(label, label, doc, signature, source, numbers, by_slice=True), options)


def read_kernel(
    function: Any,
    signature: object,
    constants: Mapping[str, Any],
    hints: Mapping[str, int | None],
    options: Options,
    *,
    is_programmatic: bool,
) -> tuple[TileKernel, TileLayout]:
    """Check the arguments of `cutile_kernel` that describe a kernel, and return the kernel without types.

    Parameters
    ----------
    hints : mapping of str to int or None
        cuTile's options.
    options : Options
        Options of the calls.
    """
    _check_function(function)
    chosen = {name: value for name, value in hints.items() if value is not None}
    base = TileKernel.of(function, chosen)
    params, nodes = base.read.pysig.parameters, base.annotations
    marked = {name for name, node in nodes.items() if getattr(node, "constant", False)}
    defaults = {name: params[name].default for name in marked if params[name].default is not params[name].empty}
    given = {**defaults, **constants}
    wanted = marked | ({*given} & {*params})
    check_constants(base.name, wanted, (), given)
    names = [name for name in params if name not in wanted]
    for name in names:
        if getattr(nodes[name], "KIND", "leaf") != "leaf" or nodes[name].list is not None:
            hint = "declare each array as a parameter of its own, or pass constants by keyword"
            raise ArgumentError(f"{base.name}: {name} is a tuple or a list, which has no token", hints=(hint,))
    known = {name: Hint.of(nodes[name]) for name in names}
    kernel = base._replace(parameters=tuple((name, Constant(value)) for name, value in given.items()))
    return kernel, layout_of(base.name, names, signature, known, options, is_programmatic=is_programmatic)


def _check_function(function: Any) -> None:
    """Check that the release of cuTile is supported, and that a function is decorated with ``@ct.kernel``."""
    try:
        import cuda.tile as ct
    except ImportError as error:
        problem = f"cutile_kernel needs cuTile (cuda.tile), which can't be imported: {error}"
        raise ImportError(f"{problem}\nhint: {_INSTALL}") from error
    if not _OLDEST <= version_key(ct.__version__) < _TOO_NEW:
        known = f"cuda-tile from {'.'.join(map(str, _OLDEST))} on, below {_TOO_NEW[0]}"
        raise ImportError(f"cutile_kernel needs {known}, and {ct.__version__} is installed\nhint: {_INSTALL}")
    if not isinstance(function, ct.kernel):
        raise ArgumentError(f"function must be decorated with @ct.kernel, not {function!r}")


def layout_of(
    label: str,
    names: Sequence[str],
    signature: object,
    hints: Mapping[str, Hint],
    options: Options,
    *,
    is_programmatic: bool,
) -> TileLayout:
    """Give each parameter that is not a constant its token or its axis."""
    declared, arguments, constants = match_arguments(label, names, signature)
    if constants:
        raise ArgumentError(
            f"{label}: the token of {', '.join(constants)} is a constant",
            hints=("pass it as a keyword argument: cutile_kernel(..., stride=1)",),
        )
    inputs = len(declared.signature.with_role(Role.ARG))
    shared = [(source, inputs + target) for source, target in options.aliases]
    arrays = (name for name, param in arguments if isinstance(param, Param) and param.role is not Role.ATTR)
    groups = {
        name: tuple(f"memory{pair[0]}" for pair in shared if at in pair and {*pair} <= {*declared.order})
        for name, at in zip(arrays, declared.order, strict=True)
    }
    may_be_slice = takes_slices(options, declared.signature)
    return TileLayout(label, declared, arguments, hints, groups, may_be_slice, is_programmatic)


class TileLayout(NamedTuple):
    """The arguments of a cuTile kernel.

    Parameters
    ----------
    label : str
    declared : Declared
    arguments : tuple of Argument
    hints : mapping of str to Hint
    groups : mapping of str to tuple of str
        A name for the memory that an array shares with another one, if any.
    may_be_slice : bool
        True if an array of a call may be a slice of a batch, which may begin anywhere.
    is_programmatic : bool
    """

    label: str
    declared: Declared
    arguments: tuple[Argument, ...]
    hints: Mapping[str, Hint]
    groups: Mapping[str, tuple[str, ...]]
    may_be_slice: bool
    is_programmatic: bool

    def bind(self, call: Resolved, scalars: Mapping[str, Value]) -> Bound:
        """Bind the parameters to the buffers, extents and scalars of a call."""
        specs, rest = (*call.inputs, *call.results), iter(self.declared.order)
        params: list[LaunchParam] = []
        for name, param in self.arguments:
            if isinstance(param, str):
                params.append(scalar_param(call.values[param].to_bytes(8, "little")))
            elif param.role is Role.ATTR:
                params.append(scalar_of(scalars[name]))
            else:
                at = next(rest)
                params.append(strided_param(at, specs[at].ndim, specs[at].dtype.bits))
        aligned = [is_aligned(spec, may_be_slice=self.may_be_slice) for spec in specs]
        exact = self.types(specs, call.values, aligned)
        one = self.types(specs, call.values, [all(aligned)] * len(aligned))
        general = tuple(each if isinstance(each, str) else each.general.text for each in one)
        extents = tuple((at, param) for at, (_, param) in enumerate(self.arguments) if isinstance(param, str))
        return Bound(tuple(params), tuple(map(_text, exact)), general, extents)

    def types(
        self, specs: Sequence[ArraySpec], values: Mapping[str, int], aligned: Sequence[bool]
    ) -> tuple[Array | str, ...]:
        """Return the types of the arguments for some arrays and extents of axes.

        Parameters
        ----------
        aligned : sequence of bool
            For each array, whether it begins at a multiple of 16 bytes.
        """
        is_split, rest = bool(split_axes(self.declared.signature)), iter(self.declared.order)
        types: list[Array | str] = []
        for name, param in self.arguments:
            if isinstance(param, str):
                is_wide = values.get(param, 0) > LARGEST or self.hints[name].bits == 64
                types.append("int64" if is_wide else "int32")
            elif param.role is Role.ATTR:
                assert param.dtype is not None, "declare() raises for a scalar without a type"
                types.append(scalar_type(f"{self.label}: {name}", param.dtype.name))
            else:
                at, label = next(rest), f"{self.label}: {name}"
                made = array_type(label, specs[at], self.hints[name], is_aligned=aligned[at], is_split=is_split)
                types.append(made._replace(alias_groups=self.groups[name]))
        return tuple(types)

    def variants(self, specs: Sequence[ArraySpec]) -> tuple[Variant, ...]:
        """Return the variants to build for arrays of any extents: addresses are divisible by 16, or are not.

        Raises
        ------
        ArgumentError
            Extents or strides are constants of the code, so that it can't be built ahead of time.
        """
        static = [name for name, hint in self.hints.items() if hint.static_shape or hint.static_stride]
        if static:
            raise ArgumentError(f"{self.label}: {static[0]} has constant extents or strides, which depend on the call")
        made = [self.types(specs, {}, [is_aligned] * len(specs)) for is_aligned in (True, False)]
        return tuple(
            tuple(each if isinstance(each, str) else each.general.text for each in types)
            for types in (made if self.may_be_slice else made[:1])
        )

    def fit(self, launch: Launch, _kernel: Kernel, _call: Resolved) -> Launch:
        """Return the launch; a tile block is a block of one thread, and the driver chooses the threads by the code."""
        return launch.with_geometry(is_programmatic=self.is_programmatic)


def _text(each: Array | str) -> str:
    return each if isinstance(each, str) else each.text


def check_driver(system: System) -> None:
    """Check that the driver of this machine, if there is one, runs cuTile's kernels.

    Raises
    ------
    ToolchainError
    """
    driver = probe_devices(system).driver_version
    if driver is not None and version_key(driver) < version_key(_DRIVER):
        raise ToolchainError(
            f"cuTile's kernels need a driver for CUDA {_DRIVER} or later, and the driver here is for CUDA {driver}",
            hints=("install a driver of release 580 or later",),
        )


class Assembler(NamedTuple):
    """The program ``tileiras``, with which cuTile makes machine code.

    Parameters
    ----------
    version : str
    archs : tuple of Arch
        Its architectures.
    """

    version: str
    archs: tuple[Arch, ...]


def find_assembler(system: System) -> Assembler:
    """Find the ``tileiras`` that cuTile uses.

    Raises
    ------
    ToolchainError
        The program is missing or does not run.
    """
    from cuda.tile._compile import _find_compiler_bin

    try:
        path = _find_compiler_bin().path
    except FileNotFoundError as error:
        one_release = "nvidia-cuda-tileiras, nvidia-cuda-nvcc and nvidia-nvvm must be of one release of CUDA"
        raise ToolchainError(f"cutile_kernel needs tileiras: {error}", hints=(_INSTALL, one_release)) from error
    version, usage = system.run_all(((path, "--version"), (path, "--help")))
    found = _RELEASE.search(version.stdout)
    if found is None:
        said = version.problem or version.stdout + version.stderr
        raise ToolchainError(f"{path} does not print its version: {said.strip()}", hints=(_INSTALL,))
    return Assembler(found[1], tuple(map(Arch.parse, _TARGET.findall(usage.stdout))))


def compile_cutile(kernel: TileKernel, arch: Arch, system: System) -> KernelImage:
    """Compile a kernel for an architecture, with or without a device.

    Raises
    ------
    ArchError
        ``tileiras`` is too old for the architecture.
    BuildError
        cuTile refuses the kernel, or its code has other parameters than expected.
    """
    from cuda.tile.compilation import CallingConvention, KernelSignature, export_kernel

    assembler = find_assembler(system)
    if arch.base not in assembler.archs:
        raise ArchError(
            f"tileiras {assembler.version} can't compile {kernel.name} for {arch.sm}; its architectures are "
            f"{', '.join(each.sm for each in assembler.archs)}",
            hints=("install the newest release: pip install -U 'cuda-toolkit[nvcc,nvvm,tileiras]'",),
        )
    written = io.BytesIO()
    try:
        constraints = [constraint_of(each) for _, each in kernel.parameters]
        signature = KernelSignature(constraints, CallingConvention.cutile_python_v2(), symbol=kernel.name)
        export_kernel(kernel.function, [signature], written, gpu_code=arch.base.sm, output_format="cubin")
    except Exception as error:
        # cuTile raises its own errors, and its passes raise any others because of the author's code.
        raise BuildError(f"cuTile can't compile the kernel {kernel.name} for {arch.sm}", output=str(error)) from error
    code = read_code(written.getvalue(), f"{kernel.name} by cuTile")
    found = kernel_facts(code, kernel.name).sizes
    expected = tuple(size for _, each in kernel.parameters for size in sizes_of(each))
    if found != expected:
        raise BuildError(
            f"{kernel.name} has parameters of {found} bytes in the code of tileiras {assembler.version}, and "
            f"parameters of {expected} bytes are expected"
        )
    return KernelImage(code.arch, kernel.name, code.data)
