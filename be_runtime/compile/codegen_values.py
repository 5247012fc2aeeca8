"""The C++ text of a call's values: arrays and attributes, the instances of a template, and sizes. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from be_runtime.compile.codegen_attributes import c_string, known, render_value
from be_runtime.dtypes import BY_NAME
from be_runtime.signature import SourceText
from be_runtime.signature.model import EntryPoint, Many, Param, Role
from be_toolchain.named import NamedTuple

ARRAYS = (Role.ARG, Role.RET)


class Binding(NamedTuple):
    """One entry point, with its names in its unit and outside.

    Parameters
    ----------
    entry : EntryPoint
    symbol : str
        C identifier, unique in the library. The trampoline is ``be_call_<symbol>``, the handlers are
        ``be_ffi_<symbol>`` and ``be_graph_<symbol>``.
    export : str
        Name in the module: the last part of its target's name.
    redirects : bool
        True if its work on CUDA's default stream goes to XLA's stream.
    unreached : tuple of str
        Libraries of the module whose work on CUDA's default stream stays there; for one entry point of the module.
    takes_stream : bool
        True if functions that it calls may ask for the stream, by PyTorch's ``getCurrentCUDAStream()``.
    records : bool
        False if its source waits for the GPU, so that no CUDA graph may hold its calls.
    exported : str
        Symbol of the function for callers by TVM-FFI; empty if the source exports such functions itself.
    """

    entry: EntryPoint
    symbol: str
    export: str
    redirects: bool = False
    unreached: tuple[str, ...] = ()
    takes_stream: bool = False
    records: bool = True
    exported: str = ""

    @property
    def trampoline(self) -> str:
        """Name of the function that makes the C++ call."""
        return f"be_call_{self.symbol}"

    def handler(self, *, allow_cuda_graph: bool) -> str:
        """Return the symbol of the function that XLA calls."""
        return f"be_{'graph' if allow_cuda_graph else 'ffi'}_{self.symbol}"

    @property
    def instantiate(self) -> str:
        """Symbol of the function that XLA calls when it compiles a program; empty for an entry point without state."""
        return f"be_instantiate_{self.symbol}" if self.entry.with_role(Role.STATE) else ""


def names_torch(sources: Sequence[SourceText]) -> bool:
    """Return whether sources name PyTorch, so that ``brainevent/torch_compat.h`` may serve them.

    Examples
    --------
    >>> names_torch([SourceText(name="a.cu", text="#include <ATen/ATen.h>")])
    True
    """
    return any(word in source.text.lower() for source in sources for word in ("torch", "<aten/", "<c10/"))


def variables_of(entry: EntryPoint) -> tuple[Param, ...]:
    """Return the dtype variables among the template arguments of an entry point."""
    named = re.findall(r"\w+", entry.call_name.partition("<")[2])
    return tuple(rule for rule in entry.rules if rule.role is Role.DTYPE and rule.name in named)


def _aliases(variables: Sequence[tuple[str, str]]) -> str:
    """Write the definitions of dtype variables as C++ types."""
    return "".join(f"using {name} [[maybe_unused]] = {BY_NAME[dtype].cpp_types[0]}; " for name, dtype in variables)


def function_address(entry: EntryPoint) -> str:
    """Write the address of an entry point; of a template, that of its first instance."""
    first = [(variable.name, variable.choices[0]) for variable in variables_of(entry)]
    return f"[] {{ {_aliases(first)}return &{entry.call_name}; }}()" if first else f"&{entry.call_name}"


def dtype_of(variable: str, binding: Binding) -> str:
    """Write the dtype that a variable has in a call: that of its first argument."""
    args = enumerate(binding.entry.with_role(Role.ARG))
    index, param = next((i, arg) for i, arg in args if arg.like == variable and arg.many is Many.ONE)
    return f"({call_argument(param, index, binding)}).dtype()"


def instances(binding: Binding, call: str) -> str:
    """Write the choice among the instances of a template, by the dtypes of the call's arguments."""
    for variable in reversed(variables_of(binding.entry)):
        dtype = dtype_of(variable.name, binding)
        branches = "".join(
            f"if ({dtype} == ::BE::internal::DTypeOf<{BY_NAME[choice].cpp_types[0]}>::value) "
            f"{{ {_aliases([(variable.name, choice)])}{call} }} else "
            for choice in variable.choices
        )
        texts = (binding.entry.call_name[2:], ", ".join(variable.choices), variable.name)
        name, choices, what = map(c_string, texts)
        place = "__FILE__, __LINE__"
        call = f"{branches}::BE::internal::throw_unsupported_dtype({name}, {choices}, {dtype}, {what}, {place});"
    return call


def is_general(entry: EntryPoint) -> bool:
    """Return whether calls differ in the number of their arrays, so that `be_handle_general` takes them."""
    return any(param.many is not Many.ONE for param in entry.params)


def call_argument(param: Param, index: int, binding: Binding) -> str:
    """Write the C++ value of a parameter, by its number among the parameters of its role."""
    if param.role in ARRAYS:
        array = f"be_call.{'be_rets' if param.role is Role.RET else 'be_args'}[{index}]"
        array = _general_array(param, index, binding.entry) if is_general(binding.entry) else array
        return f"::BE::detail::ScalarValue<{known(param.dtype).cpp_types[0]}>{{{array}}}" if param.by_name else array
    match param.role:
        case Role.STREAM:
            return "::BE::detail::StreamValue{be_call.be_stream}"
        case Role.ATTR:
            return render_value(param, index, binding.symbol)
        case Role.SCRATCH:
            return f"be_scratch_{index}"
        case Role.STATE:
            return "be_state"
    raise AssertionError(f"no C++ value for {param.role}")


def _general_array(param: Param, index: int, entry: EntryPoint) -> str:
    """Write the C++ value of a parameter that takes arrays, in a call whose number of arrays varies."""
    is_ret = param.role is Role.RET
    slot = f"be_call.be_slots[{index + is_ret * len(entry.with_role(Role.ARG))}]"
    match param.many:
        case Many.ONE:
            return f"*{slot}"
        case Many.OPTIONAL:
            return f"::BE::detail::OptionalTensor{{{slot}}}"
        case Many.ANY:
            return f"be_call.be_many[{int(is_ret)}]"


def size_handler(binding: Binding) -> list[str]:
    """Write the function that `be_runtime.jax.sizes` calls while a program is traced or split."""
    entry = binding.entry
    values = {}
    for index, param in enumerate(entry.with_role(Role.ARG)):
        values[param.name] = _general_array(param, index, entry)
    for index, param in enumerate(entry.with_role(Role.ATTR)):
        values[param.name] = render_value(param, index, binding.symbol)
    cases = []
    for number, size in enumerate(entry.sizes):
        call = f"be_size = static_cast<int64_t>({size.call_name}({', '.join(values[name] for name in size.params)}));"
        named = [variable.name for variable in variables_of(entry) if variable.name in size.call_name]
        cases.append(f"case {number}: {instances(binding, call) if named else call} break;")
    signature = f"const char* be_size_{binding.symbol}(int be_number, const int64_t* be_words, "
    signature += "const void* const* be_attrs, int64_t* be_result)"
    return [
        f"BE_INTERNAL_HANDLER {signature};",
        f"{signature} {{",
        "  return ::BE::detail::be_measure(be_words, be_attrs, be_result,",
        "      [be_number](const ::BE::detail::GeneralCall& be_call) {",
        f"        int64_t be_size = 0; switch (be_number) {{ {' '.join(cases)} }} return be_size; }});",
        "}",
    ]
