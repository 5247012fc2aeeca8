"""Headers that do not exist yet, and would be included in place of one that does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def shadowing_paths(dependencies: Iterable[Path], include_folders: Sequence[Path]) -> tuple[Path, ...]:
    """The paths where a new file would come before a dependency in the compiler's search.

    A depfile names what was found, not where it was looked for first. For a dependency found in one include folder,
    these are the same relative path in every folder searched earlier. They belong into `BuildOutput.absent`.

    Parameters
    ----------
    dependencies : iterable of Path
        As in the depfile. Those in none of the folders, such as the system's, give nothing.
    include_folders : sequence of Path
        In the compiler's order, beginning with the source's own folder.

    Examples
    --------
    >>> [str(path) for path in shadowing_paths([Path("/b/x/y.h")], [Path("/a"), Path("/b")])]
    ['/a/x/y.h']
    """
    folders = [f"{str(folder).rstrip('/')}/" for folder in include_folders]
    found: dict[str, None] = {}
    for dependency in map(str, dependencies):
        # One folder may lie in another, so a dependency may be in several.
        for at, folder in enumerate(folders):
            if dependency.startswith(folder):
                relative = dependency.removeprefix(folder)
                found.update(dict.fromkeys(f"{earlier}{relative}" for earlier in folders[:at]))
    return tuple(Path(path) for path in found if not os.path.lexists(path))
