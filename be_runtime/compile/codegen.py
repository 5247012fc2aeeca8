"""The C++ text of a unit: the author's source, and for each entry point its names, trampoline and handlers. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from be_runtime.compile.codegen_attributes import (
    PRESENT,
    attributes_of,
    c_string,
    is_plain,
    render_rows,
    render_support,
    render_usage,
)
from be_runtime.compile.codegen_tvm import exports_itself, render_export
from be_runtime.compile.codegen_values import (
    ARRAYS,
    Binding,
    axes_check,
    call_argument,
    declared_scratch,
    fixed_bytes,
    function_address,
    instances,
    is_asked,
    is_general,
    names_torch,
    size_handler,
    variables_of,
)
from be_runtime.errors import EntryPointNotFoundError
from be_runtime.request.included import included_texts
from be_runtime.request.options import BuildRequest, Language, Unit
from be_runtime.signature import SourceText
from be_runtime.signature.discovery import discover
from be_runtime.signature.grammar import render_spec
from be_runtime.signature.model import (
    EntryPoint,
    Many,
    Role,
)
from be_runtime.store.index import ENDS, Handlers, render_contents

_GENERATED = "be_runtime generated code"
_FEW_TENSORS, _FEW_IN_ALL = 8, 48
"""The largest numbers of tensors for which an entry point has a handler of its own. Each tensor takes g++ 5 ms or
more, and with more tensors a handler of its own is not faster."""
_NAMED_TYPES = (
    ("BE_INTERNAL_NAMES_HALF", re.compile(r"\bBE_DISPATCH_(?:ALL|FLOATING_AND_HALF)\b|\bb?float16_t\b")),
    ("BE_INTERNAL_NAMES_COMPLEX", re.compile(r"\bBE_DISPATCH_(?:ALL|COMPLEX)\b|\bcomplex(?:64|128)_t\b")),
)
"""Macros that make ``brainevent/common.h`` define some types, and the words of a source that may need them."""
_SIGNS = {Many.ONE: "1", Many.OPTIONAL: "?", Many.ANY: "*"}
"""The signs of `GeneralSpec::be_arrays`."""


_MOST_PLACES = 5
_WAITS = re.compile(r"Synchronize\s*\(|\bcudaMemcpy(?:2D|ToSymbol|FromSymbol)?\s*\(|\bthrust::")
"""Calls that wait for the GPU, or copy to or from the host, which ``default_stream="xla"`` sends to XLA's stream."""
_NOT_IDENTIFIER = re.compile(r"\W", re.ASCII)


def line_directive(line: int, name: str) -> str:
    """Write a ``#line`` directive, after which messages count lines from `line` in the file `name`."""
    return f"#line {line} {c_string(name)}\n"


def render_inline_source(sources: Sequence[SourceText]) -> str:
    """Concatenate sources so that messages have the name and the line of each source."""
    return "".join(line_directive(1, source.name) + source.text + "\n" for source in sources)


def render_include(path: str) -> str:
    """Write the ``#include`` of a source file, so that messages and relative includes refer to the file.

    An ``#include`` has no escapes, so the path must not have a quote or a line break.
    """
    return f'#include "{path}"\n'


def render_named_types(sources: Sequence[SourceText]) -> str:
    r"""Define the macros for the types that some sources name; other builds save 0.3 s for CUDA's 16-bit types.

    Examples
    --------
    >>> render_named_types([SourceText(name="a.cc", text="BE_DISPATCH_COMPLEX(x.dtype(), T, {})")])
    '#define BE_INTERNAL_NAMES_COMPLEX\n'
    """
    return "".join(
        f"#define {macro}\n" for macro, words in _NAMED_TYPES if any(words.search(source.text) for source in sources)
    )


def unit_text(request: BuildRequest, unit: Unit, bindings: Sequence[Binding]) -> str:
    """Write the whole text of one of a request's units."""
    body = render_inline_source(unit.sources) if unit.path is None else render_include(str(unit.path))
    checked = "#define BE_INTERNAL_CHECKED\n" if request.compile.checked else ""
    unit_code = render_unit(body, request.name, bindings, language=request.language, checked=request.compile.checked)
    return render_named_types(unit.sources) + checked + unit_code


