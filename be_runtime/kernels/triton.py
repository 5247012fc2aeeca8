"""`triton_kernel`: compile a function of ``@triton.jit``, and launch it without Python on XLA's stream."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from be_runtime.call.attributes import Options, check_options
from be_runtime.call.compiled_function import CompiledFunction, KernelTarget
from be_runtime.call.function import ArrayFunction, ArrayKernel
from be_runtime.call.resolve import Resolved
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.frames import public
from be_runtime.jax.arrays import ArraySpec, Numbers, Value
from be_runtime.kernels import launcher
from be_runtime.kernels.cubin import Declared, declare, kernel_facts, read_code
from be_runtime.kernels.geometry import DESCRIPTOR, LaunchParam, descriptor_param, pointer_param, scalar_param
from be_runtime.kernels.launcher import Compiled, Kernel, KernelImage, Obtained, Origin
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
from be_toolchain.terminal import many

_INSTALL = "pip install 'brainevent-toolchain[triton]'"
_TYPES = {
    **{f"float{bits}": f"fp{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    "bfloat16": "bf16",
    "bool": "i1",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fn": "fp8e4nv",
}
"""Triton's names of element types."""
_SCRATCH_UNIT = 256
_DESCRIPTOR = "tensordesc<"
"""Beginning of the type of a tensor descriptor, such as ``tensordesc<fp16[64, 32]>``."""
_MAP_BYTES, _MOST_AXES = 128, 5
"""Bytes of a ``CUtensorMap``, and the limit for its axes."""


class TritonKernel(NamedTuple):
    """A Triton function with all that it is compiled for.

    Parameters
    ----------
    function : JITFunction
    types : tuple of (str, str)
        Triton's type of each parameter, and ``"constexpr"``.
    constants, options : tuple of (str, object)
    aligned : tuple of str
        Parameters that are divisible by 16.
    """

    function: Any
    types: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    options: tuple[tuple[str, Any], ...]
    aligned: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(self.function.__name__)


@public
def triton_kernel(
    function: Any,
    signature: str | Sequence[str],
    *,
    grid: Size,
    num_warps: int = 4,
    num_stages: int | None = None,
    num_ctas: int = 1,
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
) -> CompiledFunction:
    """Make a Triton kernel callable from JAX, launched natively on XLA's stream.

    Triton compiles the kernel when JAX first traces it, for the dtypes of the call; the cache keeps the machine code.

    Parameters
    ----------
    function : JITFunction
        A function decorated with ``@triton.jit``.
    signature : str or sequence of str
        One token for each parameter that is no constant, in the function's order, see `be_runtime.cubin_kernel`. A
        parameter with the name of an axis of an input, such as ``n``, has no token: it gets the axis's extent.
    grid : int, str, tuple of int or str, or callable
        See `be_runtime.cuda_kernel`. A text may name the constants, too: ``"ceil(n/BLOCK)"``.
    num_warps, num_stages, num_ctas, maxnreg : int
        Triton's options.
    launch_pdl : bool
        True for a kernel that may begin before the previous kernel ends, and waits by ``tl.extra.cuda.gdc_wait``.
    block_shapes : mapping of str to sequence of (int or str), optional
        For each parameter that is a tensor descriptor: its block shape, as numbers or names of constants. The launcher
        makes the descriptor of the array's token at each call.
    compute_capability : str or list of str, optional
        Architecture, such as ``"sm_90"``, or several; by default the architectures of the present devices.
    outs, vmap_method, input_output_aliases, has_side_effect, ordered, input_layouts, output_layouts, random
        See `be_runtime.cuda_kernel`.
    **constants
        Values of the function's ``tl.constexpr`` parameters.

    Returns
    -------
    callable
        Takes the inputs, and each ``attr`` as a keyword argument; returns the outputs.

    Raises
    ------
    ImportError
        Triton 3 is not installed.
    ArgumentError
        The tokens don't fit the function's parameters, or `function` is not one of ``@triton.jit``.
    BuildError
        At a call: Triton refuses the kernel.

    Examples
    --------
    >>> add = triton_kernel(  # doctest: +SKIP
    ...     add_kernel, "arg[n] arg[n] ret[n]", grid="ceil(n/BLOCK)", BLOCK=1024
    ... )
    """
    options = check_options(locals())
    _check_function(function)
    asked = check_arch_list(compute_capability, "compute_capability")
    label = str(function.__name__)
    declared = declare(label, signature)
    wanted = [param.name for param in function.params if param.is_constexpr]
    optional = [param.name for param in function.params if param.is_constexpr and param.has_default]
    names = [param.name for param in function.params]
    arguments = match_arguments(label, names, wanted, optional, declared, constants)
    given = {"num_warps": num_warps, "num_stages": num_stages, "num_ctas": num_ctas, "maxnreg": maxnreg}
    given |= {"launch_pdl": True} if check_bool(launch_pdl, "launch_pdl") else {}
    chosen = tuple((name, value) for name, value in given.items() if value is not None)
    blocks = _read_blocks(label, block_shapes or {}, arguments, constants)
    base = TritonKernel(function, (), tuple(sorted(constants.items())), chosen, ())
    sizes = read_sizes(label, {"grid": with_constants(grid, constants)}, declared.signature, grid_geometry)
    note(f"triton {function.cache_key} {base.constants} {base.options} {blocks}")
    return _function(base, declared, arguments, blocks, sizes, asked, options)


