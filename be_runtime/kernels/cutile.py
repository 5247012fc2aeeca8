"""`cutile_kernel`: compile a function of ``@ct.kernel``, and launch it without Python on XLA's stream."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from be_runtime.call.attributes import Options, check_options
from be_runtime.call.compiled_function import CompiledFunction, KernelTarget
from be_runtime.call.function import ArrayFunction, ArrayKernel
from be_runtime.call.resolve import Resolved
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.frames import public
from be_runtime.jax.arrays import ArraySpec, Numbers, Value
from be_runtime.kernels import launcher
from be_runtime.kernels.cubin import Declared, declare, kernel_facts, read_code
from be_runtime.kernels.geometry import LaunchParam, scalar_param, strided_param
from be_runtime.kernels.launcher import Compiled, Kernel, KernelImage, Obtained, Origin
from be_runtime.kernels.numba.source import function_content
from be_runtime.kernels.parameters import (
    DIVISIBLE,
    Argument,
    grid_geometry,
    is_aligned,
    launch_target,
    match_arguments,
    split_axes,
    takes_slices,
    with_constants,
)
from be_runtime.kernels.raw import Size, Sizes, read_sizes
from be_runtime.load.identity import Field, own_code_digest
from be_runtime.load.process import PROCESS
from be_runtime.load.registry import Session
from be_runtime.request.options import check_arch_list, check_bool, note
from be_runtime.signature.model import Role
from be_runtime.store.keys import make_key
from be_toolchain.arch import Arch
from be_toolchain.errors import ArchError, ToolchainError
from be_toolchain.find.devices import probe_devices
from be_toolchain.known.versions import version_key
from be_toolchain.machine.system import System

_INSTALL = "pip install 'brainevent-toolchain[cutile]'"
_OLDEST, _TOO_NEW = (1, 7), (2,)
"""Releases of cuda.tile: the first whose exported kernels are known, and the first that may differ."""
_DRIVER = "13.0"
"""CUDA release of the first driver that runs cuTile's kernels."""
_LARGEST = 2**31 - 1
_SETTINGS = ("CUDA_TILE_TESTING_", "EXPERIMENTAL_CUDA_TILE_")
"""Beginnings of the variables that change the code."""
_TYPES = frozenset(
    {
        *("bool", "bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    }
)
"""Element types of whole bytes; ``cuda.tile`` has them by the same names, except ``bool_``."""
_RELEASE = re.compile(r"release \d+\.\d+, V([\d.]+)")
_TARGET = re.compile(r"=(sm_\d+)\b")


class Constant(NamedTuple):
    """A parameter that is a constant of the compiled kernel."""

    value: Any


class Array(NamedTuple):
    """An array as cuTile compiles for it, see ``cuda.tile.compilation.ArrayConstraint``.

    Parameters
    ----------
    dtype : str
        Name of the element type in JAX.
    index_bits : int
        32 or 64: bits of each extent and stride.
    shape_constant, stride_constant : tuple of (int or None)
    shape_divisible_by, stride_divisible_by : tuple of int
    base_addr_divisible_by : int
    alias_groups : tuple of str
        One for the array that shares its memory, if any.
    """

    dtype: str
    index_bits: int
    shape_constant: tuple[int | None, ...]
    stride_constant: tuple[int | None, ...]
    shape_divisible_by: tuple[int, ...]
    stride_divisible_by: tuple[int, ...]
    base_addr_divisible_by: int
    alias_groups: tuple[str, ...] = ()


class TileKernel(NamedTuple):
    """A cuTile function with all that it is compiled for.

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
        """Describe a function of ``@ct.kernel`` with some of cuTile's options in place of the decorator's."""
        chosen = function.replace_hints(**hints)
        return cls(chosen, chosen._annotated_function)  # noqa: SLF001 - cuTile has no public name for it

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(self.read.pyfunc.__name__)

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
) -> CompiledFunction:
    """Make a cuTile kernel callable from JAX, launched natively on XLA's stream.

    cuTile compiles the kernel when JAX first traces it, for the dtypes and dimensions of the call; the cache keeps the
    machine code.

    Parameters
    ----------
    function : cuda.tile.kernel
        A function decorated with ``@ct.kernel``.
    signature : str or sequence of str
        One token for each parameter that is no constant, in the function's order, see `be_runtime.cubin_kernel`. A
        parameter with the name of an axis of an input, such as ``n``, has no token: it gets the axis's extent.
    grid : int, str, tuple of int or str, or callable
        Number of tile blocks, see `be_runtime.cuda_kernel`. A text may name the constants, too: ``"ceil(n/BLOCK)"``.
    num_ctas, occupancy, opt_level, num_worker_warps : int, optional
        cuTile's options, in place of the decorator's.
    programmatic_dependent_launch : bool
        True for a kernel that may begin before the previous kernel ends, and waits by
        ``ct.grid_dependency_control_wait``.
    compute_capability : str or list of str, optional
        Architecture, such as ``"sm_90"``, or several; by default the architectures of the present devices.
    outs, vmap_method, input_output_aliases, has_side_effect, ordered, random
        See `be_runtime.cuda_kernel`.
    **constants
        Values of the function's ``ct.Constant`` parameters. Other parameters may be constants, too.

    Returns
    -------
    callable
        Takes the inputs, and each ``attr`` as a keyword argument; returns the outputs.

    Raises
    ------
    ImportError
        ``cuda.tile`` is not installed, or not a release from 1.7 on, below 2.
    ArgumentError
        The tokens don't fit the function's parameters, or `function` is not one of ``@ct.kernel``.
    ToolchainError
        At a call: there is no ``tileiras``, it is too old for the architecture, or the driver is too old.
    BuildError
        At a call: cuTile refuses the kernel.

    Examples
    --------
    >>> add = cutile_kernel(  # doctest: +SKIP
    ...     add_kernel, "arg[n] arg[n] ret[n]", grid="ceil(n/BLOCK)", BLOCK=1024
    ... )
    """
    options = check_options(locals())
    _check_function(function)
    asked = check_arch_list(compute_capability, "compute_capability")
    hints = {"num_ctas": num_ctas, "occupancy": occupancy, "opt_level": opt_level, "num_worker_warps": num_worker_warps}
    base = TileKernel.of(function, {name: value for name, value in hints.items() if value is not None})
    params, nodes = base.read.pysig.parameters, base.annotations
    marked = {name for name, node in nodes.items() if getattr(node, "constant", False)}
    defaults = {name: params[name].default for name in marked if params[name].default is not params[name].empty}
    given = {**defaults, **constants}
    declared = declare(base.name, signature)
    wanted = marked | ({*given} & {*params})
    arguments = match_arguments(base.name, [*params], wanted, (), declared, given)
    for name, _ in arguments:
        if getattr(nodes[name], "KIND", "") != "leaf" or nodes[name].list is not None:
            hint = "declare each array as a parameter of its own, or pass constants by keyword"
            raise ArgumentError(f"{base.name}: {name} is a tuple or a list, which has no token", hints=(hint,))
    sizes = read_sizes(base.name, {"grid": with_constants(grid, given)}, declared.signature, grid_geometry)
    base = base._replace(parameters=tuple((name, Constant(value)) for name, value in given.items()))
    note(f"cutile {base.name} {function_content(base.read.pyfunc).digest} {base.parameters}")
    is_programmatic = check_bool(programmatic_dependent_launch, "programmatic_dependent_launch")
    return _function(base, declared, arguments, sizes, asked, options, is_programmatic=is_programmatic)


def _check_function(function: Any) -> None:
    """Check that cuTile is of a known release, and that a function is one of ``@ct.kernel``."""
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


def _function(
    base: TileKernel,
    declared: Declared,
    arguments: Sequence[Argument],
    sizes: Sizes,
    asked: str | None,
    options: Options,
    *,
    is_programmatic: bool,
) -> ArrayFunction:
    label, compiled = base.name, launcher.Memo[Kernel]()
    sizes.check(options.outs)
    may_be_slice = takes_slices(options, declared.signature)

    def make_target(call: Resolved, scalars: Mapping[str, Value]) -> KernelTarget:
        session = PROCESS.session()
        archs = launcher.choose_archs(asked, session)
        kernel, params = _bind(base, declared, arguments, call, scalars, may_be_slice=may_be_slice)
        made = compiled.get((kernel.parameters, archs), lambda: build_cutile(kernel, archs, session))
        obtained = Obtained(made, launcher.own_launcher(session), partial(build_cutile, kernel, session=session))
        # A tile block is launched as a block of one thread: the driver chooses the threads by the code.
        geometry = sizes.geometry(call)._replace(is_programmatic=is_programmatic)
        return launch_target(obtained, geometry, params, sizes.local(geometry), arguments)

    doc = f"The cuTile kernel {label}; see `be_runtime.cutile_kernel`."
    numbers = declared.signature.with_role(Role.ATTR)
    return ArrayFunction(ArrayKernel(label, label, doc, declared.signature, make_target, numbers), options)


def _bind(
    base: TileKernel,
    declared: Declared,
    arguments: Sequence[Argument],
    call: Resolved,
    scalars: Mapping[str, Value],
    *,
    may_be_slice: bool,
) -> tuple[TileKernel, list[LaunchParam]]:
    """Return the kernel for the arrays and numbers of a call, and the parameters of its launch."""
    is_split, nodes = bool(split_axes(declared.signature)), base.annotations
    specs, rest = (*call.inputs, *call.results), iter(declared.order)
    shared = [(source, len(call.inputs) + target) for source, target in call.aliases]
    types: dict[str, Constant | Array | str] = dict(base.parameters)
    params = []
    for name, param in arguments:
        if param is not None and param.role is not Role.ATTR:
            at = next(rest)
            made = array_type(
                f"{base.name}: {name}",
                specs[at],
                nodes[name].array,
                is_aligned=is_aligned(specs[at], may_be_slice=may_be_slice),
                is_split=is_split,
            )
            groups = [f"memory{pair[0]}" for pair in shared if at in pair and {*pair} <= {*declared.order}]
            types[name] = made._replace(alias_groups=tuple(groups))
            params.append(strided_param(at, specs[at].ndim, specs[at].dtype.bits))
        elif param is None:
            value = call.values[name]
            is_wide = value > _LARGEST or (nodes[name].scalar is not None and nodes[name].scalar.dtype.bitwidth == 64)
            types[name] = "int64" if is_wide else "int32"
            params.append(scalar_param(value.to_bytes(8, "little")))
        else:
            number = scalars[name]
            assert isinstance(number, Numbers), "the scalars of a kernel are numbers"
            assert param.dtype is not None, "declare() raises for a scalar without a type"
            types[name] = _type(f"{base.name}: {name}", param.dtype.name)
            params.append(scalar_param(number.data))
    return base._replace(parameters=tuple((name, types[name]) for name in nodes)), params


def array_type(label: str, spec: ArraySpec, annotation: Any, *, is_aligned: bool, is_split: bool) -> Array:
    """Return the type of an array whose elements lie in row-major order.

    Parameters
    ----------
    label : str
        Beginning of messages.
    annotation : cuda.tile.ArrayAnnotation or None
    is_aligned : bool
        True if its memory begins at a multiple of 16 bytes.
    is_split : bool
        True if the extents of one device are not known.

    Raises
    ------
    ArgumentError
        cuTile has no such elements, or the array needs indices of 64 bits or constant extents that are not known.

    Examples
    --------
    >>> from be_runtime.dtypes import BY_NAME
    >>> array_type("f: x", ArraySpec(BY_NAME["float32"], (4, 6)), None, is_aligned=True, is_split=False)[2:6]
    ((None, None), (None, 1), (1, 1), (1, 1))
    """
    strides = [math.prod(spec.shape[at + 1 :]) for at in range(spec.ndim)]
    index_bits = 32 if annotation is None else annotation.index_dtype.bitwidth
    if index_bits == 32 and any(each > _LARGEST for each in (*spec.shape, *strides)):
        name = label.rpartition(" ")[2]
        raise ArgumentError(
            f"{label} is {spec}, which needs extents and strides of 64 bits",
            hints=(f"annotate the parameter: {name}: ct.IndexedWithInt64",),
        )
    static = () if annotation is None else (annotation.static_shape_dims, annotation.static_stride_dims)
    if is_split and any(static):
        raise ArgumentError(f"{label} has constant extents or strides, and the signature splits axes over devices")
    of_shape, of_stride = ({dim % spec.ndim for dim in dims if spec.ndim} for dims in static or ((), ()))
    unit = DIVISIBLE * 8 // spec.dtype.bits
    return Array(
        _type(label, spec.dtype.name),
        index_bits,
        tuple(extent if at in of_shape else None for at, extent in enumerate(spec.shape)),
        tuple(each if at in of_stride or at == spec.ndim - 1 else None for at, each in enumerate(strides)),
        tuple(1 if is_split or extent % DIVISIBLE else DIVISIBLE for extent in spec.shape),
        tuple(1 if is_split or stride % unit else unit for stride in strides),
        DIVISIBLE if is_aligned else 1,
    )


def _type(label: str, dtype: str) -> str:
    """Check that cuTile has an element type of this name."""
    if dtype not in _TYPES:
        raise ArgumentError(f"{label}: cuTile has no type for {dtype}")
    return dtype


def build_cutile(kernel: TileKernel, archs: tuple[Arch, ...], session: Session) -> Kernel:
    """Return the compiled kernel, from the cache or compiled now."""
    import cuda.tile as ct

    check_driver(session.system)
    compiler = (ct.__version__, find_assembler(session.system).version)
    content, environ = function_content(kernel.read.pyfunc), session.system.environ

    def compile_now(_staging: object) -> Compiled:
        return Compiled(tuple(compile_cutile(kernel, arch, session.system) for arch in archs), compiler=compiler)

    if content.anchors:
        images = compile_now(None).images
        return Kernel(launcher.content_id(images), kernel.name, images)
    options = repr(kernel.function._compiler_options)  # noqa: SLF001 - the decorator's have no public name
    fields: tuple[Field, ...] = (
        *(("name", kernel.name), ("content", content.digest), ("options", options)),
        ("parameters", [f"{name}: {each!r}" for name, each in kernel.parameters]),
        *(("compiler", compiler), ("archs", [arch.sm for arch in archs])),
        ("host", session.system.machine),  # the driver runs a part of the code there, before a launch
        ("settings", [f"{each}={environ[each]}" for each in sorted(environ) if each.startswith(_SETTINGS)]),
    )
    return launcher.obtain_kernel(
        make_key("cutile", *fields, ("generator", own_code_digest())),
        Origin(make_key("cutile", *fields)),
        compile_now,
        kernel.name,
        session,
    )


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
    """The program ``tileiras``, by which cuTile makes machine code.

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
        There is none, or it doesn't run.
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
        constraints = [_constraint(each) for _, each in kernel.parameters]
        signature = KernelSignature(constraints, CallingConvention.cutile_python_v2(), symbol=kernel.name)
        export_kernel(kernel.function, [signature], written, gpu_code=arch.base.sm, output_format="cubin")
    except Exception as error:
        # cuTile's own errors, and any others that its passes raise because of the author's code.
        raise BuildError(f"cuTile can't compile the kernel {kernel.name} for {arch.sm}", output=str(error)) from error
    code = read_code(written.getvalue(), f"{kernel.name} by cuTile")
    found = kernel_facts(code, kernel.name).sizes
    expected = tuple(size for _, each in kernel.parameters for size in _sizes(each))
    if found != expected:
        raise BuildError(
            f"{kernel.name} has parameters of {found} bytes in the code of tileiras {assembler.version}, and "
            f"parameters of {expected} bytes are expected"
        )
    return KernelImage(code.arch, kernel.name, code.data)


def _constraint(each: Constant | Array | str) -> Any:
    """Return cuTile's description of a parameter."""
    import cuda.tile as ct
    from cuda.tile.compilation import ArrayConstraint, ScalarConstraint

    if isinstance(each, Constant):
        return each.value
    name = each if isinstance(each, str) else each.dtype
    dtype = getattr(ct, "bool_" if name == "bool" else name)
    if isinstance(each, str):
        return ScalarConstraint(dtype)
    return ArrayConstraint(
        dtype,
        len(each.shape_constant),
        index_dtype=getattr(ct, f"int{each.index_bits}"),
        stride_lower_bound_incl=0,
        alias_groups=each.alias_groups,
        may_alias_internally=False,
        stride_constant=each.stride_constant,
        shape_constant=each.shape_constant,
        stride_divisible_by=each.stride_divisible_by,
        shape_divisible_by=each.shape_divisible_by,
        base_addr_divisible_by=each.base_addr_divisible_by,
    )


def _sizes(each: Constant | Array | str) -> tuple[int, ...]:
    """Return the bytes of a parameter's numbers in the machine code."""
    if isinstance(each, Constant):
        return ()
    if isinstance(each, str):
        return (BY_NAME[each].size_bytes,)
    return (8, *(each.index_bits // 8,) * (2 * len(each.shape_constant)))
