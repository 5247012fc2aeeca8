"""The preamble: the common beginning of all CUDA sources, precompiled and cached at the second build with equal flags.

The first build gains nothing from a preamble, which takes as much processor time as a small kernel. A second build with
the same flags indicates an edit loop, and so does a folder of several files.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from be_runtime import errors, own_files
from be_runtime.compile import execute, inputs, plan
from be_runtime.store import cache, examine, keys, manifest
from be_toolchain.machine.system import System

UNIT = plan.files_named("be_preamble", "cuda")
"""The files of the empty source whose commands make the preamble."""

FOLDER = f"{plan.OBJECTS}/{UNIT.stem}"
MESSAGES = f"{FOLDER}/messages"
"""File with the messages of the preprocessors."""

_ASKED, _ENVIRONMENT = "asked", "environment"
_LOCAL = "/usr/local/include"
"""The first folder of the system that compilers search."""

_NOT_COMPILERS = re.compile(r"(?:BE|JAX|XLA|PYTEST)_.*|(?:OLD)?PWD|SHLVL|_")
"""Variables that differ between a user's processes, and that no wrapper script of a compiler reads."""

_MARKER = re.compile(r'# (\d+) "((?:[^"\\]|\\.)*)"([ 1-4]*)')
_DIRECTIVE = re.compile(r"#(?:define|undef) ([^\s(]+)")
_GIVEN = ("<built-in>", "<command-line>")
"""File names in the markers before macros that the preprocessor always defines."""

_STATEFUL = re.compile(
    r"\bpragma\b.*\bonce\b|_Pragma.*\bonce\b|\b(?:push|pop)_macro\b|\b__(?:COUNTER|DATE|TIME|TIMESTAMP)__\b"
)
"""Directives with effects other than macros on the rest of the source, and macros whose text differs each time."""

_STATEFUL_WORDS = ("once", "_macro", "__COUNTER__", "__DATE__", "__TIME__", "__TIMESTAMP__")
"""Words; each line that `_STATEFUL` matches has one. Without them, the pattern takes 200 ms in CUDA's headers."""

_FOLDER = re.compile(r'# \d+ ".*//"')
_HEADER = "cuda_runtime.h"
_SEARCHED = ("-I", "-isystem")
_NOT_UNDERSTOOD = (
    *("--", "@", "-imacros", "-iquote", "-idirafter", "-iprefix", "-iwithprefix", "-isysroot", "-nostdinc"),
    *("-B", "-specs", "-I-", "-finput-charset", "-M"),
)
"""Options that change which files are read, or how; ``-MD`` and ``-MF`` are our own."""


def is_understood(argv: Sequence[str], is_known: Callable[[str], bool]) -> bool:
    """Return whether a preprocessor reads only CUDA's and the system's headers before the source.

    Parameters
    ----------
    argv : sequence of str
        The preprocessor's command.
    is_known : callable
        Function that returns whether a folder belongs to the tools or is checked elsewhere.

    Examples
    --------
    >>> argv = ["g++", "-E", "-I/cuda/include", "-include", "cuda_runtime.h", "k.cu"]
    >>> is_understood(argv, {"/cuda/include"}.__contains__), is_understood([*argv, "-I/mine"], set().__contains__)
    (True, False)
    """
    own = {"-MD", "-MF"}
    if any(part.startswith(_NOT_UNDERSTOOD) and part not in own for part in argv[1:]):
        return False
    for part, following in zip(argv, (*argv[1:], ""), strict=True):
        option = next((option for option in _SEARCHED if part.startswith(option)), None)
        if option is not None and not is_known(part.removeprefix(option) or following):
            return False
        if part.startswith("-include") and (part, following) != ("-include", _HEADER):
            return False
    return True


