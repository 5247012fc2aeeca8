"""Functions of the TVM-FFI C ABI as functions of JAX arrays: C++ is generated that calls them, and loaded as a module.

The generated module holds the library's bytes, so the cache, packages, exported programs and checked mode treat it as
any other module. ``tvm/ffi/c_api.h`` defines the ABI, see ``include/brainevent/detail/tvm_ffi.h``.
"""

from __future__ import annotations

import ctypes
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from be_runtime import errors, frames
from be_runtime.load import process
from be_runtime.load.module import CompiledModule
from be_runtime.request.arguments import StrPath, cpp_request, cuda_request, default_name, inline_units, load_options
from be_runtime.request.options import check_bool, check_path
from be_runtime.signature.cpp.lexer import split_words
from be_runtime.signature.grammar import parse_spec
from be_runtime.signature.model import LEADING, AttrKind, Many, Param, Role, axis_names, call_params
from be_toolchain.machine.forks import ThreadLock

if TYPE_CHECKING:
    from be_runtime.call.function import KernelFunction

PLATFORMS = ("cpu", "cuda")
_ARRAYS = (Role.ARG, Role.RET)
_SYMBOL = "__tvm_ffi_"
_METADATA = "__tvm_ffi__metadata_"
_LIBRARY = "be_tvm_ffi_library"
_ABI = "0.1"
"""Major and minor version of the ABI; a newer patch only adds functions."""

_CALL_OFFSET = 24
"""Place of the function's address in a function object, after ``TVMFFIObject``."""

_TYPES = {
    "int": "int64",
    "float": "float64",
    "bool": "bool",
    "DataType": "dtype",
    **dict.fromkeys(("ffi.String", "std::string", "const char*", "ffi.SmallStr"), "string"),
}
"""Type of an attribute for each type of the library's metadata."""

_KNOWN = "tokens: as in an arg_spec, =3, =1.5, =true, ='text', =n for an axis, none, stream, stream:int64, returned"


class Word(NamedTuple):
    """One parameter of a function, or one result that it returns.

    Parameters
    ----------
    token : str
        Token of the module's arg_spec; empty for a constant.
    constant : str
        C++ expression of a constant, in which ``{axis}`` stands for the extent of an axis.
    axis : str
        Axis in the constant.
    is_returned : bool
    """

    token: str = ""
    constant: str = ""
    axis: str = ""
    is_returned: bool = False


class Function(NamedTuple):
    """A declared function.

    Parameters
    ----------
    name : str
    words : tuple of Word
        Parameters in the function's own order, then results that it returns.
    owned : bool
        True if the function takes ``Tensor`` objects, not views.
    merged : bool
        True if the leading axes ``...`` of an array are the first axis of the tensor, even if there are none.
    """

    name: str
    words: tuple[Word, ...]
    owned: bool = False
    merged: bool = False

    @property
    def tokens(self) -> tuple[str, ...]:
        """The arg_spec of the module's entry point."""
        return tuple(word.token for word in self.words if word.token)


def read_word(text: str) -> Word:
    """Read one word of a declaration.

    Raises
    ------
    ValueError
        A constant can't be read; the message gives the reason.

    Examples
    --------
    >>> read_word("arg[n]:float32").token, read_word("=3").constant, read_word("returned[n]").token
    ('arg[n]:float32', 'INT64_C(3)', 'ret[n]')
    """
    if text == "none":
        return Word(constant="::BE::tvm_ffi::none()")
    if re.match(r"returned\b", text):
        return Word(token="ret" + text.removeprefix("returned"), is_returned=True)
    if text in ("stream", "stream:int64"):
        value = "::BE::tvm_ffi::stream_value(be_place)"
        if text != "stream":
            value = "::BE::tvm_ffi::value(reinterpret_cast<int64_t>(be_place.stream))"
        return Word(constant=value)
    if not text.startswith("="):
        return Word(token=text)
    return _constant(text[1:])


