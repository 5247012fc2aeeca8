"""`cubin_kernel`: a kernel in a cubin or in PTX of any compiler, whose parameters are read from the code.

A cubin is an ELF file. The section ``.nv.info.NAME`` describes the kernel NAME by attributes: one byte for the form,
one for the kind, and two for a value or for the length of the following data. The code here does not trust the file.
"""

from __future__ import annotations

import difflib
import math
import re
import struct
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from be_runtime.call.array_function import ArrayFunction
from be_runtime.call.attributes import check_options
from be_runtime.call.resolve import CallSignature, Resolved
from be_runtime.call.signature import array_problem, check_names, integers
from be_runtime.errors import ArgumentError, SpecError
from be_runtime.frames import public
from be_runtime.kernels import launcher
from be_runtime.kernels.geometry import Dims, Geometry, explicit_geometry
from be_runtime.kernels.launcher import Kernel, KernelImage, KernelParam
from be_runtime.kernels.raw import RawLayout, raw_function
from be_runtime.kernels.raw_compiler import entries_of, parse_name
from be_runtime.kernels.sizes import Size
from be_runtime.kernels.source import Bound, Obtained
from be_runtime.load.process import PROCESS
from be_runtime.request.arguments import StrPath
from be_runtime.request.options import check_bool, check_path, note
from be_runtime.signature.cpp.lexer import split_words
from be_runtime.signature.grammar import parse_spec, render_spec
from be_runtime.signature.model import RULES, AttrKind, Param, Role, call_params, expressions
from be_toolchain.arch import Arch
from be_toolchain.errors import ArchError
from be_toolchain.machine.trust import read_regular
from be_toolchain.terminal import many

if TYPE_CHECKING:
    from collections.abc import Mapping

    from be_runtime.report import ModuleReport

_ELF, _FATBIN = b"\x7fELF", b"\x50\xed\x55\xba"
_CUDA_MACHINE, _RELOCATABLE = 190, 1
_SECTION = "<IIQQQQIIQQ"
_SECTION_BYTES = struct.calcsize(_SECTION)
_NO_BITS = 8
_INFO, _TEXT, _CONSTANTS, _TOOL = ".nv.info.", ".text.", ".nv.constant0.", ".note.nv.tkinfo"
_ACCELERATED = 0x800
"""Flag of a cubin with ABI version 7 for an architecture with the suffix ``a``."""
_SUFFIXED = re.compile(rb"-arch sm_(\d{2,3})([af])\b")

_NO_VALUE, _SIZED = 1, 4
"""Forms of an attribute: without a value, and with data. The forms between them have one and two bytes of value."""
_MOST_THREADS, _REQUIRED_THREADS, _PARAMETER, _NEW_PARAMETER = 0x05, 0x10, 0x17, 0x45

_PTX_NOISE = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_PTX_HEAD = re.compile(r"\s*\.version\s+\d+\.\d+\s+\.target\s+sm_(\d{2,3}[af]?)\b")
_PTX_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\(([^()]*)\))?([^{};]*)[{;]")
_PTX_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]+)(\d*)(?:\s+\.[a-z]+(?:\s+\d+)?)*\s+[\w$%]+\s*(?:\[\s*(\d+)\s*\])?"
)
_PTX_THREADS = re.compile(r"\.(maxntid|reqntid)\s+(\d+)\s*(?:,\s*(\d+)\s*)?(?:,\s*(\d+))?")
_OPAQUE = {"texref", "samplerref", "surfref"}

POINTER_BYTES = 8
_ROLES = (Role.ARG, Role.RET, Role.SCRATCH)


class Code(NamedTuple):
    """A cubin or PTX, with the names of its kernels.

    Parameters
    ----------
    label : str
        Name in messages.
    data : bytes
    is_ptx : bool
    arch : Arch
    kernels : tuple of str
    """

    label: str
    data: bytes
    is_ptx: bool
    arch: Arch
    kernels: tuple[str, ...]


class KernelFacts(NamedTuple):
    """The facts that code states about a kernel.

    Parameters
    ----------
    sizes : tuple of int
        Bytes of each parameter.
    most_threads : int or None
        Limit for the threads of a block; None if the code has no limit.
    block : tuple of int, or None
        The block that the kernel was compiled for; None if it runs with any block.
    """

    sizes: tuple[int, ...]
    most_threads: int | None = None
    block: tuple[int, int, int] | None = None


