"""What the commands of a build did, as a value."""

from __future__ import annotations

from typing import NamedTuple

from .build.execute import Step
from .cache import Recorded
from .looked_at import LookedAt


class Built(NamedTuple):
    """The commands that ran, and what they looked at.

    Parameters
    ----------
    steps : tuple of Step
    looked_at : LookedAt
        What the compilers of all units looked at, also those that did not run this time.
    recorded : Recorded
        What was hashed of it, and earlier.
    """

    steps: tuple[Step, ...]
    looked_at: LookedAt
    recorded: Recorded
