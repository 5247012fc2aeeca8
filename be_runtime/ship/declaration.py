"""Read a package's ``kernels.toml``: compiled modules, and kernels without host code."""

from __future__ import annotations

import importlib
import operator
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

from be_runtime.call.attributes import KernelOptions, Options, check_options
from be_runtime.dtypes import BY_NAME, DType
from be_runtime.errors import ArgumentError, SourceNotFoundError
from be_runtime.request.arguments import SUFFIXES
from be_runtime.request.options import Language
from be_toolchain.machine.files import parse_toml
from be_toolchain.machine.trust import LARGE, read_regular

FILE = "kernels.toml"

_BOTH = frozenset({"extra_include_paths", "extra_ldflags", "optimization_level", "use_fast_math"})
_OPTIONS: dict[Language, frozenset[str]] = {
    "cpp": _BOTH | {"extra_cflags"},
    "cuda": _BOTH | {"extra_cuda_cflags", "active", "allow_cuda_graph", "compute_capability", "default_stream"},
}
_TVM_FFI = frozenset({"owned", "platform", "functions", "extra_ldflags", "allow_cuda_graph", "compute_capability"})
"""Keys of a module of TVM-FFI functions, in addition to its library."""

_BY_LANGUAGE = frozenset({"cpp", "cuda"})
"""Keys of the sources of a module for two platforms."""

_LONGEST_NAME, _LONGEST_PATH = 255, 2048
"""Limits for the bytes of a name, and of a path below the package's folder: Linux allows 4,096 for a whole path."""


class DeclaredModule(NamedTuple):
    """A compiled module, or its part for one platform.

    Parameters
    ----------
    name : str
    language : {"cpp", "cuda"}
    sources : tuple of str
        Paths below the package's folder.
    functions : dict, list or None
        The argument `functions` of the load functions.
    options : dict
        Keyword arguments of the load functions.
    is_part : bool
        True for one of two parts, in C++ and in CUDA, whose functions of one name are one operation.
    is_tvm_ffi : bool
        True for a shared library of TVM-FFI functions, the only source.
    owned : bool
        True if such functions take tensors as objects, see `be_runtime.load_tvm_ffi`.
    """

    name: str
    language: Language
    sources: tuple[str, ...]
    functions: Any
    options: Mapping[str, Any]
    is_part: bool = False
    is_tvm_ffi: bool = False
    owned: bool = False

    @property
    def key(self) -> str:
        """The module's key in an index; each part has its own: ``ops:cpp`` and ``ops:cuda``."""
        return f"{self.name}:{self.language}" if self.is_part else self.name


def name_of(key: str) -> str:
    """Return the module's name from its key in an index.

    Examples
    --------
    >>> name_of("ops:cuda"), name_of("ops")
    ('ops', 'ops')
    """
    return key.partition(":")[0]


class Declaration(NamedTuple):
    """The declarations of a package.

    Parameters
    ----------
    archs : tuple of str
        Architectures of CUDA code that is built ahead of time; empty if the caller of the build names them.
    baseline : str
        Level of CPU instructions of host code; empty for the instructions of every such machine.
    modules : dict of str to DeclaredModule
        Modules by key.
    kernels : dict of str to dict
        Tables of kernels without host code.
    """

    archs: tuple[str, ...]
    baseline: str
    modules: Mapping[str, DeclaredModule]
    kernels: Mapping[str, Mapping[str, Any]]

    def platform_parts(self) -> list[tuple[DeclaredModule, DeclaredModule]]:
        """List the modules for two platforms, each as its part in C++ and its part in CUDA."""
        modules = self.modules
        return [(each, modules[f"{each.name}:cuda"]) for each in modules.values() if each.key == f"{each.name}:cpp"]


