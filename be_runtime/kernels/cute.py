"""`cute_kernel`: compile a function of ``@cute.jit``, and call it without Python on XLA's stream.

CuTe DSL exports a function of the TVM-FFI C ABI. The cache keeps its library, and a module calls it, as
`be_runtime.load_tvm_ffi` does. The library contains no file of CuTe DSL, whose license forbids to distribute its binary
files. It needs ``libcute_dsl_runtime.so`` by name.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import inspect
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from be_runtime import errors
from be_runtime.call.attributes import check_options
from be_runtime.call.compiled_function import KernelTarget
from be_runtime.call.function import KernelFunction, SourceFunction
from be_runtime.call.resolve import CallSignature, Resolved
from be_runtime.dtypes import DType
from be_runtime.frames import public
from be_runtime.jax.arrays import ArraySpec, Value
from be_runtime.kernels.content import function_content
from be_runtime.kernels.cubin import declare
from be_runtime.kernels.launcher import Memo, choose_archs
from be_runtime.kernels.tvm_ffi import import_tvm_ffi, load_source
from be_runtime.kernels.tvm_ffi_source import Function, Word, render
from be_runtime.load import obtain
from be_runtime.load.identity import own_code_digest
from be_runtime.load.module import CompiledModule, ModuleInfo
from be_runtime.load.process import PROCESS
from be_runtime.load.registry import Session
from be_runtime.request.options import check_arch_list, check_bool, note
from be_runtime.settings import require_jit
from be_runtime.signature.cpp.lexer import split_words
from be_runtime.signature.grammar import parse_spec, render_spec
from be_runtime.signature.model import Param, Role, axis_names
from be_runtime.store.cache import BuildOutput
from be_runtime.store.keys import CacheKey, make_key
from be_toolchain.arch import Arch
from be_toolchain.machine.forks import ThreadLock
from be_toolchain.terminal import many

if TYPE_CHECKING:
    from be_runtime.store.sharing import Shareable

_PACKAGE = "nvidia-cutlass-dsl"
_OLDEST = (4, 8)
_INSTALL = "pip install 'brainevent-toolchain[cute]'"
_TYPES = {
    **{f"float{bits}": f"Float{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"Int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"Uint{bits}" for bits in (8, 16, 32, 64)},
    "bfloat16": "BFloat16",
    "bool": "Boolean",
    "float8_e5m2": "Float8E5M2",
    "float8_e4m3fn": "Float8E4M3FN",
    "float8_e8m0fnu": "Float8E8M0FNU",
}
"""CuTe DSL's names of element types."""

_ALIGNED = 16
"""Alignment, in bytes, for which kernels are compiled, and so the largest access; XLA's alignment is larger."""

_ACCELERATED = 9
"""First major architecture for which CuTe DSL compiles with the suffix ``a``."""

_BY_NAME = ("cuda.bindings", "cutlass", "jax", "jaxlib", "torch", "tvm_ffi")
"""Packages that count by name and version, see `function_content`."""
_NO_SETTING = ("ARCH", "CACHE", "DUMP", "KEEP", "LIBS", "LOG", "PRINT")
"""Parts of the names of CuTe DSL's variables that do not change the machine code, or that a call overrides."""

_OBJECT = "kernel.o"
_COLOR = re.compile(r"\x1b\[[\d;]*m")


class CuteKernel(NamedTuple):
    """A function of ``@cute.jit`` with all that it is compiled for.

    Parameters
    ----------
    function : callable
    names : tuple of str
        Its parameters. The parameter that is neither in `params` nor in `constants` is the stream.
    params : dict of str to Param
        Arrays and numbers.
    constants : dict of str to object
    divisible : dict of str to int
        Divisors of the extents of axes.
    options : str
        Further options of ``cute.compile``.
    """

    function: Any
    names: tuple[str, ...]
    params: Mapping[str, Param]
    constants: Mapping[str, Any]
    divisible: Mapping[str, int]
    options: str

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(self.function.__name__)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of arrays and numbers, in the function's order."""
        return tuple(render_spec([param])[0] for param in self.params.values())

    def content(self) -> str:
        """Hash the function with all objects that it uses, and the constants.

        Raises
        ------
        ArgumentError
            The function uses an object that can't be read.
        """
        found = function_content((self.function, sorted(self.constants.items())), _BY_NAME, with_objects=True)
        if found.anchors:
            unknown = found.anchors[0]
            raise errors.ArgumentError(
                f"{self.name} uses {unknown if isinstance(unknown, str) else repr(unknown)}, whose content can't be "
                "read, so no cache key can be computed for the function",
                hints=(
                    "import modules at the top of the file",
                    "make objects that CuTe DSL fills in, such as a GEMM of CUTLASS, inside the function",
                ),
            )
        return found.digest


