"""The commands of every build: one that compiles a source, and one that links."""

from __future__ import annotations

from collections.abc import Sequence

from be_runtime.compile.plan.build_plan import Edge
from be_runtime.compile.plan.flags import LinkCommand
from be_runtime.compile.plan.unit_files import UnitFiles
from be_runtime.generate.contents import LIBRARY


def compile_edge(command: Sequence[str], unit: UnitFiles, description: str) -> Edge:
    """Make the command that compiles a source in one step."""
    return Edge(
        argv=(*command, "-MD", "-MF", unit.depfile, "-c", unit.source, "-o", unit.object),
        inputs=(unit.source,),
        outputs=(unit.object,),
        description=description,
        tool="compile",
        depfile=unit.depfile,
    )


def link_edge(link: LinkCommand, objects: Sequence[str], description: str = "linking") -> Edge:
    """Make the command that links the library from its objects."""
    return Edge(
        argv=(*link.head, *objects, "-o", LIBRARY, *link.tail),
        inputs=tuple(objects),
        outputs=(LIBRARY,),
        description=description,
        tool="link",
    )
