"""Generation of the C++ text for scratch memory and state, beside that for tensors and attributes. Pure."""

from __future__ import annotations

from be_runtime.expressions import Expression
from be_runtime.request.options import Language
from be_runtime.spec.model import EntryPoint, Param, Role


def is_asked(param: Param) -> bool:
    """Return whether a parameter is memory that the kernel asks for while it runs."""
    return param.role is Role.SCRATCH and param.axes is None


def declared_scratch(entry: EntryPoint) -> tuple[Param, ...]:
    """Return the scratch memory of a declared size, which a call passes as results after the real ones."""
    return tuple(param for param in entry.with_role(Role.SCRATCH) if not is_asked(param))


def fixed_bytes(param: Param) -> int | None:
    """Return the size of declared scratch memory if it is the same in every call, else None."""
    size = param.axes[0] if param.axes else None
    return size.node if isinstance(size, Expression) and isinstance(size.node, int) else None


def is_recordable(entry: EntryPoint) -> bool:
    """Return whether a CUDA graph may hold the calls; memory that was asked for is gone when the graph runs."""
    return not any(map(is_asked, entry.params))


def needs_frame(entry: EntryPoint, language: Language) -> bool:
    """Return whether the trampoline asks XLA for more than arguments; the CPU's memory is not XLA's."""
    return bool(entry.with_role(Role.STATE)) or (language == "cuda" and not is_recordable(entry))


def headers(entry: EntryPoint) -> tuple[str, ...]:
    """Return the headers that the generated code needs."""
    needed = {Role.SCRATCH: "brainevent/detail/scratch_call.h", Role.STATE: "brainevent/state.h"}
    return tuple(header for role, header in needed.items() if entry.with_role(role))


def preparation(entry: EntryPoint, symbol: str, language: Language) -> str:
    """Write the statements of the trampoline that make the arguments."""
    scratch, rets = entry.with_role(Role.SCRATCH), len(entry.with_role(Role.RET))
    lines = []
    if not is_recordable(entry):
        frame = "be_call.be_frame" if language == "cuda" else "nullptr"
        lines.append(f"::BE::detail::AskedMemory be_memory({frame});")
    place = rets
    for index, param in enumerate(scratch):
        if is_asked(param):
            lines.append(f"::BE::Workspace be_scratch_{index}(be_memory);")
        else:
            lines.append(f"::BE::Workspace be_scratch_{index}(be_call.be_rets[{place}]);")
            place += 1
            size = fixed_bytes(param)
            lines += [] if size is None else [f"::BE::detail::be_require(be_scratch_{index}, UINT64_C({size}));"]
    if place > rets:
        lines.insert(0, f"if (::BE::detail::be_are_empty(be_call.be_rets, {rets})) return;")
    if entry.with_role(Role.STATE):
        record = f"&{entry.call_name}, be_state_{symbol}"
        lines.append(f"auto be_state = ::BE::detail::be_state_of({record}, be_call.be_frame);")
    return "".join(f"{line} " for line in lines)


def argument(param: Param, index: int) -> str:
    """Write the argument of a parameter, the `index`-th of its role."""
    return "be_state" if param.role is Role.STATE else f"be_scratch_{index}"


def state_record(entry: EntryPoint, symbol: str) -> str:
    """Write what is known of the type of the state; empty without one."""
    if not entry.with_role(Role.STATE):
        return ""
    return f"static ::BE::detail::StateRecord be_state_{symbol} = ::BE::detail::be_record_of(&{entry.call_name}); "


def instantiate_handler(entry: EntryPoint, symbol: str, name: str, spec: str) -> str:
    """Write the function that XLA calls when it compiles a call, for the table `spec`; empty without state."""
    if not entry.with_role(Role.STATE):
        return ""
    return (
        f"BE_INTERNAL_HANDLER XLA_FFI_Error* {name}(XLA_FFI_CallFrame* be_frame);\n"
        f"XLA_FFI_Error* {name}(XLA_FFI_CallFrame* be_frame) {{\n"
        f"  return be_instantiate(be_frame, {spec}, be_state_{symbol});\n"
        "}\n"
    )