def render_unit(
    body: str, module: str, bindings: Sequence[Binding], *, language: Language, checked: bool = False
) -> str:
    """Write a unit: the author's source, then the code for its entry points.

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
    checked : bool
        True if accesses through tensors are checked. A CUDA entry point then waits for its kernels.
    """
    parts = [body, line_directive(1, _GENERATED)]
    parts += [f'#include "{header}"\n' for header in _headers(bindings)]
    counts = [len(binding.entry.with_role(Role.ARG)) + _result_count(binding.entry) for binding in bindings]
    for binding, count in zip(bindings, counts, strict=True):
        inline = count <= _FEW_TENSORS and sum(counts) <= _FEW_IN_ALL
        parts += [
            render_support(attributes_of(binding.entry), binding.symbol),
            _entry_table(module, binding, language, checked=checked),
            _trampoline(binding, language, checked=checked),
            line_directive(1, _GENERATED),
            _handlers(binding, language, inline=inline),
        ]
    return "".join(parts)


def _headers(bindings: Sequence[Binding]) -> list[str]:
    headers = ["brainevent/common.h", "brainevent/detail/entry.h"]
    entries = [binding.entry for binding in bindings]
    if any(is_general(entry) or not all(map(is_plain, attributes_of(entry))) for entry in entries):
        headers.append("brainevent/detail/attr_values.h")
    if any(binding.redirects for binding in bindings):
        headers.append("brainevent/detail/default_stream.h")
    if any(entry.with_role(Role.STATE) for entry in entries):
        headers.append("brainevent/state.h")
    if any(entry.sizes for entry in entries):
        headers += ["brainevent/detail/attr_values.h", "brainevent/detail/measure.h"]
    if any(map(variables_of, entries)):
        headers += ["brainevent/dispatch_macros.h", "brainevent/dtypes.h"]
    return headers


def _result_count(entry: EntryPoint) -> int:
    """Return the number of results that a call passes, including scratch memory of a declared size."""
    return len(entry.with_role(Role.RET)) + len(declared_scratch(entry))


def _is_recordable(entry: EntryPoint) -> bool:
    """Return whether a CUDA graph may record the calls, since requested memory is freed before the graph runs."""
    return not any(map(is_asked, entry.params))


def _trampoline(binding: Binding, language: Language, *, checked: bool) -> str:
    entry = binding.entry
    table, check = axes_check(binding)
    own_stream = "::BE::detail::OwnStream be_own_stream(be_call.be_stream); " if binding.redirects else ""
    check = own_stream + _preparation(entry, binding.symbol, language) + check + _contents(binding, language)
    called = f"{entry.call_name}({', '.join(_call_arguments(binding))}), ::BE::detail::EndOfCall{{}}"
    call = check + instances(binding, f"static_cast<void>(({called}));")
    launch_check = "\nBE_CHECK_KERNEL_LAUNCH();" if language == "cuda" else ""
    if checked and language == "cuda":
        call = f"BE_INTERNAL_FORGET_ACCESS(be_call) {call}"
        launch_check += " BE_INTERNAL_THROW_ACCESS"
    if binding.takes_stream or (language == "cuda" and entry.with_role(Role.STREAM)):
        call = f"BE_INTERNAL_STREAM_OF_CALL(be_call.be_stream) {call}"
    kind = "GeneralCall" if is_general(entry) else "Call"
    head = ""
    if entry.with_role(Role.STATE):
        record = f"be_state_{binding.symbol} = ::BE::detail::be_record_of({function_address(entry)})"
        head = f"static ::BE::detail::StateRecord {record}; "
    head += f"BE_INTERNAL_TRAMPOLINE void {binding.trampoline}(const ::BE::detail::{kind}& be_call)"
    return f"{table}{line_directive(entry.line, entry.source)}{head} {{ {call}{launch_check} }}\n"


def _preparation(entry: EntryPoint, symbol: str, language: Language) -> str:
    """Write the statements of the trampoline that make scratch memory and state."""
    before, every = len(entry.with_role(Role.ARG)), entry.with_role(Role.RET)
    rets = len(every)
    lines = []
    if declared_scratch(entry):
        asked = [before + index for index, ret in enumerate(every) if ret.many is Many.OPTIONAL]
        count = " + ".join((str(rets - len(asked)), *(f"(be_call.be_slots[{slot}] != nullptr)" for slot in asked)))
        lines.append(f"if (::BE::detail::be_are_empty(be_call.be_rets, {count})) return;")
    if not _is_recordable(entry):
        frame = "be_call.be_frame" if language == "cuda" else "nullptr"
        lines.append(f"::BE::detail::AskedMemory be_memory({frame});")
    place = rets
    for index, param in enumerate(entry.with_role(Role.SCRATCH)):
        if is_asked(param):
            lines.append(f"::BE::Workspace be_scratch_{index}(be_memory);")
            continue
        memory = f"*be_call.be_slots[{before + place}]" if is_general(entry) else f"be_call.be_rets[{place}]"
        lines.append(f"::BE::Workspace be_scratch_{index}({memory});")
        place += 1
        if (size := fixed_bytes(param)) is not None:
            lines.append(f"::BE::detail::be_require(be_scratch_{index}, UINT64_C({size}));")
    if entry.with_role(Role.STATE):
        record = f"{function_address(entry)}, be_state_{symbol}"
        spec, slots = (f"be_entry_{symbol}", "nullptr")
        if is_general(entry):
            spec, slots = f"{spec}.be_entry", "be_call.be_slots"
        lines.append(f"auto be_state = ::BE::detail::be_state_of({record}, be_call, {spec}, {slots});")
    return "".join(f"{line} " for line in lines)


