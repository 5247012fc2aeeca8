"""The functions of declared modules, read from their sources without compiling them."""

from __future__ import annotations

from pathlib import Path

from be_runtime.generate.bind import bind
from be_runtime.ship.declaration import Declaration
from be_runtime.ship.modules import request_of


def declared_functions(package: str, root: Path, declaration: Declaration) -> dict[str, list[str]]:
    """List the functions of each declared module.

    Raises
    ------
    ArgumentError, SourceNotFoundError, SpecError
        A source is missing, or its entry points can't be understood.
    """
    found = {}
    for name, declared in declaration.modules.items():
        request, _ = request_of(package, root, declared)
        found[name] = [binding.export for bindings in bind(request).values() for binding in bindings]
    return found