def _constant(text: str) -> Word:
    if text in ("true", "false", "True", "False"):
        return Word(constant=text.lower())
    if re.fullmatch(r"-?[0-9]+", text):
        if not -(2**63) <= int(text) < 2**63:
            raise ValueError("it is not a 64-bit integer")
        return Word(constant=f"INT64_C({text})" if int(text) > -(2**63) else "INT64_MIN")
    if re.fullmatch(r"[\"'].*[\"']", text) and text[0] == text[-1]:
        if re.search(r"[\x00-\x1f]", text):
            raise ValueError("a text has no control characters")
        return Word(constant=json.dumps(text[1:-1], ensure_ascii=False))
    if text.isidentifier():
        return Word(constant="{axis}", axis=text)
    try:
        number = float(text)
    except ValueError:
        raise ValueError("a constant is a number, true, false, a quoted text or an axis") from None
    if not math.isfinite(number):
        raise ValueError("a constant is finite")
    return Word(constant=repr(number))


def read_function(name: object, declaration: object, *, owned: bool = False) -> Function:
    """Read the declaration of a function.

    Raises
    ------
    SpecError
        A word is unknown.
    """
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise errors.SpecError(f"{name!r} is not the name of a TVM-FFI function: letters, digits and '_'")
    if isinstance(declaration, str):
        texts = [word for _, word in split_words(declaration)]
    elif isinstance(declaration, Sequence) and all(isinstance(each, str) for each in declaration):
        texts = list(declaration)
    else:
        raise errors.SpecError(f"{name}: the declaration must be a text or a list of tokens, not {declaration!r}")
    words = []
    for text in texts:
        try:
            words.append(read_word(text))
        except ValueError as error:
            raise errors.SpecError(f"{name}: {text!r}: {error}", hints=(_KNOWN,)) from None
    return Function(name, tuple(words), owned)


def with_metadata(function: Function, metadata: str | None) -> Function:
    """Complete a function's declaration by the types that its library states.

    Parameters
    ----------
    metadata : str or None
        JSON text of ``__tvm_ffi__metadata_<name>``.

    Raises
    ------
    SpecError
        The declaration has another number of parameters, or a parameter of another kind.

    Examples
    --------
    >>> schema = '{"type":"ffi.Function","named_args":{"params":[{"type":"DLTensor*"},{"type":"float"}]}}'
    >>> function = read_function("f", "ret[]:float32 attr.by")
    >>> with_metadata(function, json.dumps({"type_schema": schema})).tokens
    ('ret[]:float32', 'attr.by:float64')
    """
    if metadata is None:
        return function
    named = json.loads(json.loads(metadata)["type_schema"]).get("named_args")
    if named is None:
        return function
    types = [_type_name(each) for each in named["params"]]
    taken = [word for word in function.words if not word.is_returned]
    if len(types) != len(taken):
        raise errors.SpecError(
            f"{function.name} takes {len(types)} parameters, and {len(taken)} are declared",
            hints=(f"its library declares {', '.join(types) or 'none'}",),
        )
    words = []
    for index, (word, type_name) in enumerate(zip(taken, types, strict=True)):
        is_array = type_name in ("DLTensor*", "ffi.Tensor")
        declared = word.token.split("[")[0].split(":")[0].rstrip("?")
        if declared in ("arg", "ret", "inout") and type_name in _TYPES:
            raise errors.SpecError(f"{function.name}: parameter {index} is {type_name}, not {word.token!r}")
        if declared.startswith("attr.") and is_array:
            raise errors.SpecError(f"{function.name}: parameter {index} is an array, not {word.token!r}")
        if declared.startswith("attr.") and ":" not in word.token and type_name in _TYPES:
            name, _, default = word.token.partition("=")
            word = word._replace(token=f"{name}:{_TYPES[type_name]}{'=' * bool(default)}{default}")  # noqa: PLW2901
        words.append(word)
    words += [word for word in function.words if word.is_returned]
    return function._replace(words=tuple(words), owned=function.owned or "ffi.Tensor" in types)


def _type_name(schema: Mapping[str, Any]) -> str:
    """Return a parameter's type; an optional one is as its type."""
    if schema["type"] == "Optional" and schema.get("args"):
        return _type_name(schema["args"][0])
    return str(schema["type"])


