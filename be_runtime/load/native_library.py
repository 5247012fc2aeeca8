"""The package's own shared libraries: from a wheel, or else compiled from ``native/`` and kept in the cache."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from be_runtime import own_files, settings
from be_runtime.compile import execute, flags, inputs
from be_runtime.compile.plan import LIBRARY, BuildPlan, UnitFiles, compile_edge, link_edge
from be_runtime.compile.progress import Progress
from be_runtime.jax import port
from be_runtime.load import identity, module, obtain, registry
from be_runtime.store import cache, images, index, keys
from be_runtime.store.artifact import keep_library
from be_toolchain import ToolchainRequest, resolve
from be_toolchain.values import HostCompiler

if TYPE_CHECKING:
    from be_runtime.store.sharing import Shareable

_OBJECT, _DEPFILE = "library.o", "library.d"
_Read = TypeVar("_Read")


def native_library(name: str, session: registry.Session, ldflags: Sequence[str] = ()) -> ctypes.CDLL:
    """Load the library of ``native/<name>.cc``, and compile it if neither the package nor the cache has it.

    Parameters
    ----------
    name : str
        Name of the source, without its suffix. It may include our headers and XLA's.
    session : Session
    ldflags : sequence of str
        Linker flags, such as ``"-ldl"``.

    Raises
    ------
    ToolchainError
        There is no C++ compiler.
    BuildError, LoadError
        The library doesn't compile, or can't be loaded.
    """
    return _read(name, session, ldflags, module.open_library)


def native_image(name: str, session: registry.Session, ldflags: Sequence[str] = ()) -> bytes:
    """Return the bytes of the library, without symbols that only a debugger needs; see `native_library`."""
    return _read(name, session, (*ldflags, "-Wl,-s"), images.read_image)


def _read(name: str, session: registry.Session, ldflags: Sequence[str], read: Callable[[Path], _Read]) -> _Read:
    """Read the library in the package, or else the library in the cache, which is compiled if necessary."""
    shipped = identity.shipped_folder()
    if shipped is not None:
        return read(shipped / f"{name}.so")
    toolchain = resolve(ToolchainRequest(), system=session.system, record_dir=session.record_dir)
    assert toolchain.cxx is not None, "resolve() raises when there is no host compiler"
    plan = _plan(name, toolchain.cxx, ldflags)
    commands = [own_files.by_name(part) for edge in plan.commands for part in (*edge.argv, "")]
    texts = [part for pair in toolchain.key_fields() for part in pair]
    key = keys.make_key("native", ("name", name), ("commands", commands), ("toolchain", texts))
    recipe = _LibraryRecipe(name, plan, key, session)
    attempts = obtain.Attempts(session)
    while attempts.should_try():
        entry = obtain.find_or_build(recipe, session.toolchain_store, session, force=attempts.must_rebuild)
        with attempts.using(entry):
            artifact = entry.artifact()
            found = read(artifact.path(artifact.table.image))
    return found


class _LibraryRecipe(NamedTuple):
    """The making of one of our libraries, see `be_runtime.load.obtain.Recipe`."""

    name: str
    plan: BuildPlan
    key: keys.CacheKey
    session: registry.Session

    def make(self, folder: Path) -> cache.BuildOutput:
        """Compile the library."""
        return build_library(f"the library {self.name} of be_runtime", self.plan, self.session, folder)

    def share(self) -> Shareable:
        """Return the library: other machines can use all of it."""
        return obtain.shareable(self.key, self.session)


def _plan(name: str, compiler: HostCompiler, ldflags: Sequence[str]) -> BuildPlan:
    files = UnitFiles(name, str(own_files.NATIVE_DIR / f"{name}.cc"), _OBJECT, _DEPFILE)
    command = flags.handler_compile(compiler, [own_files.INCLUDE_DIR, port.ffi_include_dir()])
    link = flags.link(compiler, None, ldflags, (), lambda _folder: [])
    return BuildPlan(
        files=(),
        edges=(compile_edge(command, files, f"compiling {name}"),),
        link=link_edge(link, (_OBJECT,), f"linking {name}"),
    )


def build_library(name: str, plan: BuildPlan, session: registry.Session, staging: Path) -> cache.BuildOutput:
    """Build a library by a plan in an empty folder, unless ``BE_JIT`` forbids it."""
    read = run_plan(name, plan, session, staging)
    return cache.BuildOutput(
        keep_library(staging, LIBRARY, index.CodeImage("library", port.PLATFORMS["cpp"], 0), {}), read
    )


def run_plan(name: str, plan: BuildPlan, session: registry.Session, staging: Path) -> tuple[Path, ...]:
    """Run the commands of a plan, all in parallel, and return the files that they read.

    Raises
    ------
    LoadError
        ``BE_JIT`` forbids compilation.
    """
    settings.require_jit(session.settings, name)
    system, timeout_s = session.system, session.settings.compile_timeout_s
    ninja, jobs = execute.resolve_ninja(system), len(plan.edges)
    runner = execute.Runner(staging, ninja=ninja, jobs=jobs, environ=system.environ, timeout_s=timeout_s)
    with Progress(name, plan.commands) as progress:
        runner.run(plan, progress=progress)
    return inputs.read_from_outside([edge.depfile for edge in plan.edges if edge.depfile is not None], staging)
