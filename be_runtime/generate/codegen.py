"""Generation of the C++ text that follows an author's source in its translation unit, from signatures.

A unit holds one source of the author, then for each of its entry points a *trampoline*, which unpacks a
``BE::detail::Call`` into the C++ call, a table of what the entry point takes, and the two functions that XLA calls:
with and without the command-buffer trait, so that ``allow_cuda_graph`` chooses at registration and never compiles
anything. Their body is ``be_handle`` of ``native/handler.cc``, or its copy in ``brainevent/detail/inline_handler.h``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from be_runtime.dtypes import DType
from be_runtime.generate import memory_code
from be_runtime.request.options import Language
from be_runtime.source_text import SourceText
from be_runtime.spec.axes import LEADING, axis_names, render_axes
from be_runtime.spec.model import EntryPoint, Param, Role

_GENERATED = "be_runtime generated code"
_GRAPH_SUFFIX = "_graph"
_FEW_TENSORS, _FEW_IN_ALL = 8, 48
"""Up to so many tensors, an entry point's handler is compiled with it: g++ takes some 5 ms for each, and more for each
of many. With more than these, calls would not be faster either."""


class Binding(NamedTuple):
    """One entry point, with its names in its unit and outside.

    Parameters
    ----------
    entry : EntryPoint
    symbol : str
        C identifier, unique in the library. The trampoline is ``be_call_<symbol>``, the handlers are
        ``be_ffi_<symbol>`` and ``be_ffi_<symbol>_graph``.
    export : str
        Name in the module: the last part of its target's name.
    """

    entry: EntryPoint
    symbol: str
    export: str

    @property
    def trampoline(self) -> str:
        """Name of the function that makes the C++ call."""
        return f"be_call_{self.symbol}"

    def handler(self, *, allow_cuda_graph: bool) -> str:
        """Return the symbol of the function that XLA calls."""
        return f"be_ffi_{self.symbol}" + (_GRAPH_SUFFIX if allow_cuda_graph else "")

    @property
    def instantiate(self) -> str:
        """Symbol of the function that XLA calls when it compiles a program; empty for an entry point without state."""
        return f"be_ffi_{self.symbol}_instantiate" if self.entry.with_role(Role.STATE) else ""


def c_string(text: str) -> str:
    r"""Write a C string literal for `text`, which may have quotes, control characters and non-ASCII characters.

    Examples
    --------
    >>> print(c_string('a "b"\n'))
    "a \"b\"\012"
    """
    escapes = {0x22: '\\"', 0x5C: "\\\\"}
    encoded = text.encode("utf-8", "surrogateescape")
    body = "".join(escapes.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}") for byte in encoded)
    return f'"{body}"'


def line_directive(line: int, name: str) -> str:
    """Write a ``#line`` directive: the compiler reports the following lines as those of `name`, from `line` on."""
    return f"#line {line} {c_string(name)}\n"


def render_inline_source(sources: Sequence[SourceText]) -> str:
    """Concatenate sources given as text; messages report each under its own name and line."""
    return "".join(line_directive(1, source.name) + source.text + "\n" for source in sources)


def render_include(path: str) -> str:
    """Include a source given as a file by its path, so that messages and its relative includes stay right.

    An ``#include`` has no escapes, so the path must not have a quote or a line break.
    """
    return f'#include "{path}"\n'


def render_unit(body: str, module: str, bindings: Sequence[Binding], *, language: Language) -> str:
    """Write a unit: the author's source, then the code that makes entry points of its functions.

    Parameters
    ----------
    body : str
        Text from `render_inline_source` or `render_include`.
    module : str
        Name of the module, for messages.
    bindings : sequence of Binding
        Entry points that this source defines.
    language : {"cuda", "cpp"}
        Language of the unit. A CUDA unit checks for failed launches after each call, and its handlers request a stream
        from XLA. On the CPU XLA has no streams, and a stream parameter receives 0.
    """
    parts = [body, line_directive(1, _GENERATED)]
    more = {header: None for binding in bindings for header in memory_code.headers(binding.entry)}
    parts += [f'#include "{header}"\n' for header in ("brainevent/common.h", "brainevent/detail/entry.h", *more)]
    counts = [len(binding.entry.with_role(Role.ARG)) + _result_count(binding.entry) for binding in bindings]
    for binding, count in zip(bindings, counts, strict=True):
        inline = count <= _FEW_TENSORS and sum(counts) <= _FEW_IN_ALL
        parts += [
            _trampoline(binding, language),
            line_directive(1, _GENERATED),
            _handlers(module, binding, language, inline=inline),
        ]
    return "".join(parts)


def _result_count(entry: EntryPoint) -> int:
    """Return the number of results that a call passes: scratch memory of a declared size comes after the others."""
    return len(entry.with_role(Role.RET)) + len(memory_code.declared_scratch(entry))


def _trampoline(binding: Binding, language: Language) -> str:
    entry = binding.entry
    table, check = _axes_check(binding)
    check = memory_code.preparation(entry, binding.symbol, language) + check
    call = f"{check}{entry.call_name}({', '.join(_call_arguments(entry.params))});"
    launch_check = "\nBE_CHECK_KERNEL_LAUNCH();" if language == "cuda" else ""
    kind = "FrameCall" if memory_code.needs_frame(entry, language) else "Call"
    head = memory_code.state_record(entry, binding.symbol)
    head += f"BE_INTERNAL_TRAMPOLINE void {binding.trampoline}(const ::BE::detail::{kind}& be_call)"
    return f"{table}{line_directive(entry.line, entry.source)}{head} {{ {call}{launch_check} }}\n"