def render(functions: Sequence[Function], platform: str, library: str | None) -> str:
    """Write the C++ of a module that calls functions.

    Parameters
    ----------
    functions : sequence of Function
    platform : {"cpu", "cuda"}
    library : str or None
        Name of the library's file; None for functions that are bound later.

    Raises
    ------
    SpecError
        A declaration is not an arg_spec, or has a parameter that TVM-FFI lacks.
    """
    lines = ['#include "brainevent/detail/tvm_ffi.h"']
    owner = "nullptr"
    if library is not None:
        lines += [
            f'BE_TVM_FFI_LIBRARY("{library}");',
            f'static ::BE::tvm_ffi::Library {_LIBRARY}{{"{library}", be_tvm_ffi_begin, be_tvm_ffi_end}};',
        ]
        owner = f"&{_LIBRARY}"
    for function in functions:
        lines.append(f'static ::BE::tvm_ffi::Function be_call_{function.name}{{{owner}, "{_SYMBOL}{function.name}"}};')
    if library is None:
        (only,) = functions
        lines.append(f"BE_TVM_FFI_BIND(be_call_{only.name})")
    lines += ["namespace be_tvm_ffi_functions {"]
    for function in functions:
        lines += _entry_point(function, platform)
    return "\n".join([*lines, "}", ""])


def _entry_point(function: Function, platform: str) -> list[str]:
    """Write the entry point of one function."""
    params = parse_spec(function.tokens, function=function.name)
    called = call_params(params)
    tokens = [*function.tokens, *(["stream"] if platform == "cuda" else [])]
    names = iter(range(len(called)))
    declared, before, values, after, released = [], [], [], [], []
    returned = sum(word.is_returned for word in function.words)
    number = 0
    for word in function.words:
        if not word.token:
            values.append(_constant_value(word, called, function.name))
            continue
        index = next(names)
        param, name = called[index], f"be_{index}"
        if word.is_returned:
            declared.append(f"BE::Tensor {name}")
            found = f"::BE::tvm_ffi::element(be_result.any, {number}, {returned})"
            after.append(f"::BE::tvm_ffi::keep({found}, {name}, be_place);")
            number += 1
            continue
        declared.append(f"{_cpp_type(param, function.name)} {name}")
        if param.kind is AttrKind.STRING:
            before.append(f"const std::string be_text_{index}({name});")
            name = f"be_text_{index}.c_str()"
        if param.role not in _ARRAYS or param.by_name:
            values.append(f"::BE::tvm_ffi::value({_attribute(param, name)})")
            continue
        array, is_optional = f"be_array_{index}", param.many is Many.OPTIONAL
        described = f"::BE::tvm_ffi::describe({'*' * is_optional}{name}, be_place)"
        if is_optional:
            described = f"{name} ? {described} : ::BE::tvm_ffi::Array{{}}"
        value = f"::BE::tvm_ffi::value({array})"
        if function.merged and param.axes is not None and param.axes[:1] == (LEADING,):
            before.append(f"const ::BE::tvm_ffi::Merged {array}({name}, be_place, {len(param.axes) - 1});")
            value = f"::BE::tvm_ffi::value({array}.array())"
        else:
            before.append(f"const ::BE::tvm_ffi::Array {array} = {described};")
        if function.owned:
            before.append(f"const ::BE::tvm_ffi::OwnedTensor be_object_{index}({array});")
            value = f"be_object_{index}.value()"
            released.append(f"be_object_{index}.check_released();")
        values.append(f"{name} ? {value} : ::BE::tvm_ffi::none()" if is_optional else value)
    if platform == "cuda":
        declared.append("cudaStream_t be_stream")
    place = "::BE::tvm_ffi::place_of(be_stream)" if platform == "cuda" else "{}"
    count = len(values)
    return [
        f"// @BE {function.name} {' '.join(tokens)}",
        f"void {function.name}({', '.join(declared)}) {{",
        f"  const ::BE::tvm_ffi::Place be_place{place if place == '{}' else f' = {place}'};",
        *(f"  {line}" for line in before),
        f"  const ::BE::tvm_ffi::Any be_values[{count + 1}] = {{{', '.join(values)}}};",
        "  {",  # the result may be one of the tensors: it goes first
        "    ::BE::tvm_ffi::Result be_result;",
        f"    ::be_call_{function.name}(be_place, be_values, {count}, &be_result.any);",
        *(f"    {line}" for line in after),
        "  }",
        *(f"  {line}" for line in released),
        "}",
    ]