def parse_declaration(text: str, where: str, has_cuda: Callable[[str], bool]) -> Declaration:
    """Parse a declaration.

    Parameters
    ----------
    text : str
        TOML.
    where : str
        Name of the file, for messages.
    has_cuda : callable
        Function that returns whether a path is a folder with CUDA files.

    Raises
    ------
    ArgumentError
        The text is not TOML, declares nothing, or has an unknown key or an invalid value.
    """
    document = read_toml(text, where)
    refuse_unknown(document, {"archs", "baseline", "modules", "kernels"}, where)
    tables = _tables(document, "modules", where)
    modules = {each.key: each for name, row in tables.items() for each in _modules(name, row, where, has_cuda)}
    kernels = _tables(document, "kernels", where)
    for name, row in kernels.items():
        kinds = [form.key for form in _FORMS.values()]
        given = [kind for kind in kinds if kind in row]
        if len(given) != 1:
            raise ArgumentError(f"{where}: kernels.{name} needs one of {', '.join(kinds)}, and has {len(given)}")
        if given[0] in _FILES:
            inside(row[given[0]], f"{where}: kernels.{name}")
        _check_lists(row, f"{where}: kernels.{name}")
    if not modules and not kernels:
        hint = 'add a table, such as [modules.ops] with sources = "ops.cc"'
        raise ArgumentError(f"{where} declares no kernels", hints=(hint,))
    twice = sorted(tables.keys() & kernels.keys())
    if twice:
        raise ArgumentError(f"{where}: {twice[0]} is declared as a module and as a kernel", hints=("rename one",))
    return Declaration(
        texts(document.get("archs", []), f"{where}: archs"), document.get("baseline", ""), modules, kernels
    )


def read_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML.

    Raises
    ------
    ArgumentError
        The text is not TOML.
    """
    try:
        return parse_toml(text)
    except ValueError as error:
        raise ArgumentError(f"{where} is not TOML: {error}") from None


def inside(path: object, where: str) -> str:
    """Check that a path is below the package's folder, and return it without ``.`` and double slashes.

    Raises
    ------
    ArgumentError
        The path is outside of the folder, or is not a path.

    Examples
    --------
    >>> inside("ops/./fire.cc", "kernels.toml")
    'ops/fire.cc'
    """
    if not isinstance(path, str) or not path:
        raise ArgumentError(f"{where}: {path!r} is not a path")
    pure = PurePosixPath(path)
    longest = max((len(each.encode()) for each in pure.parts), default=0)
    if "\0" in path or longest > _LONGEST_NAME or len(path.encode()) > _LONGEST_PATH:
        raise ArgumentError(f"{where}: {path[:80]!r} can't be a path: it is too long, or has a NUL")
    if pure.is_absolute() or ".." in pure.parts:
        raise ArgumentError(
            f"{where}: {path!r} is outside the package",
            hints=("a wheel has only the package's own files: move it there",),
        )
    return str(pure)


def _modules(
    name: str, row: Mapping[str, Any], where: str, has_cuda: Callable[[str], bool]
) -> Iterator[DeclaredModule]:
    """Parse the table of a module, or of a module's two parts for two platforms."""
    at = f"{where}: modules.{name}"
    _check_lists(row, at)
    if not _BY_LANGUAGE.isdisjoint(row):
        refuse_unknown(row, _OPTIONS["cpp"] | _OPTIONS["cuda"] | _BY_LANGUAGE | {"functions"}, at)
        languages: tuple[Language, Language] = ("cpp", "cuda")
        for language, other in zip(languages, reversed(languages), strict=True):
            sources = _sources(row, language, at)
            if all(each.endswith(SUFFIXES[other]) for each in sources):
                raise ArgumentError(f"{at}: {language} has only {sources[0]}", hints=(f"is it a source of {other}?",))
            options = {key: value for key, value in row.items() if key in _OPTIONS[language]}
            yield DeclaredModule(name, language, sources, row.get("functions"), options, is_part=True)
        return
    if "tvm_ffi" in row:
        refuse_unknown(row, _TVM_FFI | {"tvm_ffi"}, at)
        platform = row.get("platform", "cpu")
        if platform not in ("cpu", "cuda"):
            raise ArgumentError(f"{at}: platform must be 'cpu' or 'cuda', not {platform!r}")
        sources = (inside(row["tvm_ffi"], at),)
        options = {key: value for key, value in row.items() if key in _TVM_FFI - {"owned", "platform", "functions"}}
        language = "cuda" if platform == "cuda" else "cpp"
        functions, owned = row.get("functions"), row.get("owned", False)
        yield DeclaredModule(name, language, sources, functions, options, is_tvm_ffi=True, owned=owned)
        return
    if "sources" not in row:
        refuse_unknown(row, _OPTIONS["cuda"] | {"sources", "functions"}, at)
    sources = _sources(row, "sources", at)
    language = "cuda" if any(each.endswith(".cu") or has_cuda(each) for each in sources) else "cpp"
    refuse_unknown(row, _OPTIONS[language] | {"sources", "functions"}, at)
    options = {key: value for key, value in row.items() if key not in ("sources", "functions")}
    yield DeclaredModule(name, language, sources, row.get("functions"), options)