def read_code(data: bytes, label: str) -> Code:
    """Find the architecture and the kernels in a cubin or in PTX.

    Raises
    ------
    ArgumentError
        The bytes are neither a cubin nor PTX, or are damaged.

    Examples
    --------
    >>> ptx = b".version 8.0 .target sm_90a .address_size 64 .visible .entry f(.param .u64 x) { ret; }"
    >>> code = read_code(ptx, "f.ptx")
    >>> str(code.arch), code.kernels, kernel_facts(code, "f").sizes
    ('9.0a', ('f',), (8,))
    """
    if data.startswith(_ELF):
        return _read_elf(data, label)
    if data.startswith(_FATBIN):
        raise ArgumentError(f"{label} is a fat binary", hints=("extract its cubins: cuobjdump -xelf all FILE",))
    text = _ptx_text(data)
    head = _PTX_HEAD.match(text)
    if head is None:
        raise ArgumentError(
            f"{label} is neither a cubin nor PTX: it begins with {data[:16]!r}",
            hints=("make one: nvcc -cubin -arch=sm_90 FILE.cu, or nvcc -ptx FILE.cu",),
        )
    names = tuple(dict.fromkeys(match[1] for match in _PTX_ENTRY.finditer(text)))
    return Code(label, data.rstrip(b"\0"), True, _arch(head[1], label), names)


def kernel_facts(code: Code, entry: str) -> KernelFacts:
    """Read the parameters and the block of a kernel.

    Parameters
    ----------
    code : Code
    entry : str
        One of the kernels.

    Raises
    ------
    ArgumentError
        The description of the kernel is damaged, or its form is not known.
    """
    return _ptx_facts(code, entry) if code.is_ptx else _elf_facts(code, entry)


def _arch(number: str, label: str) -> Arch:
    try:
        return Arch.parse(f"sm_{number}")
    except ArchError as error:
        raise ArgumentError(f"{label}: {error.message}") from None


def _ptx_text(data: bytes) -> str:
    return _PTX_NOISE.sub(" ", data.rstrip(b"\0").decode("latin-1"))


def _ptx_facts(code: Code, entry: str) -> KernelFacts:
    _, params, directives = next(m.groups() for m in _PTX_ENTRY.finditer(_ptx_text(code.data)) if m[1] == entry)
    words = [word.strip() for word in (params or "").split(",") if word.strip()]
    given: dict[str, tuple[int, int, int]] = {}
    for match in _PTX_THREADS.finditer(directives):
        x, y, z = (int(number or 1) for number in match.groups()[1:])
        given[match[1]] = (x, y, z)
    most = math.prod(given["maxntid"]) if "maxntid" in given else None
    return KernelFacts(tuple(_ptx_size(word, code, entry) for word in words), most, given.get("reqntid"))


def _ptx_size(word: str, code: Code, entry: str) -> int:
    match = _PTX_PARAM.fullmatch(word)
    bits = int(match[2] or 0) if match else 0
    if match is not None and match[1] in _OPAQUE:
        bits = 64
    if match is None or bits % 8 or not 8 <= bits <= 128:
        raise ArgumentError(f"{code.label}: the parameter {word!r} of {entry} is not understood")
    return bits // 8 * int(match[3] or 1)


def _damaged(label: str, problem: str) -> ArgumentError:
    return ArgumentError(f"{label} is a damaged or truncated cubin: {problem}")


def _unpack(layout: str, data: bytes, at: int, label: str) -> tuple[int, ...]:
    if not 0 <= at <= len(data) - struct.calcsize(layout):
        raise _damaged(label, f"it ends before byte {at + struct.calcsize(layout)}")
    return struct.unpack_from(layout, data, at)