def _check_function(function: Any) -> None:
    """Check that Triton is new enough, and that a function is one of ``@triton.jit``."""
    try:
        import triton
    except ImportError as error:
        raise ImportError(f"triton_kernel needs Triton, which can't be imported: {error}\nhint: {_INSTALL}") from error
    if int(triton.__version__.partition(".")[0]) < 3:
        raise ImportError(f"triton_kernel needs Triton 3, and {triton.__version__} is installed\nhint: {_INSTALL}")
    kind = type(function).__name__
    if kind in ("Autotuner", "Heuristics"):
        hint = "pass the function without the decorator, kernel.fn, and its constants as keyword arguments"
        tune = "to choose the fastest, pass the constants as a configuration to be_runtime.autotune"
        decorator = "@triton.autotune" if kind == "Autotuner" else "@triton.heuristics"
        hints = (hint, tune) if kind == "Autotuner" else (hint,)
        raise ArgumentError(f"the function has the decorator {decorator}, which runs Python at a launch", hints=hints)
    if kind != "JITFunction":
        raise ArgumentError(f"function must be decorated with @triton.jit, not {function!r}")


def _read_blocks(
    label: str, given: Mapping[str, Any], arguments: Sequence[Argument], constants: Mapping[str, Any]
) -> dict[str, tuple[int, ...]]:
    """Return the block shape of each tensor descriptor."""
    arrays = {name for name, param in arguments if param is not None and param.role is not Role.ATTR}
    blocks = {}
    for name, shape in given.items():
        if name not in arrays:
            raise ArgumentError(f"{label}: block_shapes has {name!r}; the arrays are {', '.join(sorted(arrays))}")
        blocks[name] = tuple(constants.get(each, each) if isinstance(each, str) else each for each in shape)
        if not all(type(each) is int and each > 0 for each in blocks[name]) or not 1 <= len(shape) <= _MOST_AXES:
            raise ArgumentError(
                f"{label}: block_shapes has {shape!r} for {name}",
                hints=(f"pass one to {_MOST_AXES} whole numbers, or names of constants",),
            )
    return blocks


def _function(
    base: TritonKernel,
    declared: Declared,
    arguments: Sequence[Argument],
    blocks: Mapping[str, tuple[int, ...]],
    sizes: Sizes,
    asked: str | None,
    options: Options,
) -> ArrayFunction:
    label, compiled = base.name, launcher.Memo[Kernel]()
    sizes.check(options.outs)
    may_be_slice = takes_slices(options, declared.signature)

    def make_target(call: Resolved, scalars: Mapping[str, Value]) -> KernelTarget:
        session = PROCESS.session()
        archs = launcher.choose_archs(asked, session)
        params, types, aligned = _bind(label, declared, arguments, blocks, call, scalars, may_be_slice=may_be_slice)
        every = tuple((param.name, types.get(param.name, "constexpr")) for param in base.function.params)
        kernel = base._replace(types=every, aligned=aligned)
        made = compiled.get((every, aligned, archs), lambda: build_triton(kernel, archs, session))
        again = partial(build_triton, kernel, session=session)
        return _launch(
            Obtained(made, launcher.own_launcher(session), again), sizes, dict(base.options), arguments, call, params
        )

    doc = f"The Triton kernel {label}; see `be_runtime.triton_kernel`."
    numbers = declared.signature.with_role(Role.ATTR)
    kernel = ArrayKernel(label, label, doc, declared.signature, make_target, numbers, _SCRATCH_UNIT)
    return ArrayFunction(kernel, options)