def headers_text(preprocessed: str, source: str) -> str | None:
    r"""Return the preprocessed text of the headers before a source.

    Parameters
    ----------
    preprocessed : str
        The preprocessor's output for an empty source.
    source : str
        The source's name.

    Returns
    -------
    str or None
        None if the text of the source is missing, or if the text of the headers names the source or the build folder.

    Examples
    --------
    >>> headers_text('# 0 "k.cu"\n# 1 "a.h" 1\nint a;\n# 1 "k.cu"\n\n', "k.cu")
    '# 1 "a.h" 1\nint a;\n'
    """
    _, _, rest = preprocessed.partition("\n")
    text, found, own = rest.partition(f'\n# 1 "{source}"')
    names_this_build = source in text or _FOLDER.search(text) is not None
    if not found or own.strip() or names_this_build or "\n#define " in text:
        return None
    return f"{text}\n"


def header_macros(defines: str) -> str:
    """Return the macros that headers define, with their locations, as a file for ``-imacros``.

    Parameters
    ----------
    defines : str
        The output of ``-E -dD``.
    """
    kept: list[str] = []
    line, file, system = 1, _GIVEN[0], ""
    after = (0, "", "")
    for text in defines.split("\n"):
        marker = _MARKER.fullmatch(text)
        if marker is not None:
            line, file, system = int(marker[1]), marker[2], " 3" if "3" in marker[3] else ""
            continue
        if _DIRECTIVE.match(text) and file not in _GIVEN:
            if (line, file, system) != after:
                kept.append(f'# {line} "{file}"{system}')
            kept.append(text)
            after = (line + 1, file, system)
        line += 1
    return "".join(f"{text}\n" for text in kept)


def are_left(defines: str, macros: str) -> bool:
    r"""Return whether reading the text of `header_macros` defines the same macros as reading the headers.

    Parameters
    ----------
    defines : str
        The output of ``-E -dD`` with the headers.
    macros : str
        The output of ``-E -dM`` with ``-imacros``.

    Examples
    --------
    >>> are_left("#define A 1\n#define B 2\n#undef A", "#define B 2"), are_left("#define A 1", "#define A 2")
    (True, False)
    """
    left: dict[str, str] = {}
    for text in defines.split("\n"):
        if directive := _DIRECTIVE.match(text):
            left[directive[1]] = text if text.startswith("#define ") else ""
    found = {directive[1]: text for text in macros.split("\n") if (directive := _DIRECTIVE.match(text))}
    return all(found.get(name, "") == text for name, text in left.items())


def names_in_headers(headers: Iterable[str]) -> tuple[str, ...] | None:
    """Return the files named by ``__has_include`` in headers; None if headers have effects beyond text and macros.

    Parameters
    ----------
    headers : iterable of str
        The text of each header.

    Examples
    --------
    >>> names_in_headers(["#if __has_include(<tbb/tbb.h>)"]), names_in_headers(["#pragma once"])
    (('tbb/tbb.h',), None)
    """
    asked: dict[str, None] = {}
    for text in headers:
        names = inputs.names_asked_for(text)
        lines = (line for word in _STATEFUL_WORDS if word in text for line in text.split("\n") if word in line)
        if "" in names or any(map(_STATEFUL.search, lines)):
            return None
        asked |= dict.fromkeys(names)
    return tuple(asked)


def is_shadowed(
    folders: Sequence[str],
    headers: Iterable[str],
    list_dir: Callable[[str], Iterable[str]],
    stat: Callable[[str], object],
) -> bool:
    """Return whether a folder may contain another file in place of a header that was read.

    Parameters
    ----------
    folders : sequence of str
        Folders that may be searched before the folder of a header.
    headers : iterable of str
        Paths of the headers that were read. The included name may be any end of a path.
    list_dir : callable
        Function that returns the names in a folder.
    stat : callable
        Function that returns a value that identifies a file, or None if there is no file.
    """
    paths = [PurePath(path).parts for path in headers]
    for folder in folders:
        names = set(list_dir(folder))
        for parts in paths:
            ends = (parts[index:] for index, part in enumerate(parts) if part in names)
            found = (stat(str(PurePath(folder, *end))) for end in ends)
            if any(file is not None and file != stat(str(PurePath(*parts))) for file in found):
                return True
    return False