def _read_elf(data: bytes, label: str) -> Code:
    kind, machine = _unpack("<HH", data, 16, label)
    if data[4:6] != b"\x02\x01" or machine != _CUDA_MACHINE:
        raise ArgumentError(
            f"{label} is an ELF file, but not a cubin: its ELF machine is {machine}, and a GPU's is 190",
            hints=("extract cubins from an object or a library: cuobjdump -xelf all FILE",),
        )
    if kind == _RELOCATABLE:
        raise ArgumentError(
            f"{label} is relocatable, so no device loads it",
            hints=("compile it without -rdc=true and -dc, or link it: nvlink",),
        )
    sections = _sections(data, label)
    names = (name.removeprefix(_INFO) for name in sections if name.startswith(_INFO))
    kernels = tuple(name for name in names if _TEXT + name in sections and _CONSTANTS + name in sections)
    return Code(label, data, False, _elf_arch(data, sections, label), kernels)


def _elf_arch(data: bytes, sections: Mapping[str, slice], label: str) -> Arch:
    """Read the architecture; a later ABI has the suffix only in the options of the tool."""
    (flags,) = _unpack("<I", data, 48, label)
    if data[8] < 8:
        return _arch(f"{flags & 0xFF}{'a' * bool(flags & _ACCELERATED)}", label)
    number = str(flags >> 8 & 0xFF)
    found = _SUFFIXED.search(data[sections.get(_TOOL, slice(0))])
    is_same = found is not None and found[1].decode() == number
    return _arch(number + (found[2].decode() if found is not None and is_same else ""), label)


def _sections(data: bytes, label: str) -> dict[str, slice]:
    """Return the places of the sections by their names."""
    segments, start = _unpack("<QQ", data, 32, label)
    segment_size, segment_count, size, count, names_at = _unpack("<5H", data, 54, label)
    if segments + segment_size * segment_count > len(data):
        raise _damaged(label, f"its segments are described from byte {segments} of {len(data)}")
    if size < _SECTION_BYTES or names_at >= count:
        raise _damaged(label, f"it has {count} sections of {size} bytes, with their names in section {names_at}")
    rows = [_unpack(_SECTION, data, start + index * size, label) for index in range(count)]
    for row in rows:
        if row[1] != _NO_BITS and row[4] + row[5] > len(data):
            raise _damaged(label, f"a section of {row[5]} bytes begins at byte {row[4]} of {len(data)}")
    text = data[rows[names_at][4] :][: rows[names_at][5]]
    found = {}
    for row in rows:
        end = text.find(b"\0", row[0])
        if end < 0:
            raise _damaged(label, f"the name of a section begins at byte {row[0]} of {len(text)}")
        found[text[row[0] : end].decode("latin-1")] = slice(row[4], row[4] + (row[5] if row[1] != _NO_BITS else 0))
    return found


def _attributes(data: bytes, label: str) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and the data of each attribute."""
    at = 0
    while at < len(data):
        form, kind, value = _unpack("<BBH", data, at, label)
        if not _NO_VALUE <= form <= _SIZED:
            raise _damaged(label, f"an attribute has the form {form}")
        size = value if form == _SIZED else 0
        if at + 4 + size > len(data):
            raise _damaged(label, f"an attribute of {size} bytes ends after its section")
        yield kind, data[at + 4 : at + 4 + size]
        at += 4 + size


def _elf_facts(code: Code, entry: str) -> KernelFacts:
    label = f"{code.label}: {entry}"
    sizes: dict[int, int] = {}
    threads: dict[int, tuple[int, ...]] = {}
    for kind, body in _attributes(code.data[_sections(code.data, code.label)[_INFO + entry]], label):
        if kind in (_PARAMETER, _NEW_PARAMETER):
            _, ordinal, _, size, flags = _unpack("<IHHHH", body, 0, label)
            if ordinal in sizes:
                raise _damaged(label, f"parameter {ordinal} is described twice")
            sizes[ordinal] = size if kind == _NEW_PARAMETER else flags >> 2
        elif kind in (_MOST_THREADS, _REQUIRED_THREADS):
            threads[kind] = _unpack("<3I", body, 0, label)
    if sorted(sizes) != list(range(len(sizes))):
        raise _damaged(label, f"it describes the parameters {', '.join(map(str, sorted(sizes)))}")
    most = math.prod(threads[_MOST_THREADS]) if _MOST_THREADS in threads else None
    x, y, z = threads.get(_REQUIRED_THREADS, (0, 0, 0))
    return KernelFacts(tuple(sizes[i] for i in range(len(sizes))), most, (x, y, z) if x else None)


def choose_entry(code: Code, name: str) -> str:
    """Return the kernel of a name, in the spelling of the code or of C++.

    Raises
    ------
    ArgumentError
        No kernel matches the name, or several do.
    """
    if name in code.kernels:
        return name
    try:
        found = entries_of(code.kernels, parse_name(name))
    except SpecError:
        found = []
    if len(found) == 1:
        return found[0]
    shown = ", ".join(sorted(found or code.kernels)) or "none"
    if found:
        raise ArgumentError(f"{code.label}: {name!r} may be any of: {shown}", hints=("pass one of these names",))
    close = difflib.get_close_matches(name, code.kernels, n=1)
    raise ArgumentError(
        f"{code.label} has no kernel {name!r}; its kernels are: {shown}",
        hints=tuple(f"did you mean {each}?" for each in close),
    )


class Declared(NamedTuple):
    """The declaration of a kernel whose compiler states no types.

    Parameters
    ----------
    params : tuple of Param
        Parameters in the kernel's order.
    signature : CallSignature
        Signature of its calls.
    order : tuple of int
        See `RawLayout`.
    """

    params: tuple[Param, ...]
    signature: CallSignature
    order: tuple[int, ...]

    @property
    def tokens(self) -> list[str]:
        """The token of each parameter."""
        return [_token(param) for param in self.params]

    def layout(self, name: str) -> RawLayout:
        """Return the layout of a kernel's arguments; inputs are ``const``, since the author guarantees it."""
        return RawLayout(name, name, tuple(map(_kernel_param, self.params)), self.order)