def _sources(row: Mapping[str, Any], key: str, at: str) -> tuple[str, ...]:
    given = row.get(key)
    given = [given] if isinstance(given, str) else given
    if not isinstance(given, list) or not given:
        hint = f"modules for CPU and GPU have both, {' and '.join(sorted(_BY_LANGUAGE))}; others have sources"
        raise ArgumentError(
            f"{at} needs {key}: a folder, a file or a list of files", hints=(hint,) * (key in _BY_LANGUAGE)
        )
    return tuple(inside(each, at) for each in given)


def _check_lists(row: Mapping[str, Any], where: str) -> None:
    texts(row.get("dtypes", []), f"{where}.dtypes")
    for path in texts(row.get("extra_include_paths", []), f"{where}.extra_include_paths"):
        inside(path, f"{where}.extra_include_paths")


def texts(value: object, where: str) -> tuple[str, ...]:
    """Check that a value is a list of strings, and return the texts."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(each, str) for each in value):
        raise ArgumentError(f"{where} must be a list of strings, not {value!r}")
    return tuple(value)


def _tables(document: Mapping[str, Any], name: str, where: str) -> dict[str, dict[str, Any]]:
    tables = document.get(name, {})
    if not isinstance(tables, dict) or not all(isinstance(row, dict) for row in tables.values()):
        raise ArgumentError(f"{where}: {name} must hold tables, as in [{name}.my_ops]")
    return tables


def refuse_unknown(row: Mapping[str, Any], known: frozenset[str] | set[str], where: str) -> None:
    """Raise an error if a table has an unknown key."""
    unknown = sorted(set(row) - set(known))
    if unknown:
        from difflib import get_close_matches

        end = unknown[0].rpartition("_")[2]  # extra_cflags has more letters in common with extra_ldflags
        near = [name for name in known if name.endswith(f"_{end}")] or get_close_matches(unknown[0], sorted(known))
        hints = (*(f"did you mean {name!r}?" for name in near[:1]), f"the keys are: {', '.join(sorted(known))}")
        raise ArgumentError(f"{where}: {unknown[0]!r} is unknown", hints=hints)


_COMPILERS = {"triton": "triton", "cutile": "cuda", "cute": "cutlass"}
"""Python module of each compiler; the extra that installs it has the language's name."""

KernelLanguage = Literal["cuda", "cubin", "numba", "numba_cuda", "triton", "cutile", "cute"]

_CALL = frozenset(KernelOptions.__annotations__)


class _Form(NamedTuple):
    """The form of a table of one language.

    Parameters
    ----------
    key : str
        Key of the source.
    launch, compiling : frozenset of str
        Keys for launches, and keys for the compiler or the code.
    needed : dict of str to str
        Required keys in addition to the signature, with examples.
    """

    key: str
    launch: frozenset[str]
    compiling: frozenset[str]
    needed: Mapping[str, str] = {}

    @property
    def is_path(self) -> bool:
        """True if the source is a file, False if it is a Python function."""
        return self.key in _FILES


_FILES = ("source", "cubin")
_PYTHON = ".py"
_RAW = frozenset({"grid", "block", "shared_mem", "cluster"})
_NUMBERS = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg"})
_SIGNATURE = {"signature": "'arg[n] ret[n]:like(0)'"}
_GRID = {"grid": "'ceil(n/256)'"}
_FORMS: Mapping[KernelLanguage, _Form] = {
    "cuda": _Form(
        "source",
        _RAW,
        frozenset({"name", "compute_capability", "extra_cuda_cflags", "extra_include_paths", "use_fast_math"}),
        {**_GRID, "block": "256"},
    ),
    "cubin": _Form("cubin", _RAW, frozenset({"name", "cooperative"}), {**_GRID, "block": "256"}),
    "numba": _Form("numba", frozenset(), frozenset({"dtypes"})),
    "numba_cuda": _Form(
        "numba_cuda",
        frozenset({"grid", "block", "launch_dims", "threads_per_block", "shared_mem"}),
        frozenset({"dtypes"}),
    ),
    "triton": _Form(
        "triton",
        frozenset({"grid"}),
        _NUMBERS | {"dtypes", "constants", "compute_capability", "launch_pdl", "block_shapes"},
        _GRID,
    ),
    "cutile": _Form(
        "cutile",
        frozenset({"grid"}),
        frozenset({"num_ctas", "occupancy", "opt_level", "num_worker_warps", "programmatic_dependent_launch"})
        | {"dtypes", "constants", "compute_capability"},
        _GRID,
    ),
    "cute": _Form(
        "cute",
        frozenset(),
        frozenset({"dtypes", "constants", "compute_capability", "divisible", "compile_options", "allow_cuda_graph"}),
    ),
}


