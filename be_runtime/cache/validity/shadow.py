"""Headers that do not exist yet, and would be included instead of one that does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def shadowing_paths(dependencies: Iterable[Path], include_folders: Sequence[Path]) -> tuple[Path, ...]:
    """Return the paths at which a new file would precede a dependency in the compiler's search.

    A depfile names the files that were found, not the places that were searched before. For a dependency found in one
    include folder, the result has the same relative path in every folder searched earlier. It belongs in
    `BuildOutput.absent`.

    Parameters
    ----------
    dependencies : iterable of Path
        Files of the depfile. A file outside all the folders, such as a system header, adds nothing.
    include_folders : sequence of Path
        Folders in the compiler's order, beginning with the source's own folder.

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
