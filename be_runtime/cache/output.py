"""What a build hands to the cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOutput:
    """What a build made, and from what.

    Parameters
    ----------
    outputs : tuple of str
        Regular files relative to the staging folder; all else in that folder is thrown away.
    dependencies : tuple of Path
        Every file that was read, as in the compiler's depfile. Those inside the staging folder are left out, and
        relative ones are relative to it.
    absent : tuple of Path
        Paths that were looked for and not found, see `shadowing_paths`.
    """

    outputs: tuple[str, ...]
    dependencies: tuple[Path, ...] = ()
    absent: tuple[Path, ...] = ()
