"""CUDA compiled by nvcc: its command, and the phases of its dry run as commands that run in parallel."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from be_runtime.compile.flags import STANDARD, active_flags, has_flag, line_flags, native_flags
from be_runtime.compile.plan import BuildOrder, Edge, GeneratedFile, Tool, UnitBuild, UnitFiles, files_named
from be_runtime.request.options import ARCH_FLAGS, CompileOptions, with_relaxed_constexpr
from be_runtime.store.cache import BuildOutput
from be_runtime.store.keys import CacheKey, make_key
from be_toolchain.arch import Arch, gencode_flags
from be_toolchain.values import Nvcc

if TYPE_CHECKING:
    from be_runtime.compile.nvcc_preamble import Preamble


_LTO = ("-dlto", "--dlink-time-opt", "-lto")
_RELOCATABLE = ("-rdc=true", "--relocatable-device-code=true", "-dc", "--device-c", *_LTO)

_OUTPUT_OPTIONS: dict[str, tuple[Tool, tuple[str, ...]]] = {
    "cudafe++": ("cudafe++", ("--gen_c_file_name",)),
    "cicc": ("cicc", ("-o", "--stub_file_name", "--gen_c_file_name", "--gen_device_file_name")),
    "ptxas": ("ptxas", ("-o",)),
    "fatbinary": ("fatbinary", ("--create", "--embedded-fatbin")),
}
_FORBIDDEN = ("nvlink", "nvprune", "ccache", "sccache")

_PLACEHOLDER = files_named("be_dry_run_source", "cuda")
_MODULE_ID = "be_dry_run_module"
_DRY_RUN = "dryrun.txt"
"""File of a dry run in its cache entry."""

_MARK = "#$ "
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(\w+)")

_STAND_IN = r"""#include "fatbinary_section.h"
#define __CUDAFATBINSECTION ".nvFatBinSegment"
#define __CUDAFATBINDATASECTION ".nv_fatbin"
asm(
    ".section .nv_fatbin, \"a\"\n"
    ".align 8\n"
    "fatbinData:\n"
    ".incbin \"%s\"\n"
    ".text\n");
extern "C" {
extern const unsigned long long fatbinData[];
static const __fatBinC_Wrapper_t __fatDeviceText
    __attribute__((aligned(8), section(__CUDAFATBINSECTION))) = {0x466243b1, 1, fatbinData, 0};
}
"""
"""C source that replaces fatbinary's text: the assembler reads the device code from the binary file."""