def probes(phases: plan.UnitBuild) -> tuple[tuple[str, ...], ...]:
    """Return the commands that print the headers of an empty source: their text, and their text with macros.

    Parameters
    ----------
    phases : UnitBuild
        Nvcc's phases of the empty source.
    """
    return tuple(
        argv
        for phase, edge in preprocessing(phases).items()
        for argv in (edge.argv, (*without_output(edge.argv), "-dD", "-o", f"{FOLDER}/defines{phase}"))
    )


def checks(preprocessors: Mapping[str, plan.Edge]) -> tuple[plan.Edge, ...]:
    """Return the commands that read the kept macros, and print the macros of an empty source.

    Parameters
    ----------
    preprocessors : mapping of str to Edge
        The preprocessors of the empty source, by phase.
    """
    edges = []
    for phase, edge in preprocessors.items():
        output = f"{FOLDER}/check{phase}"
        printing = ("-dM", "-imacros", f"{FOLDER}/headers{phase}.macros", "-o", output)
        argv = (*without_output(edge.argv), *printing)
        edges.append(plan.Edge(argv, (), (output,), f"checking the preamble ({phase})", "preprocess"))
    return tuple(edges)


def use_kept_headers(build: plan.UnitBuild, script: str, folder: str, kept: Sequence[str]) -> plan.UnitBuild:
    """Return the commands of a build, with preprocessors that use the kept text instead of the headers.

    Parameters
    ----------
    build : UnitBuild
        Nvcc's phases of one source.
    script : str
        The path of ``with_kept_headers.sh``.
    folder : str
        Folder of the files that the script reads.
    kept : sequence of str
        The phases whose files the folder has.
    """
    source = build.unit.source
    changed = {
        edge: edge._replace(argv=("/bin/sh", script, folder, phase, source, *edge.outputs, *without_output(edge.argv)))
        for phase, edge in preprocessing(build).items()
        if phase in kept and source in edge.argv
    }
    return build._replace(edges=tuple(changed.get(edge, edge) for edge in build.edges))


def preprocessing(build: plan.UnitBuild) -> dict[str, plan.Edge]:
    """Return the preprocessing commands by phase: the output's name after the source's stem, such as ``".cpp1.ii"``."""
    edges = (edge for edge in build.edges if edge.tool == "preprocess")
    return {PurePath(edge.outputs[0]).name.removeprefix(build.unit.stem): edge for edge in edges}


