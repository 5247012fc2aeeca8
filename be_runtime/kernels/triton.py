"""`triton_kernel`: compile a function of ``@triton.jit``, and launch it without Python on XLA's stream."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from be_runtime.call.attributes import Options, check_options
from be_runtime.call.function import ArrayFunction, ArrayKernel
from be_runtime.call.resolve import Resolved
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.frames import public
from be_runtime.jax.arrays import ArraySpec, Value
from be_runtime.kernels import launcher
from be_runtime.kernels.cubin import Declared, declare, kernel_facts, read_code
from be_runtime.kernels.geometry import DESCRIPTOR, LaunchParam, descriptor_param, pointer_param, scalar_param
from be_runtime.kernels.launcher import Compiled, Kernel, KernelImage, Origin
from be_runtime.kernels.parameters import (
    DIVISIBLE,
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
from be_runtime.kernels.source import SCRATCH_UNIT, Bound, Code, GpuSource, Launch, Variant, scalar_of
from be_runtime.load.identity import Field, own_code_digest
from be_runtime.load.registry import Session
from be_runtime.request.options import check_arch_list, check_bool, note
from be_runtime.signature.model import Role
from be_runtime.store.keys import make_key
from be_toolchain.arch import Arch
from be_toolchain.machine.forks import ThreadLock
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
_ALIGNED = f":{DIVISIBLE}"
"""End of the type of such a parameter."""

_DESCRIPTOR = "tensordesc<"
"""Beginning of the type of a tensor descriptor, such as ``tensordesc<fp16[64, 32]>``."""
_MAP_BYTES, _MOST_AXES = 128, 5
"""Bytes of a ``CUtensorMap``, and the limit for its axes."""
_COMPILING = ThreadLock()
"""Allows one compilation at a time: the folder of Triton's cache is of the process."""


_SETTINGS = ("TRITON_", "DISABLE_LLVM_OPT", "DISABLE_PTXAS_OPT", "PTXAS_OPTIONS", "LLVM_", "MLIR_")
"""Beginnings of the variables that change the code."""

