"""The text and macros of CUDA's headers in the preamble's cache entry: written once, and checked at each use."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.cache import Entry
from be_runtime.compile.inputs.header_search import include_folders
from be_runtime.compile.nvcc.plan_headers import (
    are_left,
    check_file,
    checks,
    defines_file,
    header_macros,
    headers_file,
    headers_text,
    is_shadowed,
    is_understood,
    macros_file,
    names_in_headers,
)
from be_runtime.compile.nvcc.plan_preamble import FOLDER, MESSAGES, UNIT
from be_runtime.compile.plan.build_plan import BuildPlan, Edge
from be_runtime.compile.run.execute import Runner
from be_runtime.errors import BuildError
from be_runtime.own_files import INCLUDE_DIR
from be_runtime.request.options import CompileOptions
from be_runtime.request.tools import Tools
from be_toolchain.machine.system import System

_ASKED, _ENVIRONMENT = "asked", "environment"
_LOCAL = "/usr/local/include"
"""The folder that is searched before the system's other ones."""

_NOT_COMPILERS = re.compile(r"(?:BE|JAX|XLA|PYTEST)_.*|(?:OLD)?PWD|SHLVL|_")
"""Variables that no compiler's wrapper reads and that differ between a user's processes."""


class HeaderSearch(NamedTuple):
    """The folders in which a request's preprocessors look for headers.

    Parameters
    ----------
    authors : tuple of Path
        The folders that the author names, in the order of the search.
    tools : tuple of Path
        Our folders, XLA's and CUDA's.
    system : tuple of Path
        The system's folders.
    """

    authors: tuple[Path, ...]
    tools: tuple[Path, ...]
    system: tuple[Path, ...]

    @classmethod
    def of(cls, options: CompileOptions, tools: Tools, system: System) -> HeaderSearch:
        """Return the folders for a request's options, tools and environment."""
        listed = [system.environ.get(name, "") for name in ("CPATH", "CPLUS_INCLUDE_PATH")]
        named = (*include_folders(options.cflags), *(path for text in listed for path in text.split(":")))
        cuda = tools.cuda.include_dirs if tools.cuda is not None else ()
        prefix = tools.cxx.path.parent.parent
        own = (prefix / "include", prefix / tools.cxx.target / "include")
        places = (Path("/usr/local/include"), Path(f"/usr/include/{system.machine}-linux-gnu"), Path("/usr/include"))
        return cls(
            authors=(*options.include_paths, *(Path(path) for path in named if path.startswith("/"))),
            tools=(INCLUDE_DIR, *cuda, tools.ffi_include, *tools.library_includes),
            system=tuple(dict.fromkeys((*places, *own))),
        )


class KeptHeaders(NamedTuple):
    """Text and macros of headers, kept for a request's preprocessors.

    Parameters
    ----------
    preprocessors : mapping of str to Edge
        By phase.
    search : HeaderSearch
        The folders in which they look for headers.
    toolkit : Path
        The toolkit's root.
    system : System
    """

    preprocessors: Mapping[str, Edge]
    search: HeaderSearch
    toolkit: Path
    system: System

    def write(self, runner: Runner, read: Sequence[Path]) -> tuple[tuple[str, ...], tuple[Path, ...]]:
        """Write the files of each phase into the preamble's folder.

        Parameters
        ----------
        runner : Runner
            Runs commands in the folder with the outputs of the preprocessors and the probes.
        read : sequence of Path
            The headers.

        Returns
        -------
        tuple of (tuple of str, tuple of Path)
            The names of the files, and the paths of missing files that the headers ask for. There are no names if the
            headers have effects that text and macros can't reproduce.
        """
        staging, asked = runner.folder, names_in_headers(map(_read, read))
        texts = {
            phase: headers_text(_read(staging / edge.outputs[0]), UNIT.source)
            for phase, edge in self.preprocessors.items()
        }
        if asked is None or None in texts.values() or _read(staging / MESSAGES) or not self._is_understood():
            return (), ()
        defines = {phase: _read(staging / defines_file(FOLDER, phase)) for phase in texts}
        for phase, text in texts.items():
            _write(staging / headers_file(FOLDER, phase), text or "")
            _write(staging / macros_file(FOLDER, phase), header_macros(defines[phase]))
        _write(staging / FOLDER / _ASKED, "\n".join(asked))
        _write(staging / FOLDER / _ENVIRONMENT, self._environment())
        try:
            steps = runner.run(BuildPlan(files=(), edges=checks(self.preprocessors, FOLDER)))
        except BuildError:
            return (), ()
        found = {phase: _read(staging / check_file(FOLDER, phase)) for phase in texts}
        if any(step.output for step in steps) or not all(are_left(defines[phase], found[phase]) for phase in texts):
            return (), ()
        nowhere = tuple(folder / name for folder in (*self.search.tools, *self.search.system) for name in asked)
        files = (Path(file(FOLDER, phase)).name for phase in texts for file in (headers_file, macros_file))
        return (_ASKED, _ENVIRONMENT, *files), nowhere

    def usable(self, entry: Entry) -> tuple[str, ...]:
        """Return the phases whose kept headers are valid: no folder has other headers that would come first."""
        if _ASKED not in entry.manifest.outputs.paths or not self._is_understood():
            return ()
        try:
            environment, asked = _read(entry.output(_ENVIRONMENT)), _read(entry.output(_ASKED)).split("\n")
        except FileNotFoundError:  # cleared away since it was found
            return ()
        if environment != self._environment():
            return ()
        if any(self.system.stat(folder / name) is not None for folder in self.search.authors for name in asked if name):
            return ()
        folders = (*map(str, self.search.authors), _LOCAL)
        if is_shadowed(folders, entry.manifest.dependencies.paths, self._list_dir, self._stat):
            return ()
        return tuple(
            phase for phase in self.preprocessors if Path(headers_file("", phase)).name in entry.manifest.outputs.paths
        )

    def _environment(self) -> str:
        """Hash the variables that a script in a compiler's place may read; empty if the compilers are binaries."""
        compilers = {Path(edge.argv[0]) for edge in self.preprocessors.values()}
        if all((self.system.read_text(path, 4) or "").startswith("\x7fELF") for path in compilers):
            return ""
        variables = sorted(item for item in self.system.environ.items() if not _NOT_COMPILERS.fullmatch(item[0]))
        return hashlib.sha256(repr(variables).encode("utf-8", "surrogateescape")).hexdigest()

    def _is_understood(self) -> bool:
        """Return whether every preprocessor reads only CUDA's and the system's headers before the source."""
        folders = (*self.search.tools, *self.search.authors)
        known = {self.system.realpath(folder) for folder in folders}
        root = self.system.realpath(self.toolkit)

        def is_known(folder: str) -> bool:
            real = self.system.realpath(Path(folder))
            return real in known or real.is_relative_to(root)

        return all(is_understood(edge.argv, is_known) for edge in self.preprocessors.values())

    def _list_dir(self, folder: str) -> Sequence[str]:
        return self.system.list_dir(Path(folder))

    def _stat(self, path: object) -> object:
        return self.system.stat(str(path))


def _read(path: Path) -> str:
    """Read a file without any change to its bytes, including line ends."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
