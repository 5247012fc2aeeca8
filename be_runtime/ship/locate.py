"""A package's folder, found without importing the package: a builder has not all that it imports."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from be_runtime.errors import ArgumentError
from be_runtime.ship.declaration import FILE
from be_runtime.ship.package import Package


def locate_package(asked: str | None, here: Path) -> Package:
    """Find a package by its name or folder, or the only one below a folder.

    Raises
    ------
    ArgumentError
        There is none, or there are several.
    """
    if asked is None:
        found = [path.parent for pattern in (f"*/{FILE}", f"src/*/{FILE}") for path in sorted(here.glob(pattern))]
        if len(found) != 1:
            names = ", ".join(str(path.relative_to(here)) for path in found) or "none"
            raise ArgumentError(
                f"which package? with a {FILE}, below this folder: {names}",
                hints=('name it: python -m be_runtime build a.mykernels, or packages = ["a.mykernels"] for a wheel',),
            )
        return package_in(found[0])
    folder = Path(asked)
    if folder.is_dir():
        return package_in(folder)
    try:
        spec = importlib.util.find_spec(asked)
    except (ImportError, ValueError):
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise ArgumentError(
            f"there is no package {asked!r}, and no such folder", hints=("name the folder of its __init__.py",)
        )
    return Package(asked, Path(places[0]))


def package_in(folder: Path) -> Package:
    """Return the package of a folder; its name has those of the packages around it."""
    root = folder.absolute().resolve()
    parts = [root.name]
    above = root.parent
    while (above / "__init__.py").is_file():
        parts.insert(0, above.name)
        above = above.parent
    return Package(".".join(parts), root)
