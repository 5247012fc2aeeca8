"""Kernels of Triton: compile a function of ``@triton.jit``, and launch it without Python on XLA's stream."""

from __future__ import annotations

import inspect
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from be_runtime.call.array_function import ArrayKernel
from be_runtime.call.attributes import Options
from be_runtime.call.function import KernelSource
from be_runtime.call.resolve import Resolved
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.jax.arrays import ArraySpec, Value
from be_runtime.kernels import launcher
from be_runtime.kernels.content import Content, function_content
from be_runtime.kernels.cubin import Declared
from be_runtime.kernels.device_code import kernel_facts, read_code
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
from be_runtime.request.options import note
from be_runtime.signature.model import Param, Role
from be_runtime.store.index import reading
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
_BY_NAME = ("triton",)
"""Package that counts by name and version, see `function_content`."""
_ALIGNED = f":{DIVISIBLE}"
"""End of the type of a parameter that is divisible by 16."""

_DESCRIPTOR = "tensordesc<"
"""Prefix of the type of a tensor descriptor, such as ``tensordesc<fp16[64, 32]>``."""
_MAP_BYTES, _MOST_AXES = 128, 5
"""Bytes of a ``CUtensorMap``, and the limit for its axes."""
_MOST_STRIDE = 2**40
"""Limit in bytes for a stride of a descriptor."""
OPTIONS: Mapping[str, Sequence[int]] = {
    "num_warps": (1, 2, 4, 8, 16, 32),
    "num_stages": range(100),
    "num_ctas": (1, 2, 4, 8, 16),
    "maxnreg": range(1, 256),
}
"""The options of Triton, with their allowed values."""
DECORATORS = {"Autotuner": "@triton.autotune", "Heuristics": "@triton.heuristics"}
"""Decorators by the classes of the decorated functions."""
_COMPILING = ThreadLock()
"""Allows one compilation at a time, since the process has one folder for Triton's cache."""


_SETTINGS = ("TRITON_", "DISABLE_LLVM_OPT", "DISABLE_PTXAS_OPT", "PTXAS_OPTIONS", "LLVM_", "MLIR_")
"""Prefixes of the variables that change the code."""

Blocks = Mapping[str, tuple[int, ...]]
"""The block shape of each parameter that is a tensor descriptor."""


class TritonKernel(NamedTuple):
    """A Triton function with all inputs of its compilation.

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
        for (name, _), (value, variables) in self.function.used_global_vals.items():
            if name not in variables or variables[name] != value:
                raise ArgumentError(
                    f"{self.name}: the global variable {name} has changed from {value} to {variables.get(name)}",
                    hints=("make it a parameter, a tl.constexpr", "or define the function again, with @triton.jit"),
                )
        types = {name: text.removesuffix(_ALIGNED) for name, text in given.items()}
        every = tuple((param.name, types.get(param.name, "constexpr")) for param in self.function.params)
        return self._replace(types=every, aligned=tuple(name for name in names if given[name] != types[name]))

    def build(self, archs: tuple[Arch, ...], session: Session, *, with_ptx: bool = False) -> Kernel:
        """Return the compiled kernel, from the cache or compiled now."""
        import triton

        environ = session.system.environ
        names = (each for each in environ if each.startswith(_SETTINGS) and "CACHE" not in each)
        settings = [f"{each}={environ[each]}" for each in sorted(names)]
        content = self.content()

        def compile_now(_staging: object) -> Compiled:
            return Compiled(compile_triton(self, archs, with_ptx=with_ptx), compiler=(triton.__version__,))

        if content.anchors:
            return launcher.compile_uncached(self.name, session, compile_now)
        fields: tuple[Field, ...] = (
            *(("name", self.name), ("source", source_key(self.function)), ("triton", triton.__version__)),
            *(("content", content.digest), ("types", [f"{name}: {text}" for name, text in self.types])),
            ("aligned", self.aligned),
            ("constants", [f"{name}={_constant_text(value)}" for name, value in self.constants]),
            ("options", [f"{name}={value!r}" for name, value in self.options]),
            *(("archs", [arch.sm for arch in archs]), ("settings", settings)),
        )
        return launcher.obtain_kernel(
            make_key("triton", *fields, ("ptx", str(with_ptx)), ("generator", own_code_digest())),
            Origin(make_key("triton", *fields)),
            compile_now,
            self.name,
            session,
        )

    def content(self) -> Content:
        """Return the content of the function and of the constants, since Triton's key lacks attributes of modules."""
        return function_content((self.function, self.constants), _BY_NAME, with_objects=True)