def _cpp_type(param: Param, function: str) -> str:
    """Return the C++ type of an entry point's parameter."""
    if param.role in _ARRAYS and param.many is not Many.ANY and not param.by_name:
        if param.many is Many.OPTIONAL:
            return "const BE::Tensor*" if param.role is Role.ARG else "BE::Tensor*"
        return "const BE::Tensor&" if param.role is Role.ARG else "BE::Tensor"
    is_number = param.role is Role.ATTR and param.kind is AttrKind.SCALAR
    if is_number and param.dtype is None:
        raise errors.SpecError(
            f"{function}: the library does not state the type of attr.{param.name}",
            hints=(f"write attr.{param.name}:int64, :float64, :bool, :string or :dtype",),
        )
    if is_number and param.dtype is not None and not param.dtype.name.startswith("complex"):
        return param.dtype.cpp_types[0]
    if param.kind is AttrKind.STRING:
        return "std::string_view"
    if param.kind is AttrKind.DTYPE:
        return "BE::DType"
    raise errors.SpecError(
        f"{function}: TVM-FFI functions can't take the parameter {param.name or param.role.value!r}",
        hints=("they take arrays, numbers, texts and dtypes", _KNOWN),
    )


def _attribute(param: Param, name: str) -> str:
    """Write the value of an attribute in a call."""
    if param.kind in (AttrKind.STRING, AttrKind.DTYPE):
        return name
    assert param.dtype is not None, "a number has a type"
    if param.dtype.name == "bool":
        return name
    return f"static_cast<{'double' if 'float' in param.dtype.name else 'int64_t'}>({name})"


def _constant_value(word: Word, params: Sequence[Param], function: str) -> str:
    """Write a constant of a call; an axis is the extent of an array that has it."""
    if word.constant.startswith("::"):
        return word.constant
    text = word.constant
    if word.axis:
        places = [
            (index, param.axes.index(word.axis) - (len(param.axes) if param.axes[:1] == ("...",) else 0))
            for index, param in enumerate(params)
            if param.role in _ARRAYS and param.many is Many.ONE and param.axes and word.axis in param.axes
        ]
        if not places:
            known = ", ".join(axis_names(param.axes for param in params)) or "none"
            raise errors.SpecError(f"{function}: '={word.axis}' is not an axis of an array; the axes are {known}")
        index, at = places[0]
        text = f"be_{index}.size({at if at >= 0 else f'be_{index}.ndim() - {-at}'})"
    return f"::BE::tvm_ffi::value({text})"


