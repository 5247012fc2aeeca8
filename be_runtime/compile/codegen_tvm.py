"""The C++ text that exports an entry point with the C ABI of TVM-FFI, for PyTorch, NumPy and others. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from be_runtime.compile.codegen_attributes import c_string
from be_runtime.compile.codegen_values import Binding
from be_runtime.request.options import Language
from be_runtime.signature import SourceText
from be_runtime.signature.model import EntryPoint, Many, Param, Role, exported_params

_ANY_TYPE = "@"
"""Second character of an argument of any element type; the number of another type is added to it."""


def exports_itself(sources: Sequence[SourceText]) -> bool:
    """Return whether sources export functions with TVM-FFI themselves, whose symbols ours would repeat.

    Examples
    --------
    >>> exports_itself([SourceText(name="a.cc", text="TVM_FFI_DLL_EXPORT_TYPED_FUNC(f, f_);")])
    True
    """
    return any(word in source.text for source in sources for word in ("TVM_FFI_DLL_EXPORT", "__tvm_ffi_"))


_SIGNS = {Role.ARG: "iI", Role.RET: "oO", Role.SCRATCH: "ww", Role.ATTR: "vv"}
"""Signs of `be_tvm_call` for an argument that every call passes, and for one that may be None."""


def _sign(param: Param) -> str:
    if param.by_name:
        return "n"
    return "b" if param.in_place else _SIGNS[param.role][param.many is Many.OPTIONAL]


def _element_type(param: Param) -> str:
    return chr(ord(_ANY_TYPE) + (param.dtype.xla_code if param.dtype is not None else 0))


def _refusal(entry: EntryPoint) -> str:
    has_state = bool(entry.with_role(Role.STATE))
    return f"has {'a state' if has_state else 'any number of arrays'}, so that only JAX can call it"


def render_export(binding: Binding, language: Language, table: str) -> list[str]:
    """Write the function ``__tvm_ffi_<name>`` of an entry point.

    Parameters
    ----------
    binding : Binding
    language : {"cuda", "cpp"}
    table : str
        Name of its `EntrySpec`.
    """
    params = exported_params(binding.entry.params)
    order, names = "nullptr", _refusal(binding.entry)
    if params is not None:
        order = c_string("".join(_sign(param) + _element_type(param) for param in params))
        names = " ".join(param.name or f"argument{index}" for index, param in enumerate(params))
    row = f"&{table}, {binding.handler(allow_cuda_graph=False)}, {order}, {c_string(names)}, "
    row += str(language == "cuda").lower()
    signature = f"int {binding.exported}(void*, const void* be_args, int32_t be_count, void* be_result)"
    return [
        f"BE_INTERNAL_HANDLER {signature};",
        f"{signature} {{",
        f"  static constexpr ::BE::detail::TvmSpec be_spec{{{row}}};",
        "  return be_tvm_call(be_spec, be_args, be_count, be_result);",
        "}",
    ]