class NvccCompiler(NamedTuple):
    """Nvcc and its architectures; see `be_runtime.compile.graph.CudaCompiler`."""

    nvcc: Nvcc
    archs: tuple[Arch, ...]

    def command(self, options: CompileOptions, includes: Sequence[str], /) -> tuple[str, ...]:
        """Return nvcc with its flags."""
        nvcc, flags = self.nvcc, with_relaxed_constexpr(options.cflags)
        argv = [str(nvcc.path)]
        if not has_flag(flags, "-std", "--std"):
            argv.append(f"-std={STANDARD}")
        if not any(flag.startswith("-O") or has_flag([flag], "--optimize") for flag in flags):
            argv.append(f"-O{options.optimization_level}")
            if options.optimization_level < 3:
                argv += ["-Xptxas", f"-O{options.optimization_level}"]
        if not has_flag(flags, *ARCH_FLAGS):
            if has_flag(flags, *_LTO):
                argv += self._lto_flags(flags)
                flags = tuple(flag for flag in flags if flag not in _LTO)
            else:
                argv += gencode_flags(self.archs)
        if not has_flag(flags, "-ccbin", "--compiler-bindir"):
            argv += ["-ccbin", str(nvcc.host.path)]
        if nvcc.allow_unsupported_compiler:
            argv.append("-allow-unsupported-compiler")
        if options.use_fast_math:
            argv.append("--use_fast_math")
        if options.line_info:
            argv.append("-lineinfo")
        host = ("-fPIC", "-fvisibility=hidden", *native_flags(options), *line_flags(options))
        argv += ["-Xcompiler", ",".join(host)]
        return (*argv, *active_flags(options), *includes, *flags)

    def _lto_flags(self, flags: Sequence[str]) -> list[str]:
        """Return the flags in place of ``-dlto``, which nvcc refuses with named architectures; the link compiles."""
        is_relocatable = has_flag(flags, "-rdc", "--relocatable-device-code", "-dc", "--device-c")
        codes = [f"-gencode=arch={arch.compute},code=lto_{arch.number}" for arch in self.archs]
        return codes if is_relocatable else ["-rdc=true", *codes]

    def device_link(self, options: CompileOptions, /) -> tuple[str, ...] | None:
        """Return ``nvcc -dlink`` if the author's flags, such as ``-rdc=true``, ask for relocatable device code."""
        flags = options.cflags
        if not any(flag in flags for flag in _RELOCATABLE) and "-rdc true" not in " ".join(flags):
            return None
        archs = [*gencode_flags(self.archs)]
        if has_flag(flags, *ARCH_FLAGS):
            pairs = zip(flags, (*flags[1:], ""), strict=False)
            # The author's own flags, each with its value.
            named = (
                (flag,) if "=" in flag else (flag, value) for flag, value in pairs if has_flag([flag], *ARCH_FLAGS)
            )
            archs = [part for flag in named for part in flag if part]
        lto = (flag for flag in flags if flag in _LTO)
        ccbin = ("-ccbin", str(self.nvcc.host.path))
        return (str(self.nvcc.path), "-dlink", *archs, *lto, *ccbin, "-Xcompiler", "-fPIC", "-lcudadevrt")

    def phases(self, command: Sequence[str], unit: UnitFiles, order: BuildOrder, /) -> UnitBuild | None:
        """Return the phases of nvcc's dry run, which the cache keeps."""
        toolkit = order.toolchain.cuda
        assert toolkit is not None, "nvcc is part of a toolkit"
        try:
            text = self._dry_run(command, order)
        except _NoAnswerError:
            return None
        phases = _phases(text, *map(str, (self.nvcc.cudafe, self.nvcc.cicc, toolkit.ptxas, toolkit.fatbinary)))
        if phases is None:
            return None
        digest = hashlib.sha256(unit.stem.encode()).hexdigest()
        name = "".join(char if char.isascii() and char.isalnum() else "_" for char in f"{unit.stem}.cu")
        module_id = f"_{digest[:8]}_{len(name)}_{name}_{digest[8:16]}"  # nvcc's form
        return rename(rename(phases, _PLACEHOLDER.stem, unit.stem), _MODULE_ID, module_id)

    def _dry_run(self, command: Sequence[str], order: BuildOrder) -> str:
        """Return the output of a dry run, from the cache or from nvcc."""
        argv = _dry_run_command(command)

        def ask() -> str:
            answer = order.system.run(argv)
            if answer.returncode != 0:
                raise _NoAnswerError
            return answer.text

        def build(staging: Path) -> BuildOutput:
            (staging / _DRY_RUN).write_text(ask(), encoding="utf-8", errors="surrogateescape")
            nvcc, profile = self.phase_inputs()
            return BuildOutput(outputs=(_DRY_RUN,), dependencies=(nvcc, profile) if profile.is_file() else (nvcc,))

        kept = order.toolchain_store.get_or_build(_dry_run_key(command, order), build).output(_DRY_RUN)
        try:
            return kept.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:  # another process removed the entry since it was found
            return ask()

    def preamble(self, command: Sequence[str], order: BuildOrder, /) -> Preamble | None:
        """Return the preamble, if g++ is behind nvcc's phases."""
        if self.nvcc.host.family != "gcc":
            return None
        from be_runtime.compile.nvcc_preamble import MANY_FILES, UNIT, find_preamble

        # Only an earlier build with the same flags keeps a dry run. Look for it first, since `phases` keeps one.
        is_worth_it = len(order.request.units) >= MANY_FILES
        is_worth_it = is_worth_it or order.toolchain_store.get(_dry_run_key(command, order)) is not None
        phases = self.phases(command, UNIT, order)
        return None if phases is None else find_preamble(phases, order, is_worth_it=is_worth_it)

    def phase_inputs(self) -> tuple[Path, Path]:
        """Return nvcc and its profile, which determine the dry run."""
        return (self.nvcc.path, self.nvcc.path.parent / "nvcc.profile")


class _NoAnswerError(Exception):
    """The dry run fails, so the cache keeps nothing; nvcc itself prints the reason when it runs."""


def _dry_run_command(command: Sequence[str]) -> tuple[str, ...]:
    target = _PLACEHOLDER.object
    return (*command, "--dryrun", "--keep", "--keep-dir", f"{target}.phases", "-c", _PLACEHOLDER.source, "-o", target)