class Declaration(NamedTuple):
    """The arguments of `triton_kernel`.

    Parameters
    ----------
    function : JITFunction
    signature : str or sequence of str
    grid : Size
    constants : mapping of str to object
    chosen : mapping of str to int
        Triton's options.
    block_shapes : mapping
    archs : str or None
        Architectures instead of the present devices' architectures.
    options : Options
        Options of the calls.
    """

    function: Any
    signature: object
    grid: Size
    constants: Mapping[str, Any]
    chosen: Mapping[str, int | None]
    block_shapes: Any
    archs: str | None
    options: Options

    def kernel(self) -> ArrayKernel:
        """Check the arguments, and return the kernel that Triton compiles at a call."""
        kernel, layout = read_kernel(
            self.function, self.signature, self.constants, self.chosen, self.block_shapes, self.options
        )
        note(f"triton {source_key(self.function)} {kernel.constants} {kernel.options} {layout.blocks}")
        code = VariantCode(kernel, layout.arguments, self.archs)
        grid = with_constants(layout.label, self.grid, dict(kernel.constants))
        return array_kernel(layout, launch_source(layout, code, grid, self.options))


def launch_source(layout: TritonLayout, code: Code, grid: Size, options: Options) -> GpuSource:
    """Make the source of a Triton kernel's launches from any source of code."""
    source = GpuSource(layout, code, read_sizes(layout.label, {"grid": grid}, layout.declared.signature, grid_geometry))
    source.sizes.check(options.outs)
    return source


def array_kernel(layout: TritonLayout, source: KernelSource) -> ArrayKernel:
    """Describe a Triton kernel for a function of JAX arrays."""
    label, signature = layout.label, layout.declared.signature
    doc, numbers = f"The Triton kernel {label}; see `be_runtime.triton_kernel`.", signature.with_role(Role.ATTR)
    return ArrayKernel(label, label, doc, signature, source, numbers, SCRATCH_UNIT, by_slice=True)


def read_kernel(
    function: Any,
    signature: object,
    constants: Mapping[str, Any],
    chosen: Mapping[str, int | None],
    block_shapes: Any,
    options: Options,
) -> tuple[TritonKernel, TritonLayout]:
    """Check the arguments of `triton_kernel` that describe a kernel, and return the kernel without types.

    Parameters
    ----------
    chosen : mapping of str to int or None
        Triton's options. A constant of the same name gets the value, too.
    options : Options
        Options of the calls.
    """
    check_function(function)
    label = str(function.__name__)
    wanted = {param.name for param in function.params if param.is_constexpr}
    defaults = {param.name: param.default for param in function.params if param.is_constexpr and param.has_default}
    own = {name: value for name, value in chosen.items() if value is not None}
    constants = {**{name: value for name, value in own.items() if name in wanted}, **constants}
    check_constants(label, wanted, defaults, constants)
    from triton.language import constexpr

    given = {**defaults, **constants}
    constants = {name: value.value if isinstance(value, constexpr) else value for name, value in given.items()}
    for name, value in own.items():
        known = OPTIONS.get(name)
        if known is not None and (type(value) is not int or value not in known):
            shown = ", ".join(map(str, known)) if isinstance(known, tuple) else f"{known[0]} to {known[-1]}"
            raise ArgumentError(f"{label}: {name}={value!r} is not allowed", hints=(f"pass a whole number: {shown}",))
    if not isinstance(block_shapes, Mapping) or any(not isinstance(x, list | tuple) for x in block_shapes.values()):
        raise ArgumentError(
            f"{label}: block_shapes is {block_shapes!r}",
            hints=("name the shape of each descriptor's block: block_shapes={'a': (64, 'BLOCK')}",),
        )
    blocks = {
        name: tuple(constants.get(each, each) if isinstance(each, str) else each for each in shape)
        for name, shape in block_shapes.items()
    }
    layout = layout_of(label, parameter_names(function), signature, own.get("num_ctas", 1), blocks, options)
    constants |= layout.constants
    return TritonKernel(function, (), tuple(sorted(constants.items())), tuple(own.items()), ()), layout