@public
def cute_kernel(
    function: Any,
    signature: str | Sequence[str],
    *,
    divisible: Mapping[str, int] | None = None,
    compile_options: str = "",
    compute_capability: str | None = None,
    allow_cuda_graph: bool = True,
    outs: Any = None,
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    ordered: bool = False,
    input_layouts: Sequence[Sequence[int] | None] | None = None,
    output_layouts: Sequence[Sequence[int] | None] | None = None,
    random: bool = False,
    **constants: Any,
) -> KernelFunction[..., Any]:
    """Make a CuTe DSL function callable from JAX.

    CuTe DSL compiles the function when JAX first traces a call, for the dtypes of the call and for all extents. The
    cache keeps the library. A call runs no Python.

    Parameters
    ----------
    function : callable
        Function decorated with ``@cute.jit``. One parameter, which is called ``stream`` or has the type ``CUstream``,
        is the stream. The function must pass the stream to each launch.
    signature : str or sequence of str
        One token for each parameter that is neither a constant nor the stream, in the function's order: ``arg``,
        ``ret`` and ``inout`` with axes for a ``cute.Tensor``, ``attr.NAME:TYPE`` for a number. A tensor is compact and
        row-major, and its address is a multiple of 16 bytes. If an axis is a number, as in ``"arg[n 128]"``, the extent
        is static. The axes that ``...`` stands for become one axis, the first axis of the tensor. If ``...`` stands for
        no axes, the extent of the first axis is 1.
    divisible : dict of str to int, optional
        Dictionary from the name of an axis to a divisor of the axis's extent, such as ``{"n": 8}``. CuTe DSL may then
        use wider memory accesses. A call whose extent is not a multiple of the divisor raises an error.
    compile_options : str, default ""
        Other options of ``cute.compile``, such as ``"--opt-level 2"``.
    compute_capability : str, optional
        Architecture, such as ``"sm_90a"``. For 9.0 and later, the suffix ``a`` is implied. The default is the
        architecture of the GPU of this machine.
    allow_cuda_graph : bool, default True
        Let XLA record calls in CUDA graphs, which replay the launches without running host code again. Pass False if
        the host code of the function does more than launch kernels.
    outs : ShapeDtypeStruct, sequence of them, or callable, optional
        Shape and dtype of each result, unless `signature` declares them. A callable receives the inputs and the
        attributes.
    vmap_method : str, optional
        Value of ``vmap_method`` for ``jax.ffi.ffi_call``. The default depends on the declared axes: see
        `KernelFunction.with_options`.
    input_output_aliases : dict of int to int, optional
        Dictionary from the index of an input to the index of the result that may share the input's memory.
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
    **constants
        Values of the function's ``cutlass.Constexpr`` parameters.

    Returns
    -------
    KernelFunction
        Function that takes the inputs by position and the attributes by name, and returns the results.

    Raises
    ------
    ImportError
        TVM-FFI is not installed, or CuTe DSL is not installed or older than 4.8.
    ArgumentError
        The tokens don't fit the function's parameters, or `function` is not decorated with ``@cute.jit``.
    SpecError
        The signature is invalid.
    BuildError
        At a call: CuTe DSL can't compile the function.

    See Also
    --------
    - :doc:`/other-compilers`: kernels from cuTile, CuTe DSL, TileLang and FlashInfer.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> import cutlass  # doctest: +SKIP
    >>> import cutlass.cute as cute  # doctest: +SKIP
    >>> @cute.kernel  # doctest: +SKIP
    ... def add_kernel(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, BLOCK: cutlass.Constexpr):
    ...     i = cute.arch.block_idx()[0] * BLOCK + cute.arch.thread_idx()[0]
    ...     if i < cute.size(x):
    ...         out[i] = x[i] + y[i]
    >>> @cute.jit  # doctest: +SKIP
    ... def add(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, stream, BLOCK: cutlass.Constexpr):
    ...     blocks = cute.ceil_div(cute.size(x), BLOCK)
    ...     add_kernel(x, y, out, BLOCK).launch(grid=[blocks, 1, 1], block=[BLOCK, 1, 1], stream=stream)
    >>> add_arrays = be_runtime.cute_kernel(add, "arg[n] arg[n] ret[n]", BLOCK=256)  # doctest: +SKIP
    >>> add_arrays(jnp.ones(4), jnp.ones(4)).tolist()  # doctest: +SKIP
    [2.0, 2.0, 2.0, 2.0]
    """
    options, graph = check_options(locals()), check_bool(allow_cuda_graph, "allow_cuda_graph")
    asked = check_arch_list(compute_capability, "compute_capability")
    kernel, called = read_kernel(function, signature, constants, divisible or {}, compile_options)
    note(f"cute {kernel.content()} {kernel.tokens} {kernel.divisible} {kernel.options}")
    return SourceFunction(called, CuteSource(kernel, called, asked, graph, Memo[CompiledModule]()), options)