class KernelTable(NamedTuple):
    """A declared kernel.

    Parameters
    ----------
    language : {"cuda", "cubin", "numba", "numba_cuda", "triton", "cutile", "cute"}
    source : str
        Path below the package's folder, or ``module:function`` or ``path.py:function`` of a function in Python.
    signature : str or list of str
    call, launch, compiling : dict
        Options of calls, of launches and of the compiler, by the names of the public functions.
    dtypes : tuple of DType
        Dtypes for which the kernel is built, for arrays without a dtype in the signature.
    """

    language: KernelLanguage
    source: str
    signature: Any
    call: Mapping[str, Any]
    launch: Mapping[str, Any]
    compiling: Mapping[str, Any]
    dtypes: tuple[DType, ...]

    @property
    def options(self) -> dict[str, Any]:
        """The part of the table that a call needs, for an index."""
        return {"signature": self.signature, "call": dict(self.call), "launch": dict(self.launch)}


def read_table(name: str, table: Mapping[str, Any]) -> KernelTable:
    """Parse the table of a kernel.

    Raises
    ------
    ArgumentError
        A key is unknown or missing, or a size of a launch is neither a number nor arithmetic.
    """
    where = f"kernels.{name}"
    language, form = next((each for each in _FORMS.items() if each[1].key in table), ("cuda", _FORMS["cuda"]))
    refuse_unknown(table, _CALL | form.launch | form.compiling | {form.key, "signature"}, where)
    source = table.get(form.key)
    if not isinstance(source, str) or not (form.is_path or source.count(":") == 1):
        shape = "a path" if form.is_path else "'module:function' or 'path.py:function'"
        raise ArgumentError(f"{where}: its source must be {shape}, not {source!r}")
    path, _, function = source.partition(":")
    if path.endswith(_PYTHON) and not form.is_path:
        source = f"{inside(path, where)}:{function}"
    for key, example in {**_SIGNATURE, **form.needed}.items():
        if key not in table:
            raise ArgumentError(f"{where} has no {key}", hints=(f"add {key} = {example}",))
    launch = {key: value for key, value in table.items() if key in form.launch}
    for key, value in launch.items():
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, int | str) or isinstance(each, bool):
                raise ArgumentError(f"{where}: {key} must be numbers or arithmetic such as 'ceil(n/256)', not {each!r}")
    _check_compiling(table, where)
    return KernelTable(
        language,
        source,
        table["signature"],
        {key: value for key, value in table.items() if key in _CALL},
        launch,
        {key: table[key] for key in sorted(form.compiling - {"dtypes"}) if key in table},
        tuple(BY_NAME[str(each)] for each in table.get("dtypes", ["float32"])),
    )


def _check_compiling(table: Mapping[str, Any], where: str) -> None:
    for each in table.get("dtypes", ()):
        if str(each) not in BY_NAME:
            raise ArgumentError(f"{where}: dtypes has {each!r}; the dtypes are {', '.join(BY_NAME)}")
    for key in sorted(_NUMBERS & {*table}):
        if not isinstance(table[key], int) or isinstance(table[key], bool):
            raise ArgumentError(f"{where}: {key} must be a whole number, not {table[key]!r}")
    constants = table.get("constants", {})
    if not isinstance(constants, Mapping) or not all(isinstance(x, int | float | str) for x in constants.values()):
        raise ArgumentError(
            f"{where}: constants must be a table of numbers and strings, not {constants!r}",
            hints=("write constants = {BLOCK = 1024}",),
        )


def call_options(call: Mapping[str, Any]) -> Options:
    """Check the options of calls from TOML or JSON, whose keys are texts."""
    return check_options(_numbered(call))


