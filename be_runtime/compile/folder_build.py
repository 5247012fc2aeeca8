"""How a module of several sources is built: kept objects are used again, repeated names separated, all is linked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from be_runtime.cache import Recorded
from be_runtime.compile import graph
from be_runtime.compile.built import Built
from be_runtime.compile.inputs.observe import LookedAt
from be_runtime.compile.plan import flags
from be_runtime.compile.plan.build_plan import BuildPlan, UnitBuild
from be_runtime.compile.run.execute import Run
from be_runtime.compile.run.programs import find_objcopy
from be_runtime.compile.symbols import definitions, separating_options
from be_runtime.compile.unit_objects import Keeper, UnitObjects
from be_runtime.errors import BuildError
from be_runtime.request.tools import Tools
from be_toolchain.machine.system import System


def build_folder(
    units: Mapping[str, UnitBuild],
    plan: Callable[[Mapping[str, UnitBuild]], BuildPlan],
    separate: Callable[[BuildPlan], BuildPlan],
    run: Run,
    objects: UnitObjects,
    staging: Path,
    recorded: Recorded,
) -> Built:
    """Compile the units whose objects aren't kept, and link all. What compiles is kept, even if another unit does not.

    Parameters
    ----------
    units : mapping of str to UnitBuild
        All of them.
    plan : callable
        The whole build, given the units; one without commands has its object in place.
    separate : callable
        `separate_names` for this build.
    run : Run
    objects : UnitObjects
    staging : Path
        The build folder.
    recorded : Recorded
        What is known of files.

    Raises
    ------
    BuildError
        A command failed.
    """
    reused = objects.reuse(units, staging)
    compiled = {stem: build for stem, build in units.items() if stem not in reused}
    whole = plan({stem: compiled.get(stem, UnitBuild(edges=())) for stem in units})
    keeper = Keeper(objects, compiled, staging, recorded)
    made = {name for edge in whole.edges for name in edge.outputs}
    targets = (*(name for name in whole.edges[-1].inputs if name in made), *whole.aside)
    steps = run(whole, targets=targets, on_success=keeper.keep) if targets else ()
    steps += run(separate(whole), meanwhile=keeper.check)
    return Built(steps, LookedAt.merged((*keeper.looked_at.values(), *reused.values())), keeper.recorded)


def separate_names(plan: BuildPlan, link: flags.LinkCommand, staging: Path, tools: Tools, system: System) -> BuildPlan:
    """The plan, with the names that several of its compiled objects define made private to each.

    Raises
    ------
    BuildError
        Names repeat and objcopy is missing.
    """
    options = separating_options({name: definitions((staging / name).read_bytes()) for name in plan.edges[-1].inputs})
    if not options:
        return plan
    objcopy = find_objcopy(tools.cxx.path, system)
    if objcopy is None:
        names = sorted({option.split("=")[1] for each in options.values() for option in each})
        raise BuildError(
            f"several sources define {', '.join(names)} and objcopy, which separates them, is missing",
            hints=("install binutils, or give the functions different names, or make them static",),
        )
    return graph.with_private_names(plan, objcopy, options, link)