class CuteSource(NamedTuple):
    """The libraries of a function for combinations of dtypes, see `be_runtime.call.function.KernelSource`.

    Parameters
    ----------
    kernel : CuteKernel
        Function without the types of its arrays.
    called : CallSignature
    asked : str or None
        Architecture instead of the present device's.
    allow_cuda_graph : bool
    loaded : Memo
        Modules by the tokens of their functions and by architectures.
    """

    kernel: CuteKernel
    called: CallSignature
    asked: str | None
    allow_cuda_graph: bool
    loaded: Memo[CompiledModule]

    def target(self, call: Resolved, scalars: Mapping[str, Value]) -> KernelTarget:
        """Load the module for the dtypes of a call, and return its function's target."""
        session, label = PROCESS.session(), self.kernel.name
        check_divisible(label, self.kernel.divisible, call.values)
        typed = with_types(self.kernel, array_dtypes(self.called, call.inputs, call.results))
        arch = _choose_arch(label, self.asked, session)
        made = self.loaded.get(
            (typed.tokens, arch), lambda: load_cute(typed, arch, session, allow_cuda_graph=self.allow_cuda_graph)
        )
        return KernelTarget(ModuleInfo.of(made).entry_point(label)[1](), tuple(scalars.items()))


def called_signature(label: str, signature: Any, doc: str | None) -> CallSignature:
    """Read the signature of the calls of a function.

    Raises
    ------
    SpecError
        A token is wrong.
    """
    words = [word for _, word in split_words(signature)] if isinstance(signature, str) else signature
    declare(label, words)
    return CallSignature(label, parse_spec([*words], function=label), doc or "")


def read_kernel(
    function: Any, signature: object, constants: Mapping[str, Any], divisible: Mapping[str, Any], compile_options: str
) -> tuple[CuteKernel, CallSignature]:
    """Check the arguments of `cute_kernel` that describe a kernel; return the kernel without types, and its calls."""
    _check_function(function)
    label = str(function.__name__)
    called = called_signature(label, signature, function.__doc__)
    taken = declare(label, [*render_spec(called.params)]).params
    return describe(function, taken, constants, divisible, compile_options), called


