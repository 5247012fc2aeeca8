"""Assignment of entry points to the units of a request, and their names in the module. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from be_runtime.errors import EntryPointNotFoundError
from be_runtime.generate.codegen import Binding
from be_runtime.generate.contents import Handlers, render_contents
from be_runtime.request.options import BuildRequest, Language, Unit
from be_runtime.spec.discovery import discover
from be_runtime.spec.grammar import render_spec
from be_runtime.spec.model import EntryPoint, Role

_NOT_IDENTIFIER = re.compile(r"\W", re.ASCII)


def bind(request: BuildRequest) -> dict[str, tuple[Binding, ...]]:
    """Find the entry points of each unit, by the unit's stem.

    In a request of several units, a name that only one of them defines is used as it is; a name that several define
    becomes ``<stem>.<name>`` for each. Symbols name the module and the function: they are part of the targets' names,
    which XLA's messages show.

    Raises
    ------
    SpecError
        Discovery fails, or no unit has an entry point.
    """
    entries = _discover_units(request)
    counts = Counter(entry.name for found in entries.values() for entry in found)
    module, alone = _identifier(request.name), len(request.units) == 1
    return {
        stem: tuple(
            Binding(
                entry=entry,
                symbol=f"{module}_{entry.name}" if alone else f"{module}_{_unit_symbol(stem)}_{entry.name}",
                export=entry.name if counts[entry.name] == 1 else f"{stem}.{entry.name}",
            )
            for entry in found
        )
        for stem, found in entries.items()
    }


def module_contents(bindings: Mapping[str, Sequence[Binding]], language: Language) -> str:
    """Write the list of a module's handlers, see `be_runtime.generate.contents`."""
    return render_contents(
        {
            binding.export: Handlers(
                plain=binding.handler(allow_cuda_graph=False),
                graph=binding.handler(allow_cuda_graph=True),
                warning=_race(binding.entry) if language == "cuda" else "",
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


def _race(entry: EntryPoint) -> str:
    """Return the warning about launches outside of XLA's stream; empty if the source has none."""
    if not entry.launches_out_of_order:
        return ""
    fault = "does not use its stream" if entry.with_role(Role.STREAM) else "has no stream"
    return (
        f"launches a kernel, but {fault}: XLA and the kernel do not wait for each other, so the kernel may read "
        "arguments before they are written, and its results may be read too early; take `int64_t stream` as a "
        "parameter and launch with <<<blocks, threads, 0, (cudaStream_t)stream>>>"
    )


def _identifier(text: str) -> str:
    return _NOT_IDENTIFIER.sub("_", text)


def _unit_symbol(stem: str) -> str:
    """Make a C identifier that is unique to a stem."""
    return f"{_identifier(stem)}_{hashlib.sha256(stem.encode(errors='surrogateescape')).hexdigest()[:8]}"


def _discover_units(request: BuildRequest) -> dict[str, tuple[EntryPoint, ...]]:
    units, functions = request.units, request.functions
    if len(units) == 1:
        return {units[0].stem: discover(units[0].sources, functions)}  # type: ignore[arg-type]  # judged by discover
    if functions is None:
        found = {unit.stem: _annotated(unit) for unit in units}
        if not any(found.values()):
            discover([source for unit in units for source in unit.sources], None)  # raises, naming all sources
        return found
    return _named(units, functions)


def _annotated(unit: Unit) -> tuple[EntryPoint, ...]:
    try:
        return discover(unit.sources, None)
    except EntryPointNotFoundError as error:
        if error.span is not None:
            raise
        return ()


def _named(units: Sequence[Unit], functions: Any) -> dict[str, tuple[EntryPoint, ...]]:
    """Look up every given name in every unit; a name in none of them is an error."""
    found = {unit.stem: discover(unit.sources, functions, is_partial=True) for unit in units}
    known = {entry.name for entries in found.values() for entry in entries}
    missing = next((name for name in functions if name not in known), None)
    if missing is not None:
        wanted = {missing: functions[missing]} if isinstance(functions, Mapping) else [missing]
        discover([source for unit in units for source in unit.sources], wanted)  # raises, with the closest names of all
    return found