def _has_contents(entry: EntryPoint) -> bool:
    """Return whether a result has contents before the C++ call: zeros, or the contents of an input."""
    return any(param.default is not None or param.in_place for param in entry.with_role(Role.RET))


def _contents(binding: Binding, language: Language) -> str:
    """Write the statements of the trampoline that give results their contents, on XLA's stream.

    For a result that is changed in place, XLA passes the input's array, except for calls by ``jax.ffi.ffi_call``
    without ``input_output_aliases``.
    """
    single = {
        index: call_argument(param, index, binding)
        for index, param in enumerate(binding.entry.with_role(Role.ARG))
        if param.many is Many.ONE and not param.by_name
    }
    inputs = [index for index, param in enumerate(binding.entry.with_role(Role.ARG)) if param.in_place]
    statements = []
    for index, param in enumerate(binding.entry.with_role(Role.RET)):
        if not param.in_place and param.default is None:
            continue
        slot = f"be_call.be_slots[{len(binding.entry.with_role(Role.ARG)) + index}]"
        is_optional = param.many is Many.OPTIONAL
        result = f"*{slot}" if is_optional else call_argument(param, index, binding)
        if is_optional:
            statements.append(f"if ({slot} != nullptr) {{ ")
        to, size, kind, condition = f"({result}).data()", f"({result}).nbytes()", "set", ""
        source = "0"
        own = inputs.pop(0) if param.in_place else None
        others = ", ".join(f"&({value})" for number, value in single.items() if number != own)
        if others:
            statements.append(f"::BE::detail::be_require_apart({result}, {{{others}}}); ")
        if own is not None:
            given = single[own]
            statements.append(f"::BE::detail::be_require_pair({given}, {result}); ")
            source, kind, condition = f"({given}).data()", "cpy", f" && ({given}).data() != {to}"
        call = f"mem{kind}({to}, {source}, {size})"
        if language == "cuda":
            direction = ", cudaMemcpyDeviceToDevice" if param.in_place else ""
            stream = "::BE::detail::StreamValue{be_call.be_stream}"
            call = f"BE_CUDA_CHECK(cudaMem{kind}Async({to}, {source}, {size}{direction}, {stream}))"
        statements.append(f"if ({size} != 0{condition}) {call}; {'} ' * is_optional}")
    return "".join(statements)


def _call_arguments(binding: Binding) -> list[str]:
    position = dict.fromkeys(Role, 0)
    arguments = []
    for param in binding.entry.params:
        index = position[param.role]
        position[param.role] += 1
        if not (param.in_place and param.role is Role.ARG):
            arguments.append(call_argument(param, index, binding))
    return arguments


def _entry_table(module: str, binding: Binding, language: Language, *, checked: bool) -> str:
    """Write the description of an entry point for the handler."""
    entry, symbol = binding.entry, binding.symbol
    attrs = attributes_of(entry)
    table = f"be_attrs_{symbol}" if attrs else "nullptr"
    rows = f"static constexpr ::BE::detail::AttrSpec {table}[] = {{{render_rows(attrs)}}};\n" if attrs else ""
    needs_stream = checked or binding.takes_stream or entry.with_role(Role.STREAM) or _has_contents(entry)
    has_stream = language == "cuda" and bool(needs_stream)
    row, spec = _entry_row(module, binding, table, has_stream=has_stream), "EntrySpec"
    if is_general(entry):
        spec = "GeneralSpec"
        arrays = "".join(_SIGNS[param.many] for role in ARRAYS for param in entry.with_role(role))
        arrays += _SIGNS[Many.ONE] * len(declared_scratch(entry))
        present = len(entry.with_role(Role.ATTR)) if PRESENT in attrs else -1
        row = f"{{{row}}}, {c_string(arrays)}, {present}"
    return f"{rows}static constexpr ::BE::detail::{spec} be_entry_{symbol}{{{row}}};\n"