def parameter_names(function: Any) -> list[str]:
    """Return the names of the parameters that are not ``tl.constexpr``."""
    return [param.name for param in function.params if not param.is_constexpr]


def check_function(function: Any) -> None:
    """Check that Triton is new enough, and that a function is decorated with ``@triton.jit``."""
    try:
        import triton
    except ImportError as error:
        raise ImportError(f"triton_kernel needs Triton, which can't be imported: {error}\nhint: {_INSTALL}") from error
    if int(triton.__version__.partition(".")[0]) < 3:
        raise ImportError(f"triton_kernel needs Triton 3, and {triton.__version__} is installed\nhint: {_INSTALL}")
    kind = type(function).__name__
    if kind in DECORATORS:
        raise ArgumentError(
            f"the function has the decorator {DECORATORS[kind]}, and code that is built ahead of time is of one kernel",
            hints=("name the function without the decorator, 'ops.py:kernel.fn', and its constants",),
        )
    if kind != "JITFunction":
        raise ArgumentError(f"function must be decorated with @triton.jit, not {function!r}")


def layout_of(
    label: str, names: Sequence[str], signature: object, num_ctas: int, blocks: Blocks, options: Options
) -> TritonLayout:
    """Give each parameter that is not a constant its token or its axis."""
    declared, arguments, constants = match_arguments(label, names, signature)
    arrays = sorted(name for name, param in arguments if isinstance(param, Param) and param.role is not Role.ATTR)
    for name, shape in blocks.items():
        if name not in arrays:
            raise ArgumentError(f"{label}: block_shapes has {name!r}; the arrays are {', '.join(arrays)}")
        if not all(type(each) is int and each > 0 for each in shape) or not 1 <= len(shape) <= _MOST_AXES:
            raise ArgumentError(
                f"{label}: block_shapes has {shape!r} for {name}",
                hints=(f"pass one to {_MOST_AXES} whole numbers, or names of constants",),
            )
    may_be_slice = takes_slices(options, declared.signature)
    return TritonLayout(label, declared, arguments, num_ctas, blocks, may_be_slice, constants)


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
    constants : mapping of str to (int or None)
        Parameters whose tokens are constants.
    """

    label: str
    declared: Declared
    arguments: tuple[Argument, ...]
    num_ctas: int
    blocks: Blocks
    may_be_slice: bool
    constants: Mapping[str, int | None] = {}

    def bind(self, call: Resolved, scalars: Mapping[str, Value]) -> Bound:
        """Bind the parameters to the buffers, extents and scalars of a call."""
        specs, rest = (*call.inputs, *call.results), iter(self.declared.order)
        params: list[LaunchParam] = []
        divides, are_pointers_aligned = [], True
        for name, param in self.arguments:
            if isinstance(param, str):
                params.append(scalar_param(call.values[param].to_bytes(8, "little")))
            elif param.role is Role.ATTR:
                params.append(scalar_of(scalars[name]))
            else:
                at = next(rest)
                if name in self.blocks:
                    self._check_descriptor(name, specs[at])
                    params.append((DESCRIPTOR, at, 0, 0))  # `fit` writes the rest, which the images have
                else:
                    params.append(pointer_param(at, specs[at].ndim, specs[at].dtype.bits))
                divides.append(is_aligned(specs[at], may_be_slice=self.may_be_slice))
                are_pointers_aligned &= divides[-1]
                continue
            divides.append(params[-1][1] % DIVISIBLE == 0)
        plain = self.types(specs, call.values)
        extents = tuple((at, param) for at, (_, param) in enumerate(self.arguments) if isinstance(param, str))
        general = self._aligned(plain, [are_pointers_aligned and text.startswith("*") for text in plain])
        return Bound(tuple(params), self._aligned(plain, divides), general, extents)

    def types(self, specs: Sequence[ArraySpec], values: Mapping[str, int]) -> Variant:
        """Return the types for some arrays and extents of axes, in Triton's names: ``"*fp32"``, ``"i32"``."""
        rest, texts = iter(self.declared.order), []
        for name, param in self.arguments:
            if isinstance(param, str):
                texts.append("i32" if values.get(param, 0) < 2**31 else "i64")
            elif param.role is Role.ATTR:
                assert param.dtype is not None, "declare() raises for a scalar without a type"
                texts.append(_type(self.label, param.dtype.name))
            else:
                element = _type(self.label, specs[next(rest)].dtype.name)
                block = self.blocks.get(name)
                texts.append(f"*{element}" if block is None else f"{_DESCRIPTOR}{element}[{_listed(block)}]>")
        return tuple(texts)

    def variants(self, specs: Sequence[ArraySpec]) -> tuple[Variant, ...]:
        """Return the variants to build for some arrays: all values, only addresses, or no values divisible by 16."""
        plain = self.types(specs, {})
        addresses = self._aligned(plain, [text.startswith("*") for text in plain])
        every = self._aligned(plain, [True] * len(plain))
        return tuple(dict.fromkeys((every, addresses, plain) if self.may_be_slice else (every, addresses)))

    def _aligned(self, plain: Variant, divides: Sequence[bool]) -> Variant:
        """Mark the types of the addresses and integers that are divisible by 16 on each device."""
        split = split_axes(self.declared.signature)
        rows = zip(self.arguments, plain, divides, strict=True)
        return tuple(
            text + _ALIGNED * (is_marked and text[0] in "*iu" and text != "i1" and argument.param not in split)
            for argument, text, is_marked in rows
        )

    def _check_descriptor(self, name: str, spec: ArraySpec) -> None:
        """Check that the driver can make a tensor descriptor of an array."""
        label, block = f"{self.label}: {name}", self.blocks[name]
        if spec.ndim != len(block):
            problem = f"its block shape has {many(len(block), 'axis', 'axes')}: {block}"
            raise ArgumentError(f"{label} is {spec}, and {problem}")
        if max(spec.shape) >= 2**31 or math.prod(spec.shape[1:]) * spec.dtype.bits >= 8 * _MOST_STRIDE:
            problem = "a descriptor has extents below 2**31 and strides below 2**40 bytes"
            raise ArgumentError(f"{label} is {spec}; {problem}", hints=("pass a part of the array, or a pointer",))
        if any(math.prod(spec.shape[at:]) * spec.dtype.bits % (8 * DIVISIBLE) for at in range(1, spec.ndim)):
            raise ArgumentError(f"{label} is {spec}, but TMA needs rows of a multiple of {DIVISIBLE} bytes")
        if not is_aligned(spec, may_be_slice=self.may_be_slice):
            problem = f"slices of a batch would not begin at multiples of {DIVISIBLE} bytes, as TMA needs"
            raise ArgumentError(f"{label} is {spec}; {problem}", hints=("pass vmap_method='sequential'",))

    def fit(self, launch: Launch, kernel: Kernel, call: Resolved) -> Launch:
        """Give the launch the block of the images, their scratch memory, and two final pointers to that memory."""
        with reading(f"{kernel.name}, a kernel of Triton,"):
            for image in kernel.images:
                _check_extra(image.extra, len(self.blocks))
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