Blocks = Mapping[str, tuple[int, ...]]
"""The block shape of each parameter that is a tensor descriptor."""


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

    def for_variant(self, names: Sequence[str], variant: Variant) -> TritonKernel:
        """Return the kernel for the types of its parameters, see `TritonLayout.types`."""
        given = dict(zip(names, variant, strict=True))
        types = {name: text.removesuffix(_ALIGNED) for name, text in given.items()}
        every = tuple((param.name, types.get(param.name, "constexpr")) for param in self.function.params)
        return self._replace(types=every, aligned=tuple(name for name in names if given[name] != types[name]))

    def build(self, archs: tuple[Arch, ...], session: Session, *, with_ptx: bool = False) -> Kernel:
        """Return the compiled kernel, from the cache or compiled now."""
        import triton

        environ = session.system.environ
        names = (each for each in environ if each.startswith(_SETTINGS) and "CACHE" not in each)
        settings = [f"{each}={environ[each]}" for each in sorted(names)]
        fields: tuple[Field, ...] = (
            *(("name", self.name), ("source", self.function.cache_key), ("triton", triton.__version__)),
            *(("types", [f"{name}: {text}" for name, text in self.types]), ("aligned", self.aligned)),
            ("constants", [f"{name}={_constant_text(value)}" for name, value in self.constants]),
            ("options", [f"{name}={value!r}" for name, value in self.options]),
            *(("archs", [arch.sm for arch in archs]), ("settings", settings)),
        )
        return launcher.obtain_kernel(
            make_key("triton", *fields, ("ptx", str(with_ptx)), ("generator", own_code_digest())),
            Origin(make_key("triton", *fields)),
            lambda _staging: Compiled(compile_triton(self, archs, with_ptx=with_ptx), compiler=(triton.__version__,)),
            self.name,
            session,
        )


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
) -> ArrayFunction:
    """Make a Triton kernel callable from JAX, launched natively on XLA's stream.

    Triton compiles the kernel when JAX first traces it, for the dtypes of the call. The cache keeps the machine code.

    Parameters
    ----------
    function : JITFunction
        Function decorated with ``@triton.jit``.
    signature : str or sequence of str
        One token for each parameter that is no constant, in the function's order: ``arg``, ``ret``, ``inout`` and
        ``scratch`` with axes for pointers, ``attr.NAME:TYPE`` for numbers. A parameter with the name of an axis of an
        input, such as ``n``, has no token: it gets the axis's extent.
    grid : int, str, tuple of int or str, or callable
        Number of programs along one to three axes. A text is arithmetic over the axes of the signature and over
        constants: ``"ceil(n/BLOCK)"``. A callable receives the inputs' shapes and dtypes.
    num_warps : int, default 4
        Warps of a program.
    num_stages : int, optional
        Stages of software pipelines; by default Triton's.
    num_ctas : int, default 1
        Blocks of a cluster.
    maxnreg : int, optional
        Limit for the registers of a thread.
    launch_pdl : bool, default False
        The kernel may begin before the previous kernel ends, and waits by ``tl.extra.cuda.gdc_wait``.
    block_shapes : dict of str to sequence of (int or str), optional
        For each parameter that is a tensor descriptor: its block shape, as numbers or names of constants. The launcher
        makes the descriptor of the array's token at each call.
    compute_capability : str or list of str, optional
        Architectures, such as ``"sm_90"``. The default is the architectures of the GPUs of this machine.
    outs : ShapeDtypeStruct, pytree of them, or callable, optional
        Shape and dtype of each result. A callable receives the inputs' shapes and dtypes. With a `signature`, the
        results follow from it.
    vmap_method : str, optional
        Method of ``jax.ffi.ffi_call``. With methods that pass a whole batch, native code launches the kernel for each
        slice. The default is ``"broadcast_all"`` if all arrays of the signature have leading axes, ``[... n]``, else
        none.
    input_output_aliases : dict of int to int, optional
        Inputs whose memory a result may use: index of the input to index of the result. The kernel gets a pointer for
        each.
    has_side_effect : bool, default False
        Run the kernel even if no result is used. XLA chooses the order of such calls.
    ordered : bool, default False
        Run all such calls in the order of the program. It implies `has_side_effect`.
    input_layouts, output_layouts : sequence of (sequence of int or None), optional
        Axes of each array from major to minor in memory, as for ``jax.ffi.ffi_call``.
    random : bool, default False
        The results differ from call to call. Without it, checked mode reports the difference.
    **constants
        Values of the function's ``tl.constexpr`` parameters.

    Returns
    -------
    callable
        Function that takes the inputs, and each ``attr`` as a keyword argument, and returns the results.

    Raises
    ------
    ImportError
        Triton 3 is not installed.
    ArgumentError
        The tokens don't fit the function's parameters, or `function` is not decorated with ``@triton.jit``.
    BuildError
        At a call: Triton refuses the kernel.

    See Also
    --------
    - :doc:`/other-compilers`: kernels of Triton, CuTe DSL, cuTile, TileLang and FlashInfer.
    - :doc:`/from-triton`: port a program from ``jax_triton``.

    Examples
    --------
    >>> add = be_runtime.triton_kernel(  # doctest: +SKIP
    ...     add_kernel, "arg[n] arg[n] ret[n]", grid="ceil(n/BLOCK)", BLOCK=1024
    ... )
    >>> add(jnp.ones(4), jnp.ones(4))  # doctest: +SKIP
    """
    options = check_options(locals())
    given = {"num_warps": num_warps, "num_stages": num_stages, "num_ctas": num_ctas, "maxnreg": maxnreg}
    given |= {"launch_pdl": True} if check_bool(launch_pdl, "launch_pdl") else {}
    kernel, layout = read_kernel(function, signature, constants, given, block_shapes or {}, options)
    code = VariantCode(kernel, layout.arguments, check_arch_list(compute_capability, "compute_capability"))
    note(f"triton {function.cache_key} {kernel.constants} {kernel.options} {layout.blocks}")
    return triton_function(layout, code, with_constants(grid, dict(kernel.constants)), options)