def _token(param: Param) -> str:
    return render_spec([param])[0]


def _kernel_param(param: Param) -> KernelParam:
    if param.role is Role.ATTR:
        assert param.dtype is not None, "declare() raises for a scalar without a type"
        return KernelParam(param.name, param.dtype.name, False, True, param.dtype)
    return KernelParam("", "pointer", True, param.role is Role.ARG, None)


def split_tokens(label: str, given: object) -> list[str]:
    """Return the tokens of a signature.

    Raises
    ------
    ArgumentError
        `given` is not a string or a list of strings.
    """
    tokens = [word for _, word in split_words(given)] if isinstance(given, str) else given
    if not isinstance(tokens, Sequence) or not all(isinstance(each, str) for each in tokens):
        raise ArgumentError(f"{label}: signature must be a string or a list of strings, not {given!r}")
    return [*tokens]


def declare(label: str, given: object) -> Declared:
    """Read a signature whose tokens are in the order of the kernel's parameters.

    Raises
    ------
    ArgumentError
        `given` is not a string or a list of strings.
    SpecError
        A token is unknown, or no kernel without host code can have it.

    Examples
    --------
    >>> made = declare("f", "ret[n]:float32 attr.by:float32 arg[n]")
    >>> made.tokens, made.order
    (['ret[n]:float32', 'attr.by:float32', 'arg[n]'], (1, 0))
    """
    params = parse_spec(split_tokens(label, given), function=label)
    for param in params:
        problem = _scalar_problem(param) if param.role is Role.ATTR else "" if param.in_place else array_problem(param)
        if problem:
            raise SpecError(f"{label}: {_token(param)!r} {problem}")
    known = integers(params)
    for expression in (each for param in params for each in expressions(param.axes)):
        check_names(label, expression, known)
    arrays = [param for role in _ROLES for param in params if param.role is role]
    rest = tuple(param for param in params if param.role not in _ROLES)
    numbers = {id(param): number for number, param in enumerate(arrays)}
    own = tuple(param for param in call_params(params) if param.role not in RULES)
    order = tuple(numbers[id(param)] for param in own if param.role is not Role.ATTR)
    return Declared(own, CallSignature(label, (*arrays, *rest)), order)


def _scalar_problem(param: Param) -> str:
    """Return the reason a parameter can't be a scalar of a kernel; empty if it can."""
    if param.kind is not AttrKind.SCALAR or param.dtype is None:
        return f"needs the type of a number, as in attr.{param.name}:int32"
    if param.dtype.size_bytes > POINTER_BYTES or param.dtype.is_for_arrays_only:
        return "can't be passed: a scalar has a type of numbers of at most 8 bytes"
    return ""