def _check_extra(extra: Sequence[int], descriptors: int) -> None:
    """Check the numbers of an image; raise ValueError for damaged numbers, or for another kernel's."""
    limits = (range(1, 1025), range(2**20), range(2**40), range(2), *(range(2**63),) * (2 * descriptors))
    if len(extra) != len(limits) or any(each not in limit for each, limit in zip(extra, limits, strict=True)):
        raise ValueError(f"extra is {list(extra)}")


def source_key(function: Any) -> str:
    """Return Triton's key for the present text of a function and of the functions that it calls.

    Triton computes a key once, but a notebook may define a called function again.
    """
    found, rest = set[int](), [function]
    while rest:
        each = rest.pop()
        if id(each) not in found and hasattr(each, "cache_key") and hasattr(each, "hash"):
            found.add(id(each))
            each.hash = None
            scope = inspect.getclosurevars(each.fn)
            rest += [*scope.globals.values(), *scope.nonlocals.values()]
    return str(function.cache_key)


def _constant_text(value: Any) -> str:
    """Describe a constant by its content, including functions among its parts."""
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(map(_constant_text, value))})"
    return source_key(value) if hasattr(value, "cache_key") else repr(value)


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
        True to add PTX of the latest architecture without a suffix, since Triton's code for 9.0 is code for 9.0a.

    Raises
    ------
    BuildError
        Triton can't compile the kernel, or the kernel needs a launch that is not supported.
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
        # Triton raises its own errors, and its passes raise any others because of the author's code.
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