def without_output(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command without ``-o`` and its value."""
    return tuple(part for part, before in zip(argv, ("", *argv), strict=False) if "-o" not in (part, before))


class KeptHeaders(NamedTuple):
    """Text and macros of headers, kept for a request's preprocessors.

    Parameters
    ----------
    preprocessors : mapping of str to Edge
        The preprocessors' commands, by phase.
    system : System
    toolkit : Path
        The toolkit's root.
    authors, tools, places : tuple of Path
        Folders in which the preprocessors search headers, in this order: the author's; ours, XLA's and CUDA's; the
        system's.
    """

    preprocessors: Mapping[str, plan.Edge]
    system: System
    toolkit: Path
    authors: tuple[Path, ...]
    tools: tuple[Path, ...]
    places: tuple[Path, ...]

    @classmethod
    def of(cls, preprocessors: Mapping[str, plan.Edge], order: plan.BuildOrder) -> KeptHeaders:
        """Return the kept headers for an order's options, tools and environment."""
        options, tools, system = order.request.compile, order.tools, order.system
        assert tools.cuda is not None, "only nvcc's phases have such preprocessors"
        listed = [system.environ.get(name, "") for name in ("CPATH", "CPLUS_INCLUDE_PATH")]
        named = (*inputs.include_folders(options.cflags), *(path for text in listed for path in text.split(":")))
        prefix = tools.cxx.path.parent.parent
        places = (
            *(Path("/usr/local/include"), Path(f"/usr/include/{system.machine}-linux-gnu"), Path("/usr/include")),
            *(prefix / "include", prefix / tools.cxx.target / "include"),
        )
        return cls(
            preprocessors,
            system,
            tools.cuda.root,
            authors=(*options.include_paths, *(Path(path) for path in named if path.startswith("/"))),
            tools=(own_files.INCLUDE_DIR, *tools.cuda.include_dirs, tools.ffi_include, *tools.library_includes),
            places=tuple(dict.fromkeys(places)),
        )

    def write(self, runner: execute.Runner, read: Sequence[Path]) -> tuple[tuple[str, ...], tuple[Path, ...]]:
        """Write the files of each phase into the preamble's folder.

        Parameters
        ----------
        runner : Runner
            Runner in the folder with the outputs of the preprocessors and the probes.
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
        defines = {phase: _read(staging / f"{FOLDER}/defines{phase}") for phase in texts}
        for phase, text in texts.items():
            _write(staging / f"{FOLDER}/headers{phase}", text or "")
            _write(staging / f"{FOLDER}/headers{phase}.macros", header_macros(defines[phase]))
        _write(staging / FOLDER / _ASKED, "\n".join(asked))
        _write(staging / FOLDER / _ENVIRONMENT, self._environment())
        try:
            steps = runner.run(plan.BuildPlan(files=(), edges=checks(self.preprocessors)))
        except errors.BuildError:
            return (), ()
        found = {phase: _read(staging / f"{FOLDER}/check{phase}") for phase in texts}
        if any(step.output for step in steps) or not all(are_left(defines[phase], found[phase]) for phase in texts):
            return (), ()
        nowhere = tuple(folder / name for folder in (*self.tools, *self.places) for name in asked)
        files = (f"headers{phase}{ending}" for phase in texts for ending in ("", ".macros"))
        return (_ASKED, _ENVIRONMENT, *files), nowhere

    def usable(self, entry: cache.Entry) -> tuple[str, ...]:
        """Return the phases whose kept headers are valid, which no header in an earlier folder hides."""
        if _ASKED not in entry.manifest.outputs.paths or not self._is_understood():
            return ()
        try:
            environment, asked = _read(entry.output(_ENVIRONMENT)), _read(entry.output(_ASKED)).split("\n")
        except FileNotFoundError:  # another process removed the entry since it was found
            return ()
        if environment != self._environment():
            return ()
        if any(self.system.stat(folder / name) is not None for folder in self.authors for name in asked if name):
            return ()
        folders = (*map(str, self.authors), _LOCAL)
        headers = entry.manifest.dependencies.paths
        if is_shadowed(folders, headers, lambda path: self.system.list_dir(Path(path)), self.system.stat):
            return ()
        return tuple(phase for phase in self.preprocessors if f"headers{phase}" in entry.manifest.outputs.paths)

    def _environment(self) -> str:
        """Hash the variables that a wrapper script may read; empty if the compilers are binaries."""
        compilers = {Path(edge.argv[0]) for edge in self.preprocessors.values()}
        if all((self.system.read_text(path, 4) or "").startswith("\x7fELF") for path in compilers):
            return ""
        variables = sorted(item for item in self.system.environ.items() if not _NOT_COMPILERS.fullmatch(item[0]))
        return hashlib.sha256(repr(variables).encode("utf-8", "surrogateescape")).hexdigest()

    def _is_understood(self) -> bool:
        """Return whether every preprocessor reads only CUDA's and the system's headers before the source."""
        folders = (*self.tools, *self.authors)
        known = {self.system.realpath(folder) for folder in folders}
        root = self.system.realpath(self.toolkit)

        def is_known(folder: str) -> bool:
            real = self.system.realpath(Path(folder))
            return real in known or real.is_relative_to(root)

        return all(is_understood(edge.argv, is_known) for edge in self.preprocessors.values())


def _read(path: Path) -> str:
    """Read a file without changing its bytes, including line ends."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))


_FILES = ("preamble.h", "preamble.h.gch", "pragmas.h", "size", "read.d")
"""Files of a preamble in `FOLDER`; some of them are missing if a command failed."""
_SCRIPT = f"{FOLDER}.sh"
_DONE = f"{FOLDER}.done"
_DEPFILE = f"{FOLDER}/read.d"

MANY_FILES = 4
"""The number of sources from which on the first build makes the preamble, which then costs little in comparison."""


def use_preamble(build: plan.UnitBuild, script: str, folder: str) -> plan.UnitBuild:
    """Return the commands of a build, with a host compiler that uses the precompiled beginning.

    Parameters
    ----------
    build : UnitBuild
        Nvcc's phases of one source.
    script : str
        The path of ``with_preamble.sh``.
    folder : str
        Folder of `_FILES`.
    """
    whole, compilation = _the(build, "cudafe++").outputs[0], _the(build, "compile")
    used = compilation._replace(argv=("/bin/sh", script, folder, whole, *_without_input(compilation.argv, whole)))
    return build._replace(edges=tuple(used if edge is compilation else edge for edge in build.edges))


def make_preamble(phases: plan.UnitBuild, dropped: Sequence[str]) -> plan.UnitBuild:
    """Return the command that makes a preamble. The command never fails, since a build can do without a preamble.

    Parameters
    ----------
    phases : UnitBuild
        Nvcc's phases of `UNIT`.
    dropped : sequence of str
        Flags to leave out: the author's include folders, which the preamble does not read.
    """
    edge = plan.Edge(
        argv=("/bin/sh", _SCRIPT),
        inputs=(UNIT.source,),
        outputs=(_DONE,),
        description="compiling the preamble of CUDA sources",
        tool="make preamble",
    )
    source = plan.GeneratedFile(path=UNIT.source, text="\n")
    script = plan.GeneratedFile(path=_SCRIPT, text=preamble_text(phases, dropped))
    return phases._replace(edges=(edge,), files=(*phases.files, source, script))


def preamble_text(phases: plan.UnitBuild, dropped: Sequence[str]) -> str:
    """Return the script that makes a preamble, which depends only on the script and the toolchain."""
    whole = _the(phases, "cudafe++").outputs[0]  # which the host compiler reads
    compiler = [part for part in without_output(_without_input(_the(phases, "compile").argv, whole)) if part != "-S"]
    header, quoted = f"{FOLDER}/preamble.h", shlex.quote(whole)
    depfiles = shlex.join(edge.depfile or "" for edge in preprocessing(phases).values())
    asked = probes(phases)
    lines = [
        f"mkdir -p {FOLDER} {shlex.quote(str(PurePath(whole).parent))}",
        "make() {",
        *(f"{_shell(argv, dropped)} 2>> {MESSAGES} & p{number}=$!" for number, argv in enumerate(asked)),
        *(f"wait $p{number} &&" for number in range(len(asked))),
        f"cat {depfiles} > {_DEPFILE} &&",
        f"{_shell(_the(phases, 'cudafe++').argv, dropped)} &&",
        # Leave out the first line, which names the source, and the end, which includes files of the device side.
        f"sed -e 1d -e '/^# 1 \"{UNIT.stem}\\.[a-z0-9_.]*stub\\.c\"$/,$d' {quoted} | sed '$d' > {header} &&",
        f"sed -n -e '/^# [0-9]* \"/q' -e '/^#pragma GCC diagnostic ignored/p' {header} > {FOLDER}/pragmas.h &&",
        f"wc -c < {header} > {FOLDER}/size &&",
        f"{_shell(compiler, dropped)} -x c++-header {header} -o {header}.gch",
        "}",
        f"make > /dev/null 2>&1 || rm -f {header}.gch",
        f": > {_DONE}",
    ]
    return "\n".join(lines) + "\n"


def _the(build: plan.UnitBuild, tool: plan.Tool) -> plan.Edge:
    """Return the only command of a tool."""
    return next(edge for edge in build.edges if edge.tool == tool)


def _without_input(argv: Sequence[str], source: str) -> tuple[str, ...]:
    """Return a compile command without its source and language, for others in their place."""
    pairs = zip(argv, ("", *argv[:-1]), strict=True)
    return tuple(part for part, before in pairs if part not in {source, "-x"} and before != "-x")


def _shell(argv: Sequence[str], dropped: Sequence[str]) -> str:
    return shlex.join(part for part in argv if part not in dropped)


class Preamble(NamedTuple):
    """The preamble for a build: its cache entry, or the commands that make one.

    Parameters
    ----------
    key : CacheKey
    entry : Entry or None
        Cache entry; None without one.
    phases : tuple of str
        The phases for which the entry has the text and macros of the headers.
    making : UnitBuild or None
        The commands that make the preamble beside the module; None if it exists or does not pay off.
    headers : KeptHeaders
        Writer of the text and macros.
    """

    key: keys.CacheKey
    entry: cache.Entry | None
    phases: tuple[str, ...]
    making: plan.UnitBuild | None
    headers: KeptHeaders

    def use(self, build: plan.UnitBuild) -> plan.UnitBuild:
        """Return a unit's commands with the preamble, if there is one."""
        if self.entry is None or not build.edges:
            return build
        folder = str(self.entry.path)
        precompiled = use_preamble(build, str(own_files.NATIVE_DIR / "with_preamble.sh"), folder)
        return use_kept_headers(precompiled, str(own_files.NATIVE_DIR / "with_kept_headers.sh"), folder, self.phases)

    @property
    def looked_at(self) -> inputs.LookedAt:
        """Return the inputs that the preamble adds to a source: headers, and paths at which others would come first.

        Only the author's folders are searched before ours, so the absent paths in our folders have all names.
        """
        if self.entry is None:
            return inputs.LookedAt()
        made_from, own = inputs.LookedAt.of(self.entry.manifest), f"{own_files.INCLUDE_DIR}/"
        names = [path.removeprefix(own) for path in made_from.absent if path.startswith(own)]
        authors = (f"{folder}/{name}" for folder in self.headers.authors for name in names)
        return made_from._replace(absent=(*made_from.absent, *authors))

    @property
    def records(self) -> Mapping[str, manifest.FileRecord]:
        """Return the records of the preamble's inputs, by path."""
        return {} if self.entry is None else examine.proven_records(self.entry.manifest)

    def keep(self, toolchain_store: cache.Cache, runner: execute.Runner, observer: inputs.Observer) -> None:
        """Keep the files that the commands made, after further commands in the runner's folder."""
        staging = runner.folder
        if self.making is None or not all((staging / FOLDER / name).is_file() for name in _FILES):
            return
        read, making = inputs.read_from_outside((_DEPFILE,), staging), observer.looked_at(self.making.edges)

        def collect(target: Path) -> cache.BuildOutput:
            written, nowhere = self.headers.write(runner, read)
            listed = inputs.LookedAt(read=tuple(map(str, read)), absent=tuple(map(str, nowhere)))
            looked_at = inputs.LookedAt.merged((listed, making))
            for name in (*_FILES, *written):
                shutil.move(staging / FOLDER / name, target / name)
            return cache.BuildOutput((*_FILES, *written), *looked_at)

        toolchain_store.keep(self.key, collect)


def find_preamble(phases: plan.UnitBuild, order: plan.BuildOrder, *, is_worth_it: bool) -> Preamble:
    """Find the preamble for nvcc's flags, or plan to make one if that pays off.

    Parameters
    ----------
    phases : UnitBuild
        Nvcc's phases of `UNIT`.
    order : BuildOrder
        An order whose toolkit has an nvcc.
    is_worth_it : bool
    """
    headers = KeptHeaders.of(preprocessing(phases), order)
    dropped = [f"-I{path}" for path in order.request.compile.include_paths]
    key = keys.make_key(
        "preamble",
        ("name", UNIT.stem),
        ("commands", [*map(own_files.by_name, shlex.split(preamble_text(phases, dropped)))]),
        ("library_path", phases.library_path),
        ("toolchain", order.toolchain.fingerprint),
    )
    entry = order.toolchain_store.get(key)
    return Preamble(
        key=key,
        entry=entry,
        phases=() if entry is None else headers.usable(entry),
        making=make_preamble(phases, dropped) if entry is None and is_worth_it else None,
        headers=headers,
    )
