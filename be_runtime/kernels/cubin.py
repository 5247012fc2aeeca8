"""`cubin_kernel`: a kernel in a cubin or in PTX of any compiler, whose parameters are read from the code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from be_runtime.call.array_function import ArrayFunction
from be_runtime.call.attributes import check_options
from be_runtime.call.resolve import CallSignature, Resolved
from be_runtime.call.signature import array_problem, check_names, integers
from be_runtime.errors import ArgumentError, SpecError
from be_runtime.frames import public
from be_runtime.kernels import launcher
from be_runtime.kernels.device_code import KernelFacts, choose_entry, kernel_facts, read_code
from be_runtime.kernels.geometry import Dims, Geometry, explicit_geometry
from be_runtime.kernels.launcher import Kernel, KernelImage, KernelParam
from be_runtime.kernels.raw import RawLayout, raw_function
from be_runtime.kernels.sizes import Size
from be_runtime.kernels.source import Bound, Obtained
from be_runtime.load.process import PROCESS
from be_runtime.request.arguments import StrPath
from be_runtime.request.options import check_bool, check_path, note
from be_runtime.signature.cpp.lexer import split_words
from be_runtime.signature.grammar import parse_spec, render_spec
from be_runtime.signature.model import RULES, AttrKind, Param, Role, call_params, expressions
from be_toolchain.machine.trust import read_regular
from be_toolchain.terminal import many

if TYPE_CHECKING:
    from collections.abc import Mapping

    from be_runtime.report import ModuleReport

POINTER_BYTES = 8
_ROLES = (Role.ARG, Role.RET, Role.SCRATCH)


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

    The file may come from any compiler. `cubin_kernel` reads the kernel's parameters from the file, and compares the
    parameters with the signature.

    Parameters
    ----------
    path : str, Path or bytes
        Path of a cubin or PTX file, or the content of such a file as bytes.
    name : str
        Name of the kernel: the symbol in the machine code, such as ``"_Z5scalePKfPf"``, or the name in C++, such as
        ``"scale"`` or ``"ops::scale"``.
    signature : str or sequence of str
        One token for each parameter, in the kernel's order: ``arg``, ``ret``, ``inout`` and ``scratch`` for pointers,
        and ``attr.NAME:TYPE`` for numbers. Machine code contains neither ``const`` nor the element types of pointers.
        Therefore `cubin_kernel` does not detect two errors: a kernel that writes to an ``arg``, and a pointer whose
        element type differs from the signature.
    grid : int, str, tuple of int or str, or callable
        Number of blocks along one to three axes. A string is arithmetic over the axes of the signature and integer
        attributes, such as ``"ceil(n/256)"`` or ``"attr.n"``. A callable, such as ``lambda x: (x.size + 255) // 256``,
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
    - :doc:`/kernels`: launch sizes, attributes, scratch memory and derivatives.

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