def _check_function(function: Any) -> None:
    """Check that CuTe DSL and TVM-FFI are new enough, and that a function is decorated with ``@cute.jit``."""
    try:
        import cutlass.cute
    except ImportError as error:
        message = f"cute_kernel needs CuTe DSL, which can't be imported: {error}\nhint: {_INSTALL}"
        raise ImportError(message) from error
    version = str(cutlass.__version__)
    major, minor = (int(part) for part in version.split(".")[:2])
    if major != _OLDEST[0] or minor < _OLDEST[1]:
        wanted = "CuTe DSL 4, from {}.{} on".format(*_OLDEST)
        raise ImportError(f"cute_kernel needs {wanted}, and {version} is installed\nhint: {_INSTALL}")
    import_tvm_ffi("cute_kernel")
    kind = getattr(function, "_decorator_kind", "")
    if kind != "jit" or not inspect.isfunction(function):
        hints = ("write a function of @cute.jit that launches the kernel",) if kind == "kernel" else ()
        raise errors.ArgumentError(f"function must be decorated with @cute.jit, not {function!r}", hints=hints)


def describe(
    function: Any, taken: Sequence[Param], constants: Mapping[str, Any], divisible: Mapping[str, Any], options: str
) -> CuteKernel:
    """Give each parameter of a function its token or its constant.

    Raises
    ------
    ArgumentError
        A parameter has neither a token nor a constant, there is no stream, or CuTe DSL does not support a token.
    """
    label, parameters = str(function.__name__), inspect.signature(function).parameters
    wanted = [name for name, each in parameters.items() if name in constants or "Constexpr" in str(each.annotation)]
    given = {name: constants.get(name, parameters[name].default) for name in wanted}
    lacking = [name for name, value in given.items() if value is inspect.Parameter.empty]
    unknown = sorted({*constants} - {*parameters})
    if lacking or unknown:
        problem = f"has no parameter {unknown[0]}" if unknown else f"needs the constant {lacking[0]}"
        raise errors.ArgumentError(f"{label} {problem}; its constants are: {', '.join(wanted) or 'none'}")
    rest = [name for name in parameters if name not in given]
    names = [name for name in rest if name != "stream" and "CUstream" not in str(parameters[name].annotation)]
    if len(rest) != len(names) + 1:
        raise errors.ArgumentError(
            f"{label}({', '.join(parameters)}) has {many(len(rest) - len(names), 'stream')}, not 1",
            hints=("declare a parameter called stream, and pass stream=stream to each launch: else XLA does not wait",),
        )
    if len(names) != len(taken):
        raise errors.ArgumentError(
            f"{label} takes {', '.join(names) or 'nothing'}, but the signature has {many(len(taken), 'token')}",
            hints=("write one token for each parameter except constants and streams, in the function's order",),
        )
    params = dict(zip(names, taken, strict=True))
    for name, param in params.items():
        if param.role is Role.SCRATCH:
            raise errors.ArgumentError(f"{label}: CuTe DSL can't take {render_spec([param])[0]!r} for {name}")
        if param.role is Role.ATTR and param.name != name:
            raise errors.ArgumentError(f"{label}: the token attr.{param.name} is in the place of the parameter {name}")
        if param.role is not Role.ATTR and param.axes is None:
            raise errors.ArgumentError(f"{label}: the array {name} needs axes, as in {param.role.value}[n]")
    axes = axis_names(param.axes for param in params.values())
    for axis, divisor in divisible.items():
        if axis not in axes or not isinstance(divisor, int) or divisor < 1:
            raise errors.ArgumentError(
                f"{label}: divisible={{{axis!r}: {divisor!r}}} is not a positive number for one of the axes "
                f"{', '.join(axes) or '(none)'}"
            )
    return CuteKernel(function, tuple(parameters), params, given, divisible, options)


def with_types(kernel: CuteKernel, dtypes: Sequence[DType]) -> CuteKernel:
    """Return a kernel for the dtypes of its arrays, which are in the function's order.

    Raises
    ------
    ArgumentError
        CuTe DSL lacks a type.
    """
    rest = iter(dtypes)
    params = {
        name: param if param.role is Role.ATTR else param._replace(dtype=next(rest), like=None)
        for name, param in kernel.params.items()
    }
    for name, param in params.items():
        assert param.dtype is not None, "declare() requires the types of numbers"
        if param.dtype.name not in _TYPES:
            raise errors.ArgumentError(f"{kernel.name}: CuTe DSL has no type for {name}, which is {param.dtype.name}")
    return kernel._replace(params=params)