def _dry_run_key(command: Sequence[str], order: BuildOrder) -> CacheKey:
    argv = _dry_run_command(command)
    return make_key("dryrun", ("name", "nvcc"), ("argv", argv), ("toolchain", order.toolchain.fingerprint))


@lru_cache(maxsize=8)
def _phases(text: str, cudafe: str, cicc: str, ptxas: str, fatbinary: str) -> UnitBuild | None:
    """Return the phases of the placeholder, once for all sources of a folder."""
    dry = parse_dryrun(text)
    tools = {"cudafe++": cudafe, "cicc": cicc, "ptxas": ptxas, "fatbinary": fatbinary}
    return None if dry is None else split_phases(dry, tools, _PLACEHOLDER, _MODULE_ID)


class NvccSteps(NamedTuple):
    """The steps of one nvcc call.

    Parameters
    ----------
    environ : mapping of str to str
        The variables that nvcc sets for its tools.
    commands : tuple of tuple of str
        Commands that nvcc would run, without shell quoting.
    """

    environ: Mapping[str, str]
    commands: tuple[tuple[str, ...], ...]


def parse_dryrun(text: str) -> NvccSteps | None:
    r"""Parse a dry run; None if a line is not understood.

    Parameters
    ----------
    text : str
        The standard output and error of ``nvcc --dryrun --keep …``.

    Examples
    --------
    >>> parse_dryrun('#$ CICC_PATH=/c/bin\n#$ "$CICC_PATH/cicc" -arch compute_90 "a.ii"\n').commands
    (('/c/bin/cicc', '-arch', 'compute_90', 'a.ii'),)
    """
    environ: dict[str, str] = {}
    commands = []
    for line in text.splitlines():
        if not line.startswith(_MARK):
            if line.strip():
                return None  # a warning or an error, which nvcc prints when it runs
            continue
        body = line.removeprefix(_MARK)
        assignment = _ASSIGNMENT.fullmatch(body)
        if assignment is not None:
            environ[assignment[1]] = assignment[2].strip()
            continue
        if body.startswith("--"):
            continue
        argv = _split(body, environ)
        if argv is None:
            return None
        commands.append(argv)
    return NvccSteps(environ=environ, commands=tuple(commands)) if commands else None