def check_sizes(label: str, declared: Declared, sizes: Sequence[int]) -> None:
    """Check that each parameter of a kernel has a token, and the token's size.

    Raises
    ------
    ArgumentError
    """
    shown = f"{many(len(sizes), 'parameter')}{' of ' * bool(sizes)}{', '.join(map(str, sizes))}{' bytes' * bool(sizes)}"
    if len(declared.params) != len(sizes):
        raise ArgumentError(
            f"{label} has {shown}, but the signature has {many(len(declared.params), 'token')} for parameters: "
            f"{' '.join(declared.tokens) or 'none'}",
            hints=("write one token for each parameter, in the kernel's order: arg, ret, inout, scratch or attr",),
        )
    for number, (param, token, size) in enumerate(zip(declared.params, declared.tokens, sizes, strict=True)):
        is_scalar = param.role is Role.ATTR and param.dtype is not None
        wanted = param.dtype.size_bytes if is_scalar and param.dtype is not None else POINTER_BYTES
        if wanted != size:
            kind = "" if is_scalar else ", a pointer"
            raise ArgumentError(
                f"{label}: parameter {number} has {many(size, 'byte')}, but {token} has {wanted}{kind}; it has {shown}",
                hints=("write the tokens in the order of the kernel's parameters",),
            )


def fitting_geometry(grid: object, block: object, *, label: str, facts: KernelFacts, **more: Any) -> Geometry:
    """Make a geometry as `explicit_geometry`, and check the block against the code.

    Raises
    ------
    ArgumentError
        The kernel was compiled for another block.
    """
    made = explicit_geometry(grid, block, **more)
    threads = math.prod(made.block)
    if facts.block is not None and made.block != facts.block:
        raise ArgumentError(f"{label} was compiled for a block of {facts.block}, not of {made.block}")
    if facts.most_threads is not None and threads > facts.most_threads:
        raise ArgumentError(
            f"{label} was compiled for a block of at most {facts.most_threads} threads, and block={made.block} has "
            f"{threads}"
        )
    return made


def _read_source(path: object) -> tuple[bytes, str]:
    """Return the code and its name in messages."""
    if isinstance(path, bytes | bytearray | memoryview):
        return bytes(path), f"code of {many(len(bytes(path)), 'byte')}"
    if path is None:
        raise ArgumentError("path must be the path of a cubin or of PTX, or its bytes, not None")
    found = check_path(path, "path")
    try:
        return read_regular(found), found.name
    except OSError as error:
        raise ArgumentError(f"path={str(path)!r} can't be read: {error.strerror or error}") from None


class CubinCode(NamedTuple):
    """The images of a kernel that is already compiled.

    Parameters
    ----------
    kernel : Kernel
    """

    kernel: Kernel

    def obtain(self, _call: Resolved, _bound: Bound) -> Obtained:
        """Return the kernel, which is the same for all calls."""
        return Obtained(self.kernel, launcher.own_launcher(PROCESS.session()))

    def report(self, block_sizes: Sequence[int] | None) -> ModuleReport:
        """Return the report of a cubin for block sizes."""
        from be_runtime.report import check_blocks, report_cubins

        cubins = [(image.cuda_arch, image.data) for image in self.kernel.images]
        return report_cubins(self.kernel.name, cubins, PROCESS.session().system, check_blocks(block_sizes))