def triton_function(layout: TritonLayout, code: Code, grid: Size, options: Options) -> ArrayFunction:
    """Make the function of JAX arrays of a Triton kernel from any source of code; see `triton_kernel`."""
    label, signature = layout.label, layout.declared.signature
    source = GpuSource(layout, code, read_sizes(label, {"grid": grid}, signature, grid_geometry))
    source.sizes.check(options.outs)
    doc, numbers = f"The Triton kernel {label}; see `be_runtime.triton_kernel`.", signature.with_role(Role.ATTR)
    return ArrayFunction(
        ArrayKernel(label, label, doc, signature, source, numbers, SCRATCH_UNIT, by_slice=True), options
    )


def read_kernel(
    function: Any,
    signature: object,
    constants: Mapping[str, Any],
    chosen: Mapping[str, int | None],
    block_shapes: Mapping[str, Sequence[int | str]],
    options: Options,
) -> tuple[TritonKernel, TritonLayout]:
    """Check the arguments of `triton_kernel` that describe a kernel, and return the kernel without types.

    Parameters
    ----------
    chosen : mapping of str to int or None
        Triton's options.
    options : Options
        Options of the calls.
    """
    _check_function(function)
    label = str(function.__name__)
    wanted = {param.name for param in function.params if param.is_constexpr}
    defaults = {param.name: param.default for param in function.params if param.is_constexpr and param.has_default}
    check_constants(label, wanted, defaults, constants)
    constants = {**defaults, **constants}
    names = [param.name for param in function.params if not param.is_constexpr]
    blocks = {
        name: tuple(constants.get(each, each) if isinstance(each, str) else each for each in shape)
        for name, shape in block_shapes.items()
    }
    layout = layout_of(label, names, signature, chosen["num_ctas"] or 1, blocks, options)
    own = tuple((name, value) for name, value in chosen.items() if value is not None)
    return TritonKernel(function, (), tuple(sorted(constants.items())), own, ()), layout


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


def layout_of(
    label: str, names: Sequence[str], signature: object, num_ctas: int, blocks: Blocks, options: Options
) -> TritonLayout:
    """Give each parameter that is no constant its token or its axis."""
    declared = declare(label, signature)
    arguments = match_arguments(label, names, declared)
    arrays = sorted(name for name, param in arguments if param is not None and param.role is not Role.ATTR)
    for name, shape in blocks.items():
        if name not in arrays:
            raise ArgumentError(f"{label}: block_shapes has {name!r}; the arrays are {', '.join(arrays)}")
        if not all(type(each) is int and each > 0 for each in shape) or not 1 <= len(shape) <= _MOST_AXES:
            raise ArgumentError(
                f"{label}: block_shapes has {shape!r} for {name}",
                hints=(f"pass one to {_MOST_AXES} whole numbers, or names of constants",),
            )
    return TritonLayout(label, declared, arguments, num_ctas, blocks, takes_slices(options, declared.signature))


