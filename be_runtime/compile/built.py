"""What the commands of a build did, as a value."""

from __future__ import annotations

from typing import NamedTuple

from be_runtime.cache import Recorded
from be_runtime.cache.publish import record_files
from be_runtime.compile.inputs.observe import LookedAt, Observer
from be_runtime.compile.plan.build_plan import Edge, UnitBuild
from be_runtime.compile.run.execute import Step


class Built(NamedTuple):
    """The commands that ran, and what they looked at.

    Parameters
    ----------
    steps : tuple of Step
    looked_at : LookedAt
        What the compilers of all units looked at, also those that did not run this time.
    recorded : Recorded
        What was hashed of it, and earlier.
    linked : tuple of str
        The files besides sources that linking looked at.
    """

    steps: tuple[Step, ...]
    looked_at: LookedAt
    recorded: Recorded
    linked: tuple[str, ...] = ()


class UnitNotes:
    """What the only unit of a module looked at: read and hashed while the module is linked.

    Parameters
    ----------
    build : UnitBuild
        Its commands.
    observer : Observer
    kept : LookedAt
        What was looked at to make what the commands take from the cache.
    recorded : Recorded
        What is known of files.
    """

    def __init__(self, build: UnitBuild, observer: Observer, kept: LookedAt, recorded: Recorded) -> None:
        self._build, self._observer, self._kept, self._recorded = build, observer, kept, recorded
        self._looked_at: LookedAt | None = None

    def take(self, edge: Edge) -> None:
        """Take the notes once the unit's last command is done."""
        if edge.outputs == self._build.edges[-1].outputs:
            self._looked_at = LookedAt.merged((self._observer.looked_at(self._build.edges), self._kept))
            self._recorded = record_files(self._looked_at.files, self._recorded)

    def built(self, steps: tuple[Step, ...]) -> Built:
        """All that the build did."""
        assert self._looked_at is not None, "the module was linked, so its unit was compiled"
        return Built(steps, self._looked_at, self._recorded)