def check_divisible(label: str, divisible: Mapping[str, int], values: Mapping[str, int]) -> None:
    """Check that the extents of a call have their divisors.

    Raises
    ------
    ArgumentError
    """
    for axis, divisor in divisible.items():
        extent = values.get(axis)
        if isinstance(extent, int) and extent % divisor:
            raise errors.ArgumentError(f"{label}: {axis} is {extent}, which is not a multiple of {divisor}")


def array_dtypes(signature: CallSignature, inputs: Sequence[ArraySpec], results: Sequence[ArraySpec]) -> list[DType]:
    """Return the dtypes of the arrays of a call in the function's order; an array in place counts once."""
    specs = {Role.ARG: iter(inputs), Role.RET: iter(results)}
    arrays = [(param, next(specs[param.role])) for param in signature.params if param.role in specs]
    return [spec.dtype for param, spec in arrays if not (param.in_place and param.role is Role.ARG)]


def _choose_arch(label: str, asked: str | None, session: Session) -> Arch:
    archs = choose_archs(asked, session)
    if len(archs) > 1:
        raise errors.ArgumentError(
            f"{label} would be compiled for {', '.join(arch.sm for arch in archs)}, and CuTe DSL makes code for one "
            "architecture",
            hints=("pass one in compute_capability, and make a function for each",),
        )
    return accelerated(archs[0])


def accelerated(arch: Arch) -> Arch:
    """Return an architecture with the suffix that CuTe DSL implies.

    Examples
    --------
    >>> str(accelerated(Arch(9, 0))), str(accelerated(Arch(8, 0)))
    ('9.0a', '8.0')
    """
    return arch._replace(suffix="a") if arch.major >= _ACCELERATED and not arch.suffix else arch


def load_cute(kernel: CuteKernel, arch: Arch, session: Session, *, allow_cuda_graph: bool = True) -> CompiledModule:
    """Load the module of a function, whose library is compiled unless the cache has it.

    Raises
    ------
    BuildError
        CuTe DSL refuses the function.
    """
    from cutlass.cute.runtime import find_runtime_libraries

    recipe = _LibraryRecipe(kernel, arch, session)
    function = Function(kernel.name, tuple(Word(token=token) for token in kernel.tokens), merged=True)
    options = {"auto_register": False, "compute_capability": arch.sm, "allow_cuda_graph": allow_cuda_graph}
    for library in find_runtime_libraries(enable_tvm_ffi=False):
        ctypes.CDLL(library)  # from now on, the loader finds it by name
    attempts = obtain.Attempts(session)
    while attempts.should_try():
        entry = obtain.find_or_build(recipe, session.module_store, session, force=attempts.must_rebuild)
        with attempts.using(entry):
            artifact = entry.artifact()
            data = artifact.image(artifact.table.image)
    name = f"lib{kernel.name}.so"
    module = load_source(kernel.name, render([function], "cuda", name), "cuda", options, [(name, data)])
    ModuleInfo.of(module).only_arch = arch
    return module


