"""Creation of a module that is not in the cache: its entry points, the build, and the files that are kept."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from be_runtime.cache import BuildOutput
from be_runtime.compile.build import Build
from be_runtime.compile.build_order import BuildOrder
from be_runtime.compile.plan.unit_files import OBJECTS
from be_runtime.compile.prepare import prepare_build
from be_runtime.compile.run.execute import render_log
from be_runtime.errors import BuildError
from be_runtime.generate.bind import bind, module_contents
from be_runtime.generate.codegen import Binding
from be_runtime.generate.contents import CONTENTS, LIBRARY
from be_toolchain.terminal import printable

LOG = "build.log"


def make_module(order: BuildOrder, staging: Path) -> BuildOutput:
    """Build the library of an order in a folder.

    Raises
    ------
    SpecError
        The entry points can't be understood.
    BuildError
        A command failed.
    """
    bindings = bind(order.request)
    build = prepare_build(order, bindings, staging)
    try:
        build.run()
    except BuildError as error:
        raise _explained(error, order, bindings) from None
    shutil.rmtree(staging / OBJECTS)
    (staging / CONTENTS).write_text(module_contents(bindings, order.request.language), encoding="utf-8")
    kept = (LIBRARY, CONTENTS, *_write_log(build), *_write_commands(build), *_generated_sources(build))
    return BuildOutput(kept, *build.looked_at(), recorded=build.recorded, unknown=tuple(build.unknown))


def _explained(error: BuildError, order: BuildOrder, bindings: Mapping[str, Sequence[Binding]]) -> BuildError:
    """Return the failure with the module's name, its first real error, and a hint at a similar header."""
    from be_runtime.compile.messages.diagnose import explained
    from be_runtime.compile.messages.hints import missing_header
    from be_runtime.compile.messages.near_header import near_header

    request = order.request
    sources = {source.name: source.text for unit in request.units for source in unit.sources}
    calls = [(binding.entry.source, binding.entry.line) for found in bindings.values() for binding in found]
    where = "" if request.name in error.message else f" (module {request.name})"
    shown = explained(error, sources, calls, is_cuda=request.language == "cuda", where=where)
    header = missing_header(shown.first_error)
    if header and (near := near_header(header, request, order.tools, order.system)):
        shown.hints = (f"did you mean {near}?",)
    return shown


def _write_log(build: Build) -> tuple[str, ...]:
    """Write the log into the build folder; all of it, or the compilers' warnings, to standard error."""
    log = render_log(build.steps)
    if build.order.verbose:
        sys.stderr.write(printable(log))
    elif any(step.output for step in build.steps):  # most builds say nothing
        from be_runtime.compile.messages.warned import find_warnings, warnings_text

        if warned := find_warnings(step.output for step in build.steps):
            sys.stderr.write(printable(f"{warnings_text(build.order.request.name, warned)}\n"))
    return _write_if_it_fits(build.staging, LOG, log)


def _write_commands(build: Build) -> tuple[str, ...]:
    """Write the compile commands of the author's files for editors; an inline source has no file."""
    units = build.order.request.units
    commands = {unit.path: build.units[unit.stem].command for unit in units if unit.path is not None}
    if not commands:
        return ()
    from be_runtime.compile.plan import compile_commands

    return _write_if_it_fits(build.staging, compile_commands.FILE, compile_commands.render_commands(commands))


def _write_if_it_fits(folder: Path, name: str, text: str) -> tuple[str, ...]:
    """Write a file that a build can do without. Return its name, or nothing if it can't be written."""
    try:
        (folder / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ()
    return (name,)


def _generated_sources(build: Build) -> tuple[str, ...]:
    """Return the generated sources in the build folder, which are kept for readers of compiler messages."""
    return tuple(unit.unit.source for unit in build.units.values() if (build.staging / unit.unit.source).is_file())