class TritonLayout(NamedTuple):
    """The arguments of a Triton kernel.

    Parameters
    ----------
    label : str
    declared : Declared
    arguments : tuple of Argument
    num_ctas : int
    blocks : mapping of str to tuple of int
    may_be_slice : bool
        True if an array of a call may be a slice of a batch, which may begin anywhere.
    """

    label: str
    declared: Declared
    arguments: tuple[Argument, ...]
    num_ctas: int
    blocks: Blocks
    may_be_slice: bool

    def bind(self, call: Resolved, scalars: Mapping[str, Value]) -> Bound:
        """Bind the parameters to the buffers, extents and scalars of a call."""
        specs, rest = (*call.inputs, *call.results), iter(self.declared.order)
        params: list[LaunchParam] = []
        divides, are_pointers_aligned = [], True
        for name, param in self.arguments:
            if param is not None and param.role is not Role.ATTR:
                at = next(rest)
                if name in self.blocks:
                    self._check_descriptor(name, specs[at])
                    params.append((DESCRIPTOR, at, 0, 0))  # `fit` writes the rest, which the images have
                else:
                    params.append(pointer_param(at, specs[at].ndim, specs[at].dtype.bits))
                divides.append(is_aligned(specs[at], may_be_slice=self.may_be_slice))
                are_pointers_aligned &= divides[-1]
                continue
            extent = call.values[name] if param is None else 0
            params.append(scalar_param(extent.to_bytes(8, "little")) if param is None else scalar_of(scalars[name]))
            divides.append(params[-1][1] % DIVISIBLE == 0)
        plain = self.types(specs, call.values)
        extents = tuple((at, name) for at, (name, param) in enumerate(self.arguments) if param is None)
        general = self._aligned(plain, [are_pointers_aligned and text.startswith("*") for text in plain])
        return Bound(tuple(params), self._aligned(plain, divides), general, extents)

    def types(self, specs: Sequence[ArraySpec], values: Mapping[str, int]) -> Variant:
        """Return the types for some arrays and extents of axes, in Triton's words: ``"*fp32"``, ``"i32"``."""
        rest, texts = iter(self.declared.order), []
        for name, param in self.arguments:
            if param is None:
                texts.append("i32" if values.get(name, 0) < 2**31 else "i64")
            elif param.role is Role.ATTR:
                assert param.dtype is not None, "declare() raises for a scalar without a type"
                texts.append(_type(self.label, param.dtype.name))
            else:
                element = _type(self.label, specs[next(rest)].dtype.name)
                block = self.blocks.get(name)
                texts.append(f"*{element}" if block is None else f"{_DESCRIPTOR}{element}[{_listed(block)}]>")
        return tuple(texts)

    def variants(self, specs: Sequence[ArraySpec]) -> tuple[Variant, ...]:
        """Return the variants to build for some arrays: all is divisible by 16, only addresses are, or nothing is."""
        plain = self.types(specs, {})
        addresses = self._aligned(plain, [text.startswith("*") for text in plain])
        every = self._aligned(plain, [True] * len(plain))
        return tuple(dict.fromkeys((every, addresses, plain) if self.may_be_slice else (every, addresses)))

    def _aligned(self, plain: Variant, divides: Sequence[bool]) -> Variant:
        """Mark the types of the addresses and integers that are divisible by 16 on each device."""
        split = split_axes(self.declared.signature)
        rows = zip(self.arguments, plain, divides, strict=True)
        return tuple(
            text + _ALIGNED * (is_marked and text[0] in "*iu" and text != "i1" and argument.name not in split)
            for argument, text, is_marked in rows
        )

    def _check_descriptor(self, name: str, spec: ArraySpec) -> None:
        """Check that the driver can make a tensor descriptor of an array."""
        label, block = f"{self.label}: {name}", self.blocks[name]
        if spec.ndim != len(block):
            problem = f"its block shape has {many(len(block), 'axis', 'axes')}: {block}"
            raise ArgumentError(f"{label} is {spec}, and {problem}")
        if any(math.prod(spec.shape[at:]) * spec.dtype.bits % (8 * DIVISIBLE) for at in range(1, spec.ndim)):
            raise ArgumentError(f"{label} is {spec}, whose rows are no multiples of {DIVISIBLE} bytes, as TMA needs")
        if not is_aligned(spec, may_be_slice=self.may_be_slice):
            problem = f"slices of a batch would not begin at multiples of {DIVISIBLE} bytes, as TMA needs"
            raise ArgumentError(f"{label} is {spec}; {problem}", hints=("pass vmap_method='sequential'",))

    def fit(self, launch: Launch, kernel: Kernel, call: Resolved) -> Launch:
        """Give the launch the block of the images, memory that they want, and two pointers to it at the end."""
        shared, size = (max(image.extra[at] for image in kernel.images) for at in (1, 2))
        (threads, _, _, is_programmatic, *described), *others = (image.extra for image in kernel.images)
        if any((other[0], *other[3:]) != (threads, is_programmatic, *described) for other in others):
            raise BuildError(
                f"{kernel.name} has other blocks or descriptors on some of "
                f"{', '.join(str(each.arch) for each in kernel.images)}",
                hints=("pass one architecture in compute_capability",),
            )
        rest = zip(described[::2], described[1::2], strict=True)
        params = [(*each[:2], *next(rest)) if each[0] == DESCRIPTOR else each for each in launch.params]
        (x, y, z), ctas, local = launch.geometry.grid, self.num_ctas, launch.local
        scratch, hidden = None, scalar_param(bytes(8))
        if size:
            total = x * y * z * ctas * size
            text = str(total) if local is None else "*".join(f"({each})" for each in (*local[:3], str(size * ctas)))
            hidden, scratch = pointer_param(len(call.inputs) + len(call.results), 1, 8), (total, text)
        made = launch.with_geometry(
            block=(threads, 1, 1),
            shared_bytes=shared,
            cluster=(ctas, 1, 1),
            is_programmatic=bool(is_programmatic),
        )
        return made._replace(
            geometry=made.geometry._replace(grid=(x * ctas, y, z)),
            local=made.local and (f"{ctas}*({made.local[0]})", *made.local[1:]),
            params=(*params, hidden, scalar_param(bytes(8))),
            scratch=scratch,
        )


