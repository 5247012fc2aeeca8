"""The functions of declared modules, read from their sources without compiling them."""

from __future__ import annotations

from pathlib import Path

from be_runtime.call.resolve import CallSignature, signature_of_entry
from be_runtime.generate.bind import bind
from be_runtime.ship.declaration import Declaration
from be_runtime.ship.modules import request_of


def declared_signatures(package: str, root: Path, declaration: Declaration) -> dict[str, dict[str, CallSignature]]:
    """Read how the functions of each declared module are called.

    Raises
    ------
    ArgumentError, SourceNotFoundError, SpecError
        A source is missing, or its entry points can't be understood.
    """
    found = {}
    for name, declared in declaration.modules.items():
        request, _ = request_of(package, root, declared)
        bound = [binding for bindings in bind(request).values() for binding in bindings]
        found[name] = {each.export: signature_of_entry(f"{name}.{each.export}", each.entry) for each in bound}
    return found