def _bind(
    label: str,
    declared: Declared,
    arguments: Sequence[Argument],
    blocks: Mapping[str, tuple[int, ...]],
    call: Resolved,
    scalars: Mapping[str, Value],
    *,
    may_be_slice: bool,
) -> tuple[list[LaunchParam], dict[str, str], tuple[str, ...]]:
    """Return the parameters of a launch, Triton's types by name, and the names of aligned parameters."""
    split = split_axes(declared.signature)
    specs, rest = (*call.inputs, *call.results), iter(declared.order)
    params, types, aligned = [], {}, []
    for name, param in arguments:
        if param is not None and param.role is not Role.ATTR:
            at = next(rest)
            element = _type(label, specs[at].dtype.name)
            if name in blocks:
                _check_descriptor(f"{label}: {name}", specs[at], blocks[name], may_be_slice=may_be_slice)
                types[name] = f"{_DESCRIPTOR}{element}[{', '.join(map(str, blocks[name]))}]>"
                params.append((DESCRIPTOR, at, 0, 0))  # the rest is known when the kernel is compiled
                continue
            types[name] = f"*{element}"
            params.append(pointer_param(at, specs[at].ndim, specs[at].dtype.bits))
            if is_aligned(specs[at], may_be_slice=may_be_slice):
                aligned.append(name)
            continue
        if param is None:
            value = call.values[name]
            types[name] = "i32" if value < 2**31 else "i64"
            params.append(scalar_param(value.to_bytes(8, "little")))
        else:
            number = scalars[name]
            assert isinstance(number, Numbers), "the scalars of a kernel are numbers"
            assert param.dtype is not None, "declare() raises for a scalar without a type"
            types[name] = _type(label, param.dtype.name)
            params.append(scalar_param(number.data))
        if types[name][0] in "iu" and params[-1][1] % DIVISIBLE == 0 and name not in split and types[name] != "i1":
            aligned.append(name)
    return params, types, tuple(aligned)


def _type(label: str, dtype: str) -> str:
    if dtype not in _TYPES:
        raise ArgumentError(f"{label}: Triton has no type for {dtype}")
    return _TYPES[dtype]


def _check_descriptor(label: str, spec: ArraySpec, block: tuple[int, ...], *, may_be_slice: bool) -> None:
    """Check that the driver can make a tensor descriptor of an array."""
    if spec.ndim != len(block):
        raise ArgumentError(f"{label} is {spec}, and its block shape has {many(len(block), 'axis', 'axes')}: {block}")
    if any(math.prod(spec.shape[at:]) * spec.dtype.bits % (8 * DIVISIBLE) for at in range(1, spec.ndim)):
        raise ArgumentError(f"{label} is {spec}, whose rows are no multiples of {DIVISIBLE} bytes, as TMA needs")
    if not is_aligned(spec, may_be_slice=may_be_slice):
        raise ArgumentError(
            f"{label} is {spec}; slices of a batch would not begin at multiples of {DIVISIBLE} bytes, as TMA needs",
            hints=("pass vmap_method='sequential'",),
        )