@frames.public
def load_tvm_ffi(
    library: StrPath,
    functions: Mapping[str, str | Sequence[str]],
    *,
    platform: str = "cpu",
    owned: bool = False,
    name: str | None = None,
    **options: Any,
) -> CompiledModule:
    """Load functions of a shared library with the TVM-FFI C ABI as a module of JAX functions.

    CuTe DSL, FlashInfer, TileLang and ``tvm_ffi.cpp.build`` export such libraries. The module holds a copy of the
    library, and calls it without Python. :doc:`/other-compilers` has examples.

    Parameters
    ----------
    library : str or Path
        Shared library with symbols ``__tvm_ffi_<name>``.
    functions : dict of str to str
        Declaration of each function: one token for each of its parameters, in its own order. Besides the tokens of an
        arg_spec there are constants (``=3``, ``=0.5``, ``=true``, ``='text'``, and ``=n`` for the extent of an axis),
        ``none``, ``stream`` (the CUDA stream as a pointer; ``stream:int64`` as a number), and, at the end,
        ``returned[n]:float32`` for each array that the function returns. If the library states types, attributes need
        none.
    platform : {"cpu", "cuda"}, default "cpu"
        Platform of the functions' arrays. A module for CUDA is compiled by nvcc.
    owned : bool, default False
        The functions take ``tvm::ffi::Tensor`` objects, which may not be kept after the call. Libraries that state
        their types do not need this argument.
    name : str, optional
        Name of the module. The default is the library's name without ``lib`` and its suffix.
    **options
        Keyword arguments of `load_cpp_inline` or `load_cuda_inline`, depending on the platform.

    Returns
    -------
    CompiledModule

    Raises
    ------
    ImportError
        ``tvm_ffi`` is not installed.
    SourceNotFoundError
        There is no such file.
    ArgumentError
        The file is not a shared library, or has no such function.
    SpecError
        A declaration is wrong, or differs from the library's own.
    RegistrationError
        The process has loaded another library under the module's name, or the same one before it was built again.

    Examples
    --------
    >>> ops = be_runtime.load_tvm_ffi("libadd.so", {"add": "arg[n]:float32 arg[n] ret[n]"})  # doctest: +SKIP
    >>> ops.add(x, y)  # doctest: +SKIP
    """
    path = check_path(library, "library")
    source, data = library_source(path, functions, platform=platform, owned=owned)
    module = default_name(path.with_suffix("").name.removeprefix("lib"), name, "library")
    try:
        return load_source(module, source, platform, options, [(path.name, data)])
    except errors.RegistrationError as error:
        error.hints = ("this process has another library by that name: pass name='...' or target_prefix='...'",)
        raise


def library_source(
    path: Path, functions: object, *, platform: object = "cpu", owned: object = False
) -> tuple[str, bytes]:
    """Write the C++ of a module that calls functions of a library, and return it and the library, as `load_tvm_ffi`."""
    _check_platform(platform)
    check_bool(owned, "owned")
    if not isinstance(functions, Mapping) or not functions:
        raise errors.ArgumentError(f"functions must be a dict of names and declarations, not {functions!r}")
    if not path.is_file():
        raise errors.SourceNotFoundError(f"{path} is not a file")
    data = path.read_bytes()
    if not data.startswith(b"\x7fELF"):
        raise errors.ArgumentError(f"{path} is not a shared library")
    if b"\0__tvm_ffi__library_bin\0" in data:
        raise errors.ArgumentError(
            f"{path} holds a module that only its compiler's run-time library can load, as TileLang's exports do",
            hints=("import the compiler, and pass tvm_ffi.load_module(path).get_function(name) to tvm_ffi_function",),
        )
    # The assembler gets the name as a text.
    if re.search(r"[\"\\\x00-\x1f]", path.name):
        raise errors.ArgumentError(f"the name {path.name!r} has a quote, a backslash or a control character")
    read = [read_function(each, declaration, owned=bool(owned)) for each, declaration in functions.items()]
    exported = sorted({match.decode() for match in re.findall(rb"\0__tvm_ffi_(?!_)(\w+)(?=\0)", data)})
    for function in read:
        if function.name not in exported:
            raise errors.ArgumentError(
                f"{path} has no TVM-FFI function {function.name!r}",
                hints=(f"it has {', '.join(exported) or 'none'}",),
            )
    import_tvm_ffi("load_tvm_ffi")
    typed = [with_metadata(function, _metadata(path, data, function.name)) for function in read]
    return render(typed, str(platform), path.name), data