def _split(command: str, environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Split a shell command into arguments; None if the command uses more than quotes and known variables."""
    if any(name not in environ for name in _VARIABLE.findall(command)) or "`" in command:
        return None
    try:
        words = shlex.split(_VARIABLE.sub(lambda match: environ[match[1]], command))
    except ValueError:
        return None
    return None if any(word in {"|", ">", ";", "&&", "<"} for word in words) else tuple(words)


class _Step(NamedTuple):
    tool: Tool
    argv: tuple[str, ...]
    outputs: tuple[str, ...]


def split_phases(dry: NvccSteps, tools: Mapping[str, str], unit: UnitFiles, module_id: str) -> UnitBuild | None:
    """Return the commands of a dry run; None if a step is not understood.

    Parameters
    ----------
    dry : NvccSteps
        The dry run of ``nvcc --keep --keep-dir … -c source -o object``.
    tools : mapping of str to str
        The absolute paths of cudafe++, cicc, ptxas and fatbinary.
    unit : UnitFiles
        The unit's files, as the dry run spells them.
    module_id : str
        A C identifier that no other object of the library has.
    """
    commands = [argv for argv in dry.commands if argv[0] != "rm"]
    steps = [_step(argv, tools) for argv in commands]
    known = [step for step in steps if step is not None]
    kinds = {step.tool for step in known}
    if len(known) != len(steps) or not {"preprocess", "cudafe++", "cicc", "ptxas", "fatbinary", "compile"} <= kinds:
        return None
    *_, last = known
    id_file = _option(next(step.argv for step in known if step.tool == "cudafe++"), "--module_id_file_name")
    if last.tool != "compile" or last.outputs != (unit.object,) or id_file is None:
        return None
    fatbinary = next(step.argv for step in known if step.tool == "fatbinary")
    data, text = _option(fatbinary, "--create"), _option(fatbinary, "--embedded-fatbin")
    if data is None or text is None or not is_embeddable(data):
        return None
    made = {output for step in known for output in step.outputs}
    name = PurePath(unit.source).name
    *edges, compilation = (_edge(step, index, name, made) for index, step in enumerate(known))
    for index, edge in enumerate(edges):
        if edge.tool == "fatbinary":  # its text gets a different name, so that no command waits for it
            unread = f"{text}.unread"
            argv = tuple(part.replace(text, unread) for part in edge.argv)
            edges[index] = edge._replace(argv=argv, outputs=(data, unread))
    return UnitBuild(
        unit=unit,
        edges=(*edges, *_split_compilation(compilation, data, text)),
        files=(GeneratedFile(path=id_file, text=module_id), GeneratedFile(path=text, text=_STAND_IN % data)),
        library_path=dry.environ.get("LD_LIBRARY_PATH", ""),
    )


def _step(argv: tuple[str, ...], tools: Mapping[str, str]) -> _Step | None:
    name = PurePath(argv[0]).name
    if name in _OUTPUT_OPTIONS:
        tool, options = _OUTPUT_OPTIONS[name]
        # ``--stub_file_name`` of cicc and the name that cudafe++ includes are the same file below the folder.
        found = (_option(argv, option) for option in options)
        outputs = tuple(dict.fromkeys(output for output in found if output))
        arguments = tuple(argument for argument in argv[1:] if argument != "--gen_module_id_file")
        return _Step(tool, (tools[name], *arguments), outputs) if outputs else None
    output = _option(argv, "-o")
    if name in _FORBIDDEN or output is None or ("-E" in argv) == ("-c" in argv):
        return None
    return _Step("preprocess" if "-E" in argv else "compile", argv, (output,))


def _option(argv: Sequence[str], option: str) -> str | None:
    """Return the value of ``--option value`` or ``--option=value``; None if the option is missing."""
    for index, argument in enumerate(argv):
        if argument == option and index + 1 < len(argv):
            return argv[index + 1]
        if argument.startswith(f"{option}="):
            return argument.removeprefix(f"{option}=")
    return None


def _edge(step: _Step, index: int, source_name: str, made: set[str]) -> Edge:
    """Return a step's command; its inputs are the files of other steps that it names or includes."""
    # An argument may also be ``--image3=kind=elf,sm=90,file=a.cubin``.
    named = {argument.rpartition("file=")[2] for argument in step.argv} & made
    if step.tool == "compile":
        named |= {name for name in made if name.endswith(".stub.c")}  # included, and not named here
    depfile = f"{step.outputs[0]}.d" if step.tool == "preprocess" else None
    argv = (*step.argv, "-MD", "-MF", depfile) if depfile is not None else step.argv
    return Edge(
        argv=argv,
        inputs=tuple(sorted(named - set(step.outputs))),
        outputs=step.outputs,
        description=f"compiling {source_name} ({index + 1}: {step.tool})",
        tool=step.tool,
        depfile=depfile,
    )


def _split_compilation(compilation: Edge, data: str, text: str) -> tuple[Edge, Edge]:
    """Split the host compiler's command in two; only the second command waits for the device code in `data`."""
    (target,) = compilation.outputs
    assembly = str(PurePath(text).parent / f"{PurePath(target).stem}.s")
    argv = tuple({"-c": "-S", target: assembly}.get(part, part) for part in compilation.argv)
    inputs = tuple(name for name in compilation.inputs if name not in (data, text))
    machine = (part for part in compilation.argv if part.startswith(("-m", "-Wa,", "-I")))
    return (
        compilation._replace(argv=argv, inputs=inputs, outputs=(assembly,)),
        Edge(
            argv=(compilation.argv[0], *machine, "-c", assembly, "-o", target),
            inputs=(assembly, data),
            outputs=(target,),
            description=f"{compilation.description}, assembling",
            tool="assemble",
        ),
    )


def is_embeddable(path: str) -> bool:
    """Return whether a file with device code has a name that the assembler reads unchanged.

    Examples
    --------
    >>> is_embeddable("obj/k.fatbin"), is_embeddable('a"b')
    (True, False)
    """
    return bool(path) and not any(char in '"\\%\n' for char in path)


def rename(phases: UnitBuild, old: str, new: str) -> UnitBuild:
    """Return the phases of a dry run with another text in place of the placeholder for the source's name."""

    def renamed(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(text.replace(old, new) for text in texts)

    edges = tuple(
        edge._replace(
            argv=renamed(edge.argv),
            inputs=renamed(edge.inputs),
            outputs=renamed(edge.outputs),
            description=edge.description.replace(old, new),
            depfile=edge.depfile.replace(old, new) if edge.depfile is not None else None,
        )
        for edge in phases.edges
    )
    files = tuple(GeneratedFile(*renamed(file)) for file in phases.files)
    return phases._replace(unit=UnitFiles(*renamed(phases.unit)), edges=edges, files=files)