def _axes_check(binding: Binding) -> tuple[str, str]:
    """Write a table of the declared axes, and the statement that checks a call against it; empty without axes."""
    arrays = [*binding.entry.with_role(Role.ARG), *binding.entry.with_role(Role.RET)]
    names = axis_names(param.axes for param in arrays)
    if all(param.axes is None for param in arrays):
        return "", ""
    table = f"be_axes_{binding.symbol}"
    rows, lines = [], []
    for index, axes in enumerate(param.axes for param in arrays):
        if axes is None:
            rows.append("{nullptr, nullptr, 0, false}")
            continue
        kept = [axis for axis in axes if axis != LEADING]
        numbers = [str(~names.index(axis)) if isinstance(axis, str) else f"INT64_C({axis})" for axis in kept]
        lines.append(f"static constexpr int64_t {table}_{index}[] = {{{', '.join([*numbers, '0'])}}};")
        is_open = str(LEADING in axes).lower()
        rows.append(f"{{{c_string(render_axes(axes))}, {table}_{index}, {len(kept)}, {is_open}}}")
    lines.append(f"static constexpr ::BE::detail::AxesSpec {table}[] = {{{', '.join(rows)}}};")
    counts = [len(binding.entry.with_role(role)) for role in (Role.ARG, Role.RET)]
    check = f"::be_check_axes(be_call, {table}, {counts[0]}, {counts[1]}, {c_string(' '.join(names))}); "
    return "\n".join(lines) + "\n", check


def _call_arguments(params: Sequence[Param]) -> list[str]:
    position = dict.fromkeys(Role, 0)
    arguments = []
    for param in params:
        index = position[param.role]
        position[param.role] += 1
        arguments.append(_call_argument(param, index))
    return arguments


def _call_argument(param: Param, index: int) -> str:
    match param.role:
        case Role.ARG:
            return f"be_call.be_args[{index}]"
        case Role.RET:
            return f"be_call.be_rets[{index}]"
        case Role.STREAM:
            return "::BE::detail::StreamValue{be_call.be_stream}"
        case Role.ATTR:
            return f"::BE::detail::be_attr<{_attr_type(_known(param.dtype))}>(be_call, {index})"
        case Role.SCRATCH | Role.STATE:
            return memory_code.argument(param, index)


def _attr_type(dtype: DType) -> str:
    if dtype.attr_type is not dtype:
        return f"::BE::detail::OpaqueValue<{dtype.size_bytes}>"
    name = dtype.cpp_types[0]
    return f"::{name}" if name.endswith("_t") else name


def _handlers(module: str, binding: Binding, language: Language, *, inline: bool) -> str:
    entry, symbol = binding.entry, binding.symbol
    attrs = entry.with_role(Role.ATTR)
    table = f"be_attrs_{symbol}" if attrs else "nullptr"
    body = "BE_INTERNAL_HANDLE" if inline else "be_handle"
    if memory_code.needs_frame(entry, language):
        body += "_FRAME" if inline else "_frame"
    lines = []
    if attrs:
        lines.append(f"static constexpr ::BE::detail::AttrSpec {table}[] = {{{_attr_rows(attrs)}}};")
    row = _entry_row(module, binding, table, has_streams=language == "cuda")
    lines.append(f"static constexpr ::BE::detail::EntrySpec be_entry_{symbol}{{{row}}};")
    recordable = "::BE::detail::kCommandBufferCompatible" if memory_code.is_recordable(entry) else "0"
    for allow_cuda_graph, traits in ((False, "0"), (True, recordable)):
        handler = binding.handler(allow_cuda_graph=allow_cuda_graph)
        lines += [
            f"BE_INTERNAL_HANDLER XLA_FFI_Error* {handler}(XLA_FFI_CallFrame* be_frame);",
            f"XLA_FFI_Error* {handler}(XLA_FFI_CallFrame* be_frame) {{",
            "  BE_INTERNAL_ENTER(be_frame)",
            f"  return {body}(be_frame, be_entry_{symbol}, {binding.trampoline}, {traits});",
            "}",
        ]
    return "\n".join(lines) + "\n" + memory_code.instantiate_handler(entry, symbol, binding.instantiate)


def _entry_row(module: str, binding: Binding, table: str, *, has_streams: bool) -> str:
    entry = binding.entry
    attrs = entry.with_role(Role.ATTR)
    usage = ", ".join(f"{param.name}={_known(param.dtype).attr_usage}" for param in attrs)
    fields = [
        c_string(f"{module}.{binding.export}"),
        str(len(entry.with_role(Role.ARG))),
        str(_result_count(entry)),
        str(len(attrs)),
        "true" if has_streams and entry.with_role(Role.STREAM) else "false",
        table,
        c_string(usage or "none"),
    ]
    return ", ".join(fields)


def _attr_rows(attrs: Sequence[Param]) -> str:
    """Write the rows of the attribute table, sorted by the bytes of their names as XLA sorts a call's attributes."""
    rows = []
    for position, param in sorted(enumerate(attrs), key=lambda pair: pair[1].name.encode()):
        size, dtype = len(param.name.encode()), _known(param.dtype)
        is_number = "true" if dtype.attr_type is dtype else "false"
        carrier = f"{dtype.attr_type.xla_code}, {dtype.attr_parts}, {is_number}"
        rows.append(f"{{{c_string(param.name)}, {size}, {carrier}, {position}}}")
    return ", ".join(rows)


def _known(dtype: DType | None) -> DType:
    assert dtype is not None, "discovery gives every attribute a type"
    return dtype