@public
def cubin_kernel(
    path: StrPath | bytes,
    name: str,
    signature: str | Sequence[str],
    *,
    grid: Size,
    block: Size,
    shared_mem: Size = 0,
    cluster: Dims | None = None,
    cooperative: bool = False,
    outs: Any = None,
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    ordered: bool = False,
    input_layouts: Sequence[Sequence[int] | None] | None = None,
    output_layouts: Sequence[Sequence[int] | None] | None = None,
    random: bool = False,
) -> ArrayFunction:
    """Make a kernel from a cubin or PTX file callable from JAX.

    Any compiler may have written the file. `cubin_kernel` reads the kernel's parameters from the file, and compares
    them with the signature.

    Parameters
    ----------
    path : str, Path or bytes
        Path of a cubin or PTX file, or the content of such a file as bytes.
    name : str
        Name of the kernel: the symbol in the machine code, such as ``"_Z5scalePKfPf"``, or the name in C++, such as
        ``"scale"`` or ``"ops::scale"``.
    signature : str or sequence of str
        One token for each parameter, in the kernel's order: ``arg``, ``ret``, ``inout`` and ``scratch`` for pointers,
        and ``attr.NAME:TYPE`` for numbers. The code states neither ``const`` nor element types. Therefore two errors
        are not detected: a kernel that writes to an ``arg``, and a pointer whose element type differs from the
        signature.
    grid : int, str, tuple of int or str, or callable
        Number of blocks along one to three axes. A string is arithmetic over the axes of the signature and integer
        scalars, such as ``"ceil(n/256)"`` or ``"attr.n"``. A callable, such as ``lambda x: (x.size + 255) // 256``,
        receives the shapes and dtypes of the inputs.
    block : int, str, tuple of int or str, or callable
        Number of threads per block along one to three axes, in the same form as `grid`.
    shared_mem : int, str or callable, default 0
        Dynamic shared memory per block, in bytes.
    cluster : int or tuple of int, optional
        Number of blocks per thread block cluster along one to three axes.
    cooperative : bool, default False
        Make a cooperative launch, in which the kernel can synchronize the whole grid.
    outs : ShapeDtypeStruct, pytree of them, or callable, optional
        Shape and dtype of each result, unless `signature` declares them. A callable receives the shapes and dtypes of
        the inputs.
    vmap_method : str, optional
        Value of ``vmap_method`` for ``jax.ffi.ffi_call``. With a value that passes a whole batch in one call, native
        code launches the kernel for each element. If the axes of each array in the signature begin with ``...``, the
        default is ``"broadcast_all"``. If the axes of an array begin differently, the default is ``"sequential"``. If
        the signature declares no axes for an array, ``vmap`` needs this argument.
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

    Returns
    -------
    callable
        Function that takes the inputs by position and the attributes by name, and returns the results.

    Raises
    ------
    ArgumentError
        The file can't be read, is neither a cubin nor PTX, or is damaged. The file does not define the kernel, the
        kernel's parameters differ from the signature, or the kernel was compiled for a different block size.
    SpecError
        The signature is invalid.

    See Also
    --------
    - `cuda_kernel`: compile a kernel from source text.
    - :doc:`/kernels`: launch sizes, scalars, scratch memory and derivatives.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> scale = be_runtime.cubin_kernel(  # doctest: +SKIP
    ...     "scale.cubin",
    ...     "scale",
    ...     "arg[n]:float32 ret[n] attr.by:float32 attr.n:int32",
    ...     grid="ceil(n/256)",
    ...     block=256,
    ... )
    >>> scale(jnp.arange(1000.0), by=2.0, n=1000)  # doctest: +SKIP
    """
    options, is_cooperative = check_options(locals()), check_bool(cooperative, "cooperative")
    kernel, declared, facts = read_kernel(path, name, signature, is_cooperative=is_cooperative)
    note(f"{kernel.name} {kernel.id}")
    sizes = {"grid": grid, "block": block, "shared_mem": shared_mem, "cluster": cluster}
    code, make = CubinCode(kernel), partial(fitting_geometry, label=name, facts=facts)
    report = None if kernel.images[0].is_ptx else code.report
    return raw_function(declared.layout(name), code, declared.signature, sizes, options, report, make)


def read_kernel(
    path: object, name: object, signature: object, *, is_cooperative: bool
) -> tuple[Kernel, Declared, KernelFacts]:
    """Read a kernel and its facts from code, and compare them with a signature; see `cubin_kernel`."""
    if not isinstance(name, str):
        raise ArgumentError(f"name must be a string, not {type(name).__name__}: {name!r}")
    code = read_code(*_read_source(path))
    entry = choose_entry(code, name)
    facts, declared = kernel_facts(code, entry), declare(name, signature)
    check_sizes(f"{name} in {code.label}", declared, facts.sizes)
    image = KernelImage(code.arch, entry, code.data, code.is_ptx, is_cooperative=is_cooperative)
    return Kernel(launcher.content_id([image]), name, (image,)), declared, facts