def _handlers(binding: Binding, language: Language, *, inline: bool) -> str:
    entry, symbol = binding.entry, binding.symbol
    body, code = "BE_INTERNAL_HANDLE" if inline else "be_handle", binding.trampoline
    if is_general(entry):
        body = "be_handle_general"
    elif inline:
        code = f"(BE_INTERNAL_CODE(be_entry_{symbol}, {code}))"
    lines = []
    table = f"be_entry_{symbol}{'.be_entry' if is_general(entry) else ''}"
    is_recordable = binding.records and _is_recordable(entry)
    recordable = "::BE::detail::kCommandBufferCompatible" if is_recordable else "0"
    for allow_cuda_graph, traits in ((False, "0"), (True, recordable)):
        handler = binding.handler(allow_cuda_graph=allow_cuda_graph)
        lines += [
            f"BE_INTERNAL_HANDLER XLA_FFI_Error* {handler}(XLA_FFI_CallFrame* be_frame);",
            f"XLA_FFI_Error* {handler}(XLA_FFI_CallFrame* be_frame) {{",
            f"  BE_INTERNAL_ENTER(be_frame, {table}.name)",
            f"  return {body}(be_frame, be_entry_{symbol}, {binding.trampoline}, {traits});",
            "}",
        ]
    lines += [
        f"BE_INTERNAL_HANDLER void (*const be_code_{symbol})();",
        f"void (*const be_code_{symbol})() = reinterpret_cast<void (*)()>({code});",
    ]
    if binding.exported:
        lines += render_export(binding, language, table)
    if entry.sizes:
        lines += size_handler(binding)
    if binding.instantiate:
        lines += [
            f"BE_INTERNAL_HANDLER XLA_FFI_Error* {binding.instantiate}(XLA_FFI_CallFrame* be_frame);",
            f"XLA_FFI_Error* {binding.instantiate}(XLA_FFI_CallFrame* be_frame) {{",
            f"  return be_instantiate(be_frame, {table}, be_state_{symbol});",
            "}",
        ]
    return "\n".join(lines) + "\n"


def _entry_row(module: str, binding: Binding, table: str, *, has_stream: bool) -> str:
    entry = binding.entry
    attrs = attributes_of(entry)
    fields = [
        c_string(f"{module}.{binding.export}"),
        str(len(entry.with_role(Role.ARG))),
        str(_result_count(entry)),
        str(len(attrs)),
        "true" if has_stream else "false",
        table,
        c_string(render_usage(attrs) or "none"),
        *([] if all(map(is_plain, attrs)) else [f"be_more_{binding.symbol}"]),
    ]
    return ", ".join(fields)


def bind(request: BuildRequest) -> dict[str, tuple[Binding, ...]]:
    """Find the entry points of each unit, by the unit's stem.

    If several units define a name, it becomes ``<stem>.<name>``. Symbols contain the names of the module and the
    function, since XLA's messages show them.

    Raises
    ------
    SpecError
        Discovery fails, or no unit has an entry point.
    """
    included = {unit.stem: included_texts(unit, request.compile.include_paths) for unit in request.units}
    entries = _discover_units(request, included)
    redirects = request.language == "cuda" and request.compile.default_stream == "xla"
    shared = [flag for flag in request.compile.ldflags if flag.startswith("-l") or re.search(r"\.so(?:\.\d+)*$", flag)]
    texts = {unit.stem: [source.text for source in (*unit.sources, *included[unit.stem])] for unit in request.units}
    waiting = {stem for stem, each in texts.items() if redirects and any(map(_WAITS.search, each))}
    torch = {unit.stem for unit in request.units if request.language == "cuda" and names_torch(unit.sources)}
    exporting = {unit.stem for unit in request.units if exports_itself(unit.sources)}
    counts = Counter(entry.name for found in entries.values() for entry in found)
    first = next((entry for found in entries.values() for entry in found), None) if redirects else None
    bindings = {}
    for stem, found in entries.items():
        begin = _identifier(request.name)
        if len(request.units) > 1:  # C identifiers that are unique to each unit
            digest = hashlib.sha256(stem.encode(errors="surrogateescape")).hexdigest()[:8]
            begin = f"{begin}_{_identifier(stem)}_{digest}"
        bindings[stem] = tuple(
            Binding(
                entry=entry,
                symbol=f"{begin}_{entry.name}",
                export=entry.name if counts[entry.name] == 1 else f"{stem}.{entry.name}",
                redirects=redirects,
                unreached=tuple(shared) if entry is first else (),
                takes_stream=redirects or stem in torch,
                records=stem not in waiting,
                exported="" if stem in exporting else _exported(entry, f"{begin}_{entry.name}", counts[entry.name]),
            )
            for entry in found
        )
    return bindings