def _constant_text(value: Any) -> str:
    """Describe a constant by its content, functions among its parts too."""
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(map(_constant_text, value))})"
    return str(getattr(value, "cache_key", repr(value)))


def _type(label: str, dtype: str) -> str:
    if dtype not in _TYPES:
        raise ArgumentError(f"{label}: Triton has no type for {dtype}")
    return _TYPES[dtype]


def _listed(block: Sequence[int]) -> str:
    return ", ".join(map(str, block))


def _sizes(text: str) -> tuple[int, ...]:
    """Return the bytes of each number in the code for a parameter of one of Triton's types."""
    if text.startswith(_DESCRIPTOR):
        ndim = text.count(",") + 1
        return (_MAP_BYTES, *(4,) * ndim, *(8,) * ndim)
    digits = re.search(r"\d+", text)
    assert digits is not None, "each type of a scalar has a size"
    return (8 if text.startswith("*") else max(int(digits[0]) // 8, 1),)


def compile_triton(kernel: TritonKernel, archs: Sequence[Arch], *, with_ptx: bool = False) -> tuple[KernelImage, ...]:
    """Compile a kernel for each architecture, with or without a device.

    Parameters
    ----------
    kernel : TritonKernel
    archs : sequence of Arch
    with_ptx : bool
        True for PTX of the latest architecture without a suffix too: Triton's code for 9.0 is code for 9.0a.

    Raises
    ------
    BuildError
        Triton refuses the kernel, or the kernel wants a launch that is not supported.
    """
    made = [_compile(kernel, arch) for arch in archs]
    latest = launcher.ptx_arch([image.cuda_arch for image, _ in made], with_ptx=with_ptx)
    return tuple(each for images in made for each in (images if images[0].arch == latest else images[:1]))


def _compile(kernel: TritonKernel, arch: Arch) -> tuple[KernelImage, KernelImage]:
    """Compile a kernel to a cubin and to PTX."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = [name for name, _ in kernel.types]
    attrs = {(names.index(name),): [["tt.divisibility", DIVISIBLE]] for name in kernel.aligned}
    source = ASTSource(kernel.function, dict(kernel.types), dict(kernel.constants), attrs)
    try:
        target = GPUTarget("cuda", arch.major * 10 + arch.minor, 32)
        with _COMPILING, tempfile.TemporaryDirectory(prefix="be-triton-") as folder, triton.knobs.cache.scope():
            triton.knobs.cache.dir = folder  # our cache keeps the images, and Triton's needs a home
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
    is_cooperative = bool(getattr(facts, "launch_cooperative_grid", False))
    image = KernelImage(code.arch, facts.name, data, is_cooperative=is_cooperative, extra=extra)
    return image, image._replace(data=made.asm["ptx"].encode(), is_ptx=True)


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