@frames.public
def tvm_ffi_function(
    function: Any,
    signature: str | Sequence[str],
    *,
    platform: str = "cpu",
    owned: bool = False,
    name: str | None = None,
    **options: Any,
) -> KernelFunction[..., Any]:
    """Make a function of JAX arrays from a TVM-FFI function object of this process.

    TileLang's compiled kernels and the functions of ``tvm_ffi.load_module`` are such objects. The function works only
    in this process, so it can't be exported. :doc:`/other-compilers` has an example.

    Parameters
    ----------
    function : tvm_ffi.Function
        Function object, which is kept until the process ends.
    signature : str or sequence of str
        One token for each parameter, as `load_tvm_ffi` describes them.
    platform : {"cpu", "cuda"}, default "cpu"
        Platform of the function's arrays.
    owned : bool, default False
        The function takes ``tvm::ffi::Tensor`` objects, which may not be kept after the call.
    name : str, default "tvm_ffi_function"
        Name in messages.
    **options
        Keyword arguments of `load_cpp_inline` or `load_cuda_inline`, depending on the platform.

    Returns
    -------
    KernelFunction

    Raises
    ------
    ImportError
        ``tvm_ffi`` is not installed.
    TypeError
        The object is not a TVM-FFI function.
    SpecError
        The declaration is wrong.

    Examples
    --------
    >>> add = be_runtime.tvm_ffi_function(compiled, "arg[n]:float32 arg[n] ret[n]")  # doctest: +SKIP
    """
    tvm_ffi = import_tvm_ffi("tvm_ffi_function")
    _check_platform(platform)
    if not isinstance(function, tvm_ffi.Function):
        raise TypeError(f"function must be a tvm_ffi.Function, not {function!r}")
    label = "tvm_ffi_function" if name is None else name
    source = render([read_function(label, signature, owned=check_bool(owned, "owned"))], platform, None)
    bound = process.PROCESS.only(_Bound, _Bound)
    # Each function needs a module of its own, whose text is the same in every process.
    source += f"// {bound.number(source, function)}\n"
    module = load_source(label, source, platform, {"auto_register": False, **options})
    handle = function.__chandle__()
    address = ctypes.c_void_p.from_address(handle + _CALL_OFFSET).value
    bind = ctypes.CDLL(str(module.__info__.path)).be_tvm_ffi_bind
    bind.argtypes, bind.restype = (ctypes.c_void_p, ctypes.c_void_p), None
    bind(address, handle)
    module.__info__.can_move = False
    return module[label]


class _Bound:
    """The function objects of a process by the text of their modules."""

    def __init__(self) -> None:
        self._lock = ThreadLock()
        self._functions: dict[str, list[object]] = {}

    def number(self, source: str, function: object) -> int:
        """Return the number of a function among those with the same declaration, and keep it alive."""
        with self._lock:
            known = self._functions.setdefault(source, [])
            for index, each in enumerate(known):
                if each is function:
                    return index
            known.append(function)
            return len(known) - 1


def load_source(
    name: str, source: str, platform: str, options: Mapping[str, Any], files: Sequence[tuple[str, bytes]] = ()
) -> CompiledModule:
    """Load the C++ of `render` as a module, compiled with the options of `load_tvm_ffi`, with its library."""
    units = inline_units(name, source, "library")
    more = {**options, "extra_ldflags": [*(options.get("extra_ldflags") or ()), "-ldl"]}
    request = (cuda_request if platform == "cuda" else cpp_request)(name, units, None, **more)
    return process.PROCESS.load(request._replace(files=tuple(files)), load_options(name, **more))


def _check_platform(platform: object) -> None:
    if platform not in PLATFORMS:
        raise errors.ArgumentError(f"platform must be 'cpu' or 'cuda', not {platform!r}")


def _metadata(path: Path, data: bytes, name: str) -> str | None:
    """Return the types that a library states for a function; None if it states none."""
    symbol = _METADATA + name
    if f"\0{symbol}\0".encode() not in data:
        return None
    import tvm_ffi

    found = tvm_ffi.load_module(str(path)).get_function_metadata(name)
    return None if found is None else json.dumps(found)


def import_tvm_ffi(function: str) -> Any:
    """Import TVM-FFI, which loads its library into the process.

    Raises
    ------
    ImportError
        It is not installed, or has another ABI.
    """
    hint = "hint: pip install 'brainevent-toolchain[tvm-ffi]'"
    try:
        import tvm_ffi
    except ImportError as error:
        raise ImportError(f"{function} needs TVM-FFI, which can't be imported: {error}\n{hint}") from error
    version = str(tvm_ffi.__version__)
    if version.split(".")[:2] != _ABI.split("."):
        raise ImportError(f"{function} needs TVM-FFI {_ABI}, and {version} is installed\n{hint}")
    return tvm_ffi
