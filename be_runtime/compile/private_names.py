"""The objects of a folder's files, told apart before they are linked: `symbols` says how."""

from __future__ import annotations

from pathlib import Path

from be_runtime.compile import graph
from be_runtime.compile.plan.build_plan import BuildPlan
from be_runtime.compile.plan.flags import LinkCommand
from be_runtime.compile.run.programs import find_objcopy
from be_runtime.compile.symbols import definitions, separating_options
from be_runtime.errors import BuildError
from be_toolchain.machine.system import System


def separate_names(plan: BuildPlan, link: LinkCommand, staging: Path, compiler: Path, system: System) -> BuildPlan:
    """The plan, with the names that several of its compiled objects define made private to each.

    Raises
    ------
    BuildError
        Names repeat and objcopy is missing.
    """
    options = separating_options({name: definitions((staging / name).read_bytes()) for name in plan.objects})
    if not options:
        return plan
    objcopy = find_objcopy(compiler, system)
    if objcopy is None:
        names = sorted({option.split("=")[1] for each in options.values() for option in each})
        raise BuildError(
            f"several sources define {', '.join(names)} and objcopy, which separates them, is missing",
            hints=("install binutils, or give the functions different names, or make them static",),
        )
    return graph.with_private_names(plan, objcopy, options, link)