class _LibraryRecipe(NamedTuple):
    """The making of a function's library, see `be_runtime.load.obtain.Recipe`."""

    kernel: CuteKernel
    arch: Arch
    session: Session

    @property
    def key(self) -> CacheKey:
        """The key of everything that the library is made from."""
        kernel, environ = self.kernel, self.session.system.environ
        settings = [name for name in sorted(environ) if name.startswith("CUTE_DSL_")]
        return make_key(
            "cute",
            *(("name", kernel.name), ("content", kernel.content()), ("tokens", kernel.tokens)),
            ("divisible", [f"{axis}: {divisor}" for axis, divisor in sorted(kernel.divisible.items())]),
            *(("options", kernel.options), ("arch", self.arch.sm), ("version", importlib.metadata.version(_PACKAGE))),
            ("settings", [f"{name}={environ[name]}" for name in settings if not any(w in name for w in _NO_SETTING)]),
            ("generator", own_code_digest()),
        )

    def make(self, folder: Path) -> BuildOutput:
        """Compile the function and link its library."""
        from cutlass.cute.runtime import find_runtime_libraries

        from be_runtime.compile.flags import link
        from be_runtime.compile.plan import BuildPlan, link_edge
        from be_runtime.load.native_library import build_library
        from be_toolchain import ToolchainRequest
        from be_toolchain import resolve as find_toolchain

        require_jit(self.session.settings, self.kernel.name)
        (folder / _OBJECT).write_bytes(compile_cute(self.kernel, self.arch))
        system = self.session.system
        toolchain = find_toolchain(ToolchainRequest(), system=system, record_dir=self.session.record_dir)
        assert toolchain.cxx is not None, "resolve() raises when there is no host compiler"
        flags = ("-rpath=", *find_runtime_libraries(enable_tvm_ffi=True), "-Wl,-s")
        command = link(toolchain.cxx, None, flags, (), lambda _folder: [])
        plan = BuildPlan(files=(), edges=(), link=link_edge(command, (_OBJECT,), f"linking {self.kernel.name}"))
        return build_library(self.kernel.name, plan, self.session, folder)

    def share(self) -> Shareable:
        """Return the library: other machines can use all of it."""
        return obtain.shareable(self.key, self.session)


_COMPILING = ThreadLock()
"""Allows one compilation at a time, since CuTe DSL has one session per process."""


def compile_cute(kernel: CuteKernel, arch: Arch) -> bytes:
    """Compile a function for an architecture, with or without a device.

    Parameters
    ----------
    kernel : CuteKernel
        From `with_types`.
    arch : Arch

    Returns
    -------
    bytes
        Object file with the function ``__tvm_ffi_<name>``.

    Raises
    ------
    BuildError
        CuTe DSL refuses the function.
    """
    import cutlass.cute

    options = f"--enable-tvm-ffi --gpu-arch {arch.sm} {kernel.options}"
    try:
        with _COMPILING, TemporaryDirectory() as folder:
            made = cutlass.cute.compile(kernel.function, *_fake_arguments(kernel), options=options)
            path = Path(folder, _OBJECT)
            made.export_to_c(str(path), kernel.name, export_only_tvm_ffi_symbols=True)
            return path.read_bytes()
    except Exception as error:
        # CuTe DSL raises its own errors, and its passes raise any others because of the author's code.
        file = inspect.unwrap(kernel.function).__code__.co_filename
        frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
        place = f'\n  File "{file}", line {frames[-1].lineno}\n    {frames[-1].line}' if frames else ""
        output = _COLOR.sub("", f"{type(error).__name__}: {error}{place}")
        raise errors.BuildError(f"CuTe DSL can't compile {kernel.name} for {arch.sm}", output=output) from error


def _fake_arguments(kernel: CuteKernel) -> Iterator[Any]:
    """Yield an argument for each parameter of a function, with a symbol for each axis."""
    import cutlass.cute
    from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

    symbols: dict[object, Any] = {}
    for axis in axis_names(param.axes for param in kernel.params.values()):
        symbols[axis] = cutlass.cute.sym_int(divisibility=kernel.divisible.get(axis, 1))
    for name in kernel.names:
        if name in kernel.constants:
            yield kernel.constants[name]
        elif name not in kernel.params:
            yield make_fake_stream(use_tvm_ffi_env_stream=True)
        else:
            param = kernel.params[name]
            assert param.dtype is not None, "arrays have the dtypes of a call, numbers have the types of their tokens"
            dtype = getattr(cutlass, _TYPES[param.dtype.name])
            if param.axes is None:
                yield dtype(1)
                continue
            shape = tuple(
                axis if isinstance(axis, int) else symbols[axis] if axis in symbols else cutlass.cute.sym_int()
                for axis in param.axes
            )
            yield make_fake_compact_tensor(
                dtype, shape, stride_order=tuple(reversed(range(len(shape)))), assumed_align=_ALIGNED
            )
