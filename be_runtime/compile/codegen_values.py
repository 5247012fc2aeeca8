"""The C++ text of a call's values: arrays and attributes, instances of a template, sizes, and checks of axes. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from be_runtime.compile.codegen_attributes import c_string, known, render_value
from be_runtime.dtypes import BY_NAME
from be_runtime.signature import SourceText
from be_runtime.signature.expressions import Expression, Node
from be_runtime.signature.model import (
    LEADING,
    Axes,
    Axis,
    EntryPoint,
    Many,
    Param,
    Role,
    axis_names,
    render_axes,
    size_functions,
)
from be_toolchain.named import NamedTuple

ARRAYS = (Role.ARG, Role.RET)

_OPERATIONS = {"//": "/", "/": "|", "ceil": "^", "min": "<", "max": ">"}
"""Names of operations in ``be_compute`` that differ from the names in `be_runtime.signature.expressions`."""


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
        Libraries of the module whose work on CUDA's default stream stays there; only one entry point of the module has
        them, for the warning.
    takes_stream : bool
        True if functions that it calls may ask for the stream, by PyTorch's ``getCurrentCUDAStream()``.
    records : bool
        False if its source waits for the GPU, so that no CUDA graph may record its calls.
    exported : str
        Symbol of the function for TVM-FFI; empty if the source exports such functions itself.
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
    """Write the address of an entry point, or of the first instance of a template."""
    first = [(variable.name, variable.choices[0]) for variable in variables_of(entry)]
    return f"[] {{ {_aliases(first)}return &{entry.call_name}; }}()" if first else f"&{entry.call_name}"


def dtype_of(variable: str, binding: Binding) -> str:
    """Write the dtype that a variable has in a call, which is the dtype of its first argument."""
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


def is_asked(param: Param) -> bool:
    """Return whether a parameter is memory that the kernel requests while it runs."""
    return param.role is Role.SCRATCH and param.axes is None


def declared_scratch(entry: EntryPoint) -> tuple[Param, ...]:
    """Return the scratch memory of a declared size, which a call passes as results after the real ones."""
    return tuple(param for param in entry.with_role(Role.SCRATCH) if not is_asked(param))


def fixed_bytes(param: Param) -> int | None:
    """Return the size of declared scratch memory; None if it differs between calls."""
    size = param.axes[0] if param.axes else None
    return size.node if isinstance(size, Expression) and isinstance(size.node, int) else None


def axes_check(binding: Binding) -> tuple[str, str]:
    """Write a table of the declared axes, and the statement that compares a call with it; empty without axes.

    Scratch memory is checked as a result with the leading axes that `vmap` adds. If its size is a number,
    `_preparation` checks it.
    """
    entry = binding.entry
    scratch = [
        None if fixed_bytes(param) is not None else (LEADING, *(param.axes or ())) for param in declared_scratch(entry)
    ]
    arrays = [*(param.axes for role in (Role.ARG, Role.RET) for param in entry.with_role(role)), *scratch]
    # A function in the author's source would take too long at each call.
    arrays = [None if size_functions([Param(role=Role.RET, axes=axes)]) else axes for axes in arrays]
    if all(axes is None for axes in arrays):
        return "", ""
    names = axis_names(arrays)
    table = f"be_axes_{binding.symbol}"
    lines: list[str] = []
    rows = [
        _axes_row(f"be_axes{index}_{binding.symbol}", axes, names, binding, lines, index >= len(arrays) - len(scratch))
        for index, axes in enumerate(arrays)
    ]
    lines.append(f"static constexpr ::BE::detail::AxesSpec {table}[] = {{{', '.join(rows)}}};")
    args = len(entry.with_role(Role.ARG))
    given = ("_general", "") if is_general(entry) else ("", f" {args}, {len(arrays) - args},")
    check = f"::be_check_axes{given[0]}(be_call, {table},{given[1]} {c_string(' '.join(names))}); "
    differs = "" if is_general(entry) else _axes_differ(arrays, args)
    return "\n".join(lines) + "\n", f"if ({differs}) {check}" if differs else check


def _axes_differ(arrays: Sequence[Axes | None], args: int) -> str:
    """Write the condition that a call without leading axes does not fit its declaration; empty if axes are computed.

    A call that fits does not use the table: the check of three arrays takes 5 ns instead of 50 ns.
    """
    if any(isinstance(axis, Expression) for axes in arrays for axis in axes or ()):
        return ""
    first: dict[Axis, str] = {}
    parts = []
    for index, axes in enumerate(arrays):
        if axes is None:
            continue
        tensor = f"be_call.be_args[{index}]" if index < args else f"be_call.be_rets[{index - args}]"
        kept = [axis for axis in axes if axis != LEADING]
        parts.append(f"{tensor}.ndim() != {len(kept)}")
        for place, axis in enumerate(kept):
            extent = f"{tensor}.shape_ptr()[{place}]"
            known = str(axis) if isinstance(axis, int) else first.setdefault(axis, extent)
            if known != extent:
                parts.append(f"{extent} != {known}")
    return f"__builtin_expect({' || '.join(parts)}, 0)"


def _axes_row(
    table: str, axes: Axes | None, names: Sequence[str], binding: Binding, lines: list[str], is_scratch: bool
) -> str:
    """Write the row of one array, and add the constants that it names to `lines`."""
    if axes is None:
        return "{nullptr, nullptr, 0, ::BE::detail::Leading::kNone, nullptr}"
    kept = [axis for axis in axes if axis != LEADING]
    computed = [f"be_extent{i}_{table}" if isinstance(axis, Expression) else "nullptr" for i, axis in enumerate(kept)]
    for function, axis in zip(computed, kept, strict=True):
        if isinstance(axis, Expression):
            value = _arithmetic(axis.node, names, binding)
            lines.append(
                f"static int64_t {function}([[maybe_unused]] const int64_t* be_axes, "
                f"[[maybe_unused]] const ::BE::detail::Call& be_call) {{ return {value}; }}"
            )
    lines.append(f"static constexpr int64_t {table}[] = {{{', '.join([*(_extent(a, names) for a in kept), '0'])}}};")
    functions = "nullptr"
    if any(isinstance(axis, Expression) for axis in kept):
        functions = f"be_extents_{table}"
        lines.append(f"static constexpr ::BE::detail::ExtentFunction {functions}[] = {{{', '.join(computed)}}};")
    leading = "kFirst" if is_scratch else "kAll" if LEADING in axes else "kNone"
    return f"{{{c_string(render_axes(axes))}, {table}, {len(kept)}, ::BE::detail::Leading::{leading}, {functions}}}"


def _extent(axis: Axis, names: Sequence[str]) -> str:
    if isinstance(axis, Expression):
        return "::BE::detail::kComputed"
    return str(~names.index(axis)) if isinstance(axis, str) else f"INT64_C({axis})"


def _arithmetic(node: Node, names: Sequence[str], binding: Binding) -> str:
    if isinstance(node, int):
        return f"INT64_C({node})"
    if isinstance(node, str) and node.startswith("attr."):
        attrs = binding.entry.with_role(Role.ATTR)
        index = [param.name for param in attrs].index(node.removeprefix("attr."))
        return f"static_cast<int64_t>({call_argument(attrs[index], index, binding)})"
    if isinstance(node, str) and node.startswith("sizeof("):
        call = "static_cast<const ::BE::detail::GeneralCall&>(be_call)" if is_general(binding.entry) else "be_call"
        dtype = dtype_of(node.removeprefix("sizeof(")[:-1], binding).replace("be_call", call)
        return f"static_cast<int64_t>(::BE::dtype_size({dtype}))"
    if isinstance(node, str):
        return f"be_axes[{names.index(node)}]"
    operation, operands = node
    values = ", ".join(_arithmetic(operand, names, binding) for operand in operands)
    return f"::be_compute('{_OPERATIONS.get(operation, operation)}', {values})"