def _numbered(call: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the keys of ``input_output_aliases`` to numbers."""
    aliases = call.get("input_output_aliases")
    if not isinstance(aliases, Mapping):
        return dict(call)
    numbered = {int(key) if key.isdecimal() else key: value for key, value in aliases.items()}
    return {**call, "input_output_aliases": numbered}


def declared_function(name: str, table: Mapping[str, Any], package: str, root: Path) -> Callable[..., Any]:
    """Make the function of a declared kernel; its first trace compiles the kernel.

    Parameters
    ----------
    name : str
        Name of the table, and of the kernel unless the table has another.
    table : mapping
    package : str
        Name of the package.
    root : Path
        Folder of the package.

    Raises
    ------
    ArgumentError, SpecError
        The table is invalid.
    SourceNotFoundError
        The source or the function does not exist.
    """
    read = read_table(name, table)
    options: dict[str, Any] = {"signature": read.signature, **read.launch, **_numbered(read.call)}
    match read.language:
        case "cuda":
            from be_runtime.kernels.raw import cuda_kernel

            compiling = {"name": name, **read.compiling, "extra_include_paths": include_paths(read, root)}
            return cuda_kernel(read_source(name, read, root), **compiling, **options)
        case "cubin":
            from be_runtime.kernels.cubin import cubin_kernel

            return cubin_kernel(file_of(name, read, root), **{"name": name, **read.compiling}, **options)
        case "numba":
            from be_runtime.kernels.numba.cpu import numba_kernel

            return numba_kernel(imported(name, read, package), **options)
        case "numba_cuda":
            from be_runtime.kernels.numba.gpu import numba_cuda_kernel

            return numba_cuda_kernel(imported(name, read, package), **options)
        case "triton" | "cutile":
            from be_runtime.kernels.cutile import cutile_kernel
            from be_runtime.tune.triton import triton_kernel

            make = triton_kernel if read.language == "triton" else cutile_kernel
            given = dict(read.compiling)
            constants = given.pop("constants", {})
            return make(imported(name, read, package), **given, **options, **constants)
        case "cute":
            from be_runtime.kernels.cute import cute_kernel

            given = dict(read.compiling)
            constants = given.pop("constants", {})
            return cute_kernel(imported(name, read, package), **given, **options, **constants)


def include_paths(read: KernelTable, root: Path) -> list[str]:
    """Return the folders of a kernel's headers."""
    return [str(root / path) for path in read.compiling.get("extra_include_paths", ())]


def file_of(name: str, read: KernelTable, root: Path) -> Path:
    """Return the path of a kernel's source, a file below the package's folder."""
    from be_runtime.ship.package import refuse_links_out  # a prebuilt kernel needs no sources

    path = root / read.source
    refuse_links_out(f"kernels.{name}", root, [path], map(Path, include_paths(read, root)))
    return path


def read_source(name: str, read: KernelTable, root: Path) -> str:
    """Read a raw kernel's source."""
    try:
        return read_regular(file_of(name, read, root), LARGE).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise SourceNotFoundError(f"kernels.{name}: {read.source} can't be read: {error.strerror}") from error


def imported(name: str, read: KernelTable, package: str) -> Any:
    """Import the function of a kernel in Python; a path names a module of the package.

    Raises
    ------
    SourceNotFoundError
        The author's module raises an exception, or has no such function.
    """
    module, _, function = read.source.partition(":")
    if module.endswith(_PYTHON):
        module = f"{package}.{module.removesuffix(_PYTHON).replace('/', '.')}"
    try:
        return operator.attrgetter(function)(importlib.import_module(module))
    except Exception as error:
        # An author's module may raise anything.
        missing = (getattr(error, "name", None) or "").partition(".")[0]
        is_other = isinstance(error, ImportError) and missing != module.partition(".")[0]
        is_compiler = _COMPILERS.get(read.language) == missing
        wanted = f"{missing} (pip install 'brainevent-toolchain[{read.language}]')" if is_compiler else missing
        hints = (f"install {wanted} where the kernels are built: for a wheel, add it to requires of [build-system]",)
        problem = f"{error}" if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        raise SourceNotFoundError(
            f"kernels.{name}: {read.source} can't be imported: {problem}{_place(error)}",
            hints=hints if is_other else (),
        ) from error


def _place(error: Exception) -> str:
    """Return the author's file and line in which an import failed."""
    frames = traceback.extract_tb(error.__traceback__)[2:]  # the first are of this module and importlib
    modules = [(Path(each.filename), each.lineno) for each in frames if not each.filename.startswith("<")]
    own = [(file, line) for file, line in modules if file.is_relative_to(modules[0][0].parent)]
    return f" ({own[-1][0]}, line {own[-1][1]})" if own else ""