def _exported(entry: EntryPoint, symbol: str, count: int) -> str:
    """Return the symbol of the function for TVM-FFI: the function's name, if it is unique in the module."""
    return f"__tvm_ffi_{entry.name if count == 1 else symbol}"


def module_contents(bindings: Mapping[str, Sequence[Binding]], language: Language, warnings: Sequence[str] = ()) -> str:
    """Write the list of a module's handlers, see `be_runtime.store.index.render_contents`."""
    own = iter([warnings])
    return render_contents(
        {
            binding.export: Handlers(
                plain=binding.handler(allow_cuda_graph=False),
                graph=binding.handler(allow_cuda_graph=True),
                warning=_warning(binding, language, next(own, ())),
                call_name=binding.entry.call_name,
                spec=render_spec((*binding.entry.params, *binding.entry.rules)),
                names=tuple(param.name for param in (*binding.entry.params, *binding.entry.rules)),
                doc=binding.entry.doc,
                instantiate=binding.instantiate,
            )
            for found in bindings.values()
            for binding in found
        }
    )


def _warning(binding: Binding, language: Language, device: Sequence[str]) -> str:
    """Return the lines of an entry point's warnings: of streams, of device code, of ends of the process."""
    entry = binding.entry
    lines = [_race(entry) if language == "cuda" and not binding.redirects else "", *device]
    if binding.unreached:
        lines[0] = (
            f'is linked with {", ".join(binding.unreached)}, whose work on CUDA\'s default stream default_stream="xla" '
            "does not reach: give the library the stream, as by cublasSetStream"
        )
    if entry.ends:
        lines.append(
            f"{ENDS} at {_listed(entry.ends)}: Python ends too, without an exception; throw an exception instead, as "
            "BE_CHECK(condition) << text does"
        )
    return "\n".join(lines)


def _listed(places: Sequence[str]) -> str:
    more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    return f"{', '.join(places[:_MOST_PLACES])}{more}"


def _race(entry: EntryPoint) -> str:
    """Return the warning about work outside XLA's stream; empty if the source has none."""
    if not entry.unordered:
        return ""
    advice = "" if entry.with_role(Role.STREAM) else "take `cudaStream_t stream` as a parameter, and "
    return (
        f"works on CUDA's default stream at {_listed(entry.unordered)}: XLA and this work do not wait for each other, "
        f"so arguments may be read before they are written, and results too early; {advice}pass the stream to each "
        "launch, as in <<<blocks, threads, 0, stream>>>, and use the functions whose names end in Async; or load the "
        'module with default_stream="xla"'
    )


def _identifier(text: str) -> str:
    return _NOT_IDENTIFIER.sub("_", text)


def _discover_units(
    request: BuildRequest, included: Mapping[str, Sequence[SourceText]]
) -> dict[str, tuple[EntryPoint, ...]]:
    units, functions = request.units, request.functions
    if len(units) == 1:
        stem, sources = units[0].stem, units[0].sources
        return {stem: discover(sources, functions, included=included[stem])}  # type: ignore[arg-type]  # judged by discover
    if functions is None:
        found = {unit.stem: _discover_annotated(unit, included[unit.stem]) for unit in units}
        if not any(found.values()):
            discover(
                [source for unit in units for source in unit.sources], None
            )  # raises, with the names of all sources
        return found
    return _discover_named(units, functions, included)


def _discover_annotated(unit: Unit, included: Sequence[SourceText]) -> tuple[EntryPoint, ...]:
    try:
        return discover(unit.sources, None, included=included)
    except EntryPointNotFoundError as error:
        if error.span is not None:
            raise
        return ()


def _discover_named(
    units: Sequence[Unit], functions: Any, included: Mapping[str, Sequence[SourceText]]
) -> dict[str, tuple[EntryPoint, ...]]:
    """Find each given name in the units; raise an error for a name that no unit has."""
    found = {
        unit.stem: discover(unit.sources, functions, is_partial=True, included=included[unit.stem]) for unit in units
    }
    known = {entry.name for entries in found.values() for entry in entries}
    missing = next((name for name in functions if name not in known), None)
    if missing is not None:
        wanted = {missing: functions[missing]} if isinstance(functions, Mapping) else [missing]
        discover([source for unit in units for source in unit.sources], wanted)  # raises, with the closest names of all
    return found