def _sizes(text: str) -> tuple[int, ...]:
    """Return the bytes of each number in the code for a parameter of one of Triton's types."""
    if text.startswith(_DESCRIPTOR):
        ndim = text.count(",") + 1
        return (_MAP_BYTES, *(4,) * ndim, *(8,) * ndim)
    digits = re.search(r"\d+", text)
    assert digits is not None, "each type of a scalar has a size"
    return (8 if text.startswith("*") else max(int(digits[0]) // 8, 1),)


def _launch(
    obtained: Obtained,
    sizes: Sizes,
    options: Mapping[str, Any],
    arguments: Sequence[Argument],
    call: Resolved,
    params: Sequence[LaunchParam],
) -> KernelTarget:
    """Return the target of a call, with memory that the kernel wants, and two pointers to it at the end."""
    kernel, ctas = obtained.kernel, options["num_ctas"]
    shared, size = (max(image.extra[at] for image in kernel.images) for at in (1, 2))
    (threads, _, _, is_programmatic, *described), *others = (image.extra for image in kernel.images)
    if any((other[0], *other[3:]) != (threads, is_programmatic, *described) for other in others):
        raise BuildError(
            f"{kernel.name} has other blocks or descriptors on some of "
            f"{', '.join(str(image.arch) for image in kernel.images)}",
            hints=("pass one architecture in compute_capability",),
        )
    rest = zip(described[::2], described[1::2], strict=True)
    params = [(*each[:2], *next(rest)) if each[0] == DESCRIPTOR else each for each in params]
    geometry = sizes.geometry(call)
    blocks = math.prod(geometry.grid) * ctas
    local = sizes.local(geometry)
    scratch = None
    hidden = scalar_param(bytes(8))
    if size:
        text = str(size * blocks) if local is None else "*".join(f"({each})" for each in (*local[:3], str(size * ctas)))
        hidden, scratch = pointer_param(len(call.inputs) + len(call.results), 1, 8), (size * blocks, text)
    whole = [*params, hidden, scalar_param(bytes(8))]
    x, y, z = geometry.grid
    geometry = geometry._replace(
        grid=(x * ctas, y, z),
        block=(threads, 1, 1),
        shared_bytes=shared,
        cluster=(ctas, 1, 1),
        is_cooperative=kernel.is_cooperative,
        is_programmatic=bool(is_programmatic),
    )
    texts = None if local is None else (f"{ctas}*({local[0]})", *local[1:3], *map(str, geometry.encode()[3:]))
    return launch_target(obtained, geometry, whole, texts, arguments)._replace(scratch=scratch)


def build_triton(kernel: TritonKernel, archs: tuple[Arch, ...], session: Session) -> Kernel:
    """Return the compiled kernel, from the cache or compiled now."""
    import triton

    environ = session.system.environ
    settings = [f"{each}={environ[each]}" for each in sorted(environ) if each.startswith("TRITON_")]
    fields: tuple[Field, ...] = (
        *(("name", kernel.name), ("source", kernel.function.cache_key), ("triton", triton.__version__)),
        *(("types", [f"{name}: {text}" for name, text in kernel.types]), ("aligned", kernel.aligned)),
        ("constants", [f"{name}={getattr(value, 'cache_key', repr(value))}" for name, value in kernel.constants]),
        ("options", [f"{name}={value!r}" for name, value in kernel.options]),
        *(("archs", [arch.sm for arch in archs]), ("settings", [s for s in settings if "CACHE" not in s])),
    )
    return launcher.obtain_kernel(
        make_key("triton", *fields, ("generator", own_code_digest())),
        Origin(make_key("triton", *fields)),
        lambda _staging: Compiled(
            tuple(compile_triton(kernel, arch) for arch in archs), compiler=(triton.__version__,)
        ),
        kernel.name,
        session,
    )


def compile_triton(kernel: TritonKernel, arch: Arch) -> KernelImage:
    """Compile a kernel for an architecture, with or without a device.

    Raises
    ------
    BuildError
        Triton refuses the kernel, or the kernel wants a launch that is not supported.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = [name for name, _ in kernel.types]
    attrs = {(names.index(name),): [["tt.divisibility", DIVISIBLE]] for name in kernel.aligned}
    constants = {p.name: p.default for p in kernel.function.params if p.is_constexpr and p.has_default}
    source = ASTSource(kernel.function, dict(kernel.types), {**constants, **dict(kernel.constants)}, attrs)
    try:
        target = GPUTarget("cuda", arch.major * 10 + arch.minor, 32)
        made = triton.compile(source, target=target, options=dict(kernel.options))
    except Exception as error:
        # Triton's own errors, and any others that its passes raise because of the author's code.
        raise BuildError(f"Triton can't compile the kernel {kernel.name} for {arch.sm}", output=str(error)) from error
    data, facts = made.asm["cubin"], made.metadata
    if getattr(facts, "profile_scratch_size", 0):
        raise BuildError(f"{kernel.name}: Triton's profiler is not supported by the launcher")
    described = _descriptors(kernel, arch, getattr(facts, "tensordesc_meta", None) or ())
    code = read_code(data, f"{kernel.name} by Triton")
    found = kernel_facts(code, facts.name)
    wanted = (*(size for _, text in kernel.types if text != "constexpr" for size in _sizes(text)), 8, 8)
    if found.sizes != wanted:
        raise BuildError(
            f"{kernel.name} has parameters of {found.sizes} bytes in the code of Triton {triton.__version__}, and "
            f"parameters of {wanted} bytes are expected"
        )
    threads = math.prod(found.block) if found.block else 32 * facts.num_warps
    is_programmatic = int(getattr(facts, "launch_pdl", False))
    extra = (threads, facts.shared, getattr(facts, "global_scratch_size", 0), is_programmatic, *described)
    return KernelImage(
        code.arch, facts.name, data, is_cooperative=bool(getattr(facts, "launch_cooperative_grid", False)), extra=extra
    )


def _descriptors(kernel: TritonKernel, arch: Arch, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the last two numbers of the launch parameter of each tensor descriptor, from Triton's rows on them."""
    names = [name for name, text in kernel.types if text.startswith(_DESCRIPTOR)]
    if not names:
        return []
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

    if len(rows) != len(names):
        problem = f"takes descriptors ({', '.join(names)}), which need compute capability 9.0 or later, not {arch}"
        raise BuildError(f"{kernel.name} {problem}", hints=("make them in the kernel: tl.make_tensor_descriptor",))
    numbers: list[int] = []
    for name, row in zip(names, rows, strict=True):
        if row["fp4_padded"] or row.get("is_im2col"):
            raise BuildError(f"{kernel.name}: {name} is a descriptor in a form that the launcher does not make")
        kind = TMA_DTYPE_DEVICE_TO_HOST[row["elem_type"]]
        numbers += descriptor_param(0, row["block_size"], 8 * row["elem_size"], row["swizzle"], kind)[2:]
    return numbers
