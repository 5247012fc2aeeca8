"""What the commands of a build did, as a value."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .build.execute import Step
from .cache import Recorded


class Built(NamedTuple):
    """The commands that ran, and what was read.

    Parameters
    ----------
    steps : tuple of Step
    read : tuple of Path
        What the compilers of all units read, also those that did not run this time.
    recorded : Recorded or None
        What was hashed of it; None where nothing was yet.
    """

    steps: tuple[Step, ...]
    read: tuple[Path, ...]
    recorded: Recorded | None
