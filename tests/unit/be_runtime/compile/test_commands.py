"""The commands of compilers and linkers with their options, and the graph of a build that runs them."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from be_runtime.compile import clang, codegen, flags, graph
from be_runtime.compile.plan import BuildPlan, Edge, UnitBuild, files_named, unit_files
from be_runtime.load.identity import portable_request
from be_runtime.request.build_tools import BuildTools
from be_runtime.request.options import BuildRequest, CompileOptions, Unit
from be_runtime.signature import SourceText
from be_runtime.store.index import Demand
from be_toolchain import ToolchainRequest, arch, resolve, values
from tests.support.machines import MemorySystem
from tests.unit.be_runtime.compile.codegen.golden_files import answer, check_golden, edges_text, shell_text

GOLDEN = Path(__file__).parent / "golden"
CXX = values.HostCompiler(Path("/usr/bin/g++"), "gcc", "12.2.0", "x86_64-linux-gnu", "PATH")
INCLUDES = ["-I", "/ours"]


@cache
def toolkit_of(kind: str) -> values.CudaToolkit:
    machine = MemorySystem(environ={"PATH": "/usr/bin:/usr/local/cuda/bin", "HOME": "/home/ada"})
    if kind == "nvcc":
        machine.gxx("/usr/bin/g++")
        machine.runfile("/usr/local/cuda")
    else:
        machine.clang("/usr/bin/clang++-19")
        machine.joined_cu12()
    found = resolve(ToolchainRequest(need_cuda=True), system=machine).cuda
    assert found is not None
    return found


def compiler(kind: str, archs: str = "8.0,9.0a", **changed: Any) -> graph.CudaCompiler:
    toolkit = toolkit_of(kind)
    toolkit = toolkit._replace(compiler=toolkit.compiler._replace(**changed))
    return graph.cuda_compiler(BuildTools(toolkit.host_compiler, toolkit, arch.parse_archs(archs), Path("/jaxlib")))


def words(make: Callable[..., Iterable[str] | None], *arguments: Any) -> str:
    """A command as the shell reads it, or why there is none."""
    return answer(lambda: shell_text(make(*arguments) or ("none",)))


OPTIONS: list[dict[str, Any]] = [
    {},
    *({"optimization_level": level} for level in range(3)),
    {"use_fast_math": True},
    {"native": "a1"},
    {"line_info": True},
    {"active": "positive"},
    {"sanitize": ("thread",)},
    {"sanitize": ("address", "undefined")},
    {"cflags": ("-std=c++20", "-O2", "-gencode=arch=compute_80,code=[sm_80,compute_80]"), "use_fast_math": True},
    {"cflags": ("-std=c++20", "-O0", "-fvisibility=default")},
    {"cflags": ("--std", "c++20", "--optimize=1", "-ccbin=/usr/bin/g++-11", "-arch", "sm_90")},
    {"cflags": ("-rdc=true", "-arch", "sm_90", "-DN=1")},
    {"cflags": ("-dlto",)},
    {"cflags": ("-dc", "-dlto", "-stdlib=libc++")},
    {"cflags": ("-rdc", "true")},
]


def test_options_in_every_compiler_s_command():
    """An author's flags win over ours, and nothing for finding faults is in an ordinary command."""
    lines = []
    for given in OPTIONS:
        options = CompileOptions(**given)
        lines += ["", *(f"{name}={value}" for name, value in given.items())]
        lines.append(f"g++: {words(flags.host_compile, CXX, options, INCLUDES)}")
        for kind in ("nvcc", "clang"):
            lines.append(f"{kind}: {words(compiler(kind).command, options, INCLUDES)}")
            lines.append(f"{kind} links device code: {words(compiler(kind).device_link, options)}")
    nvcc = compiler("nvcc", allow_unsupported_compiler=True).command(CompileOptions(), ())
    lines += ["", f"nvcc with another compiler: {shell_text(nvcc)}"]
    lines += ["", f"g++, the handler: {shell_text(flags.handler_compile(CXX, [Path('/jaxlib')]))}"]
    check_golden(GOLDEN / "compilers.txt", "\n".join(lines) + "\n")


NVCC_FLAGS = [
    "-DN=2 -I /a -include b.h -Wall -g",
    "--expt-relaxed-constexpr -extended-lambda -Xcudafe --diag_suppress=177 -t=4 -rdc=false",
    "-Xptxas=-v,-O2 -maxrregcount=64",
    "--compiler-options -Wall,-Wextra -Xcompiler \"'-D A=/my folder',-g\"",
    "-lineinfo --use_fast_math",
    "-G -resource-usage --disable-warnings",
    "-ftz=true -fmad=false -prec-div=true -prec-sqrt=false",
    "-prec-div=false -default-stream=legacy",
    "--std c++20 --optimize 2 --define-macro A=1 --include-path=/x",
    "-Werror all-warnings -Werror=reorder",
    "-arch=sm_90a -gencode arch=compute_90,code=compute_90",
    *("-DN=2 -rdc=true", "-dc", "-dlto", "-ccbin=/usr/bin/g++", "--default-stream=per-thread", "-code=sm_90", "--keep"),
    *("-ftz=maybe", "-arch=native", '-Xcompiler "\'-g"'),
]


def test_nvcc_s_flags_as_clang_takes_them_or_why_not():
    lines = (f"{given}\n  {words(clang.translate, shlex.split(given))}\n" for given in NVCC_FLAGS)
    check_golden(GOLDEN / "clang_flags.txt", "".join(lines))


SIDES: list[dict[str, Any]] = [
    {},
    {"cflags": ("-maxrregcount=64", "-Xptxas", "-v", "-Xcompiler", "-march=native", "-O2")},
    {"line_info": True, "cflags": ("-Xptxas=-O1",)},
]


def test_clang_compiles_both_sides_at_once_and_they_meet_in_the_object():
    """Each side is told what is its own, and both the same id."""
    packer, text = clang.Packer("/py/python", "/py/fatbin.py", "/usr/bin/objcopy"), ""
    for options in SIDES:
        command = compiler("clang", "8.0,9.0").command(CompileOptions(**options), INCLUDES)
        build = clang.split_clang(command, files_named("m", "cuda"), "/cuda/bin/ptxas", packer)
        assert [(file.path, file.text) for file in build.files] == [("obj/m.o.placeholder", "placeholder")]
        text += f"=== {options}\n{edges_text(build.edges)}"
    check_golden(GOLDEN / "clang_sides.txt", text)


def test_a_build_depends_on_the_nvcc_that_was_asked_and_a_preamble_is_for_gcc_behind_it():
    host, order = CXX._replace(family="clang"), Mock()  # which is not looked at
    for kind in ("nvcc", "clang"):
        nvcc = Path("/usr/local/cuda/bin/nvcc")
        assert compiler(kind).phase_inputs() == ((nvcc, nvcc.parent / "nvcc.profile") if kind == "nvcc" else ())
        assert compiler(kind, host=host).preamble(("nvcc",), order) is None


def test_folders_are_named_once_and_in_order():
    paths = [Path(path) for path in ("/a", "/b", "/a")]
    assert flags.include_flags(paths, [Path("/b"), Path("/c")]) == ("-I", "/a", "-I", "/b", "-isystem", "/c")


LINKS: list[tuple[str, dict[str, str], str]] = [
    *((given, {}, "") for given in ("-lm", "-l m", "-l:libm.so.6", "-rpath=/a,b", "-rpath $ORIGIN", "-l", "-Xlinker")),
    *((given, {}, "") for given in ("-Wl,-rpath,/a -Xlinker -lfoo", "/x/a.so.1 /y/b.so -rpath=/first /x/c.so /x/d.a")),
    *((given, {}, "") for given in ("/x/a.so -rpath=", "/cuda/lib64/stubs/libcuda.so", "relative/a.so /x/lib.so.old")),
    ("-L/own -lfoo", {"/own": "libfoo.so libfoo.so.2"}, ""),
    ("-L/own -lfoo", {"/own": "libfoo.a libfoo.so.2"}, ""),
    ("-L /own -l foo", {"/own": "libfoo.so.2"}, ""),
    ("-lfoo -L/own", {"/own": "libfoo.so.9 libfoo.so.10"}, ""),
    ("-lfoo", {"/cuda": "libfoo.so.13 libfoo.so.13.0.1"}, "/cuda"),
    ("-lfoo", {"/cuda": "libfoo.so"}, "/cuda"),
    ("-lfoo", {"/cuda": "libfoo.so.1-gdb.py libfoobar.so.1 libfoo.so.x"}, "/cuda"),
    ("-L/own -lfoo", {"/own": "libfoo.so", "/cuda": "libfoo.so.1"}, "/cuda"),
    ("-lfoo -rpath= -L/own", {"/own": "libfoo.so.1"}, ""),
    ("-lc++", {"/cuda": "libc++.so.1"}, "/cuda"),
]


def test_libraries_are_found_by_the_linker_and_by_the_loader():
    text = ""
    for given, folders, library_dirs in LINKS:
        listed = defaultdict(tuple, {Path(folder): tuple(names.split()) for folder, names in folders.items()})
        found = flags.link_flags(given.split(), [Path(each) for each in library_dirs.split()], listed.__getitem__)
        text += f"{given}, {folders}, {library_dirs}\n  {shlex.join(found)}\n"
    for toolkit, ldflags in ((None, ("-lm",)), (None, ("-fsanitize=address",)), (toolkit_of("nvcc"), ())):
        command = flags.link(CXX, toolkit, ldflags, [Path("/cuda/lib")], lambda path: ())
        text += f"{shlex.join(command.head)} OBJECTS {shlex.join(command.tail)}\n"
    check_golden(GOLDEN / "links.txt", text)


TOOLS = BuildTools(cxx=CXX, cuda=None, archs=(), ffi_include=Path("/jaxlib/include"))
LINK = flags.LinkCommand(head=("ld",), tail=("-lm",))


def units_of(*stems: str, inline: bool = False) -> tuple[BuildRequest, dict[str, UnitBuild]]:
    source = "// @BE f\nvoid f(BE::Tensor out) {}\n"
    given = tuple(
        Unit(stem, (SourceText(f"/{stem}.cc", source),), None if inline else Path(f"/src/{stem}.cc")) for stem in stems
    )
    request = BuildRequest("m", "cpp", given, None, CompileOptions())
    return request, graph.plan_units(request, codegen.bind(request), graph.compile_command(request, TOOLS))


def plan_of(*stems: str, handler: str | None = None, inline: bool = False) -> BuildPlan:
    request, units = units_of(*stems, inline=inline)
    return graph.plan_build(request, units, TOOLS, LINK, handler)


def with_a_unit_in_its_place() -> BuildPlan:
    request, units = units_of("a", "b")
    units["a"] = units["a"]._replace(edges=(), files=())
    return graph.plan_build(request, units, TOOLS, LINK, "/cache/handler.o")


def test_plans_of_builds():
    one, odd = "--localize-symbol=_Z4helpv", "--redefine-sym=odd name=odd name.0"
    private = {"obj/a.o": [one, odd], "obj/c.o": [one]}
    plans = {
        "one source and the handler": plan_of("k"),
        "a text, and a handler that is there": plan_of("k", handler="/cache/handler.o", inline=True),
        "private names": graph.with_private_names(plan_of("a", "b", "c"), "/bin/objcopy", private, LINK),
        "a unit that is in its place": with_a_unit_in_its_place(),
        "a launcher before compilers": graph.with_compiler_launcher(plan_of("a"), ("ccache", "--quiet")),
    }
    text = ""
    for title, plan in plans.items():
        heads = "".join(f"{file.path}: {file.text.partition('BE_')[0]}..\n" for file in plan.files)
        text += f"=== {title}\n{heads}{edges_text(plan.commands)}objects: {' '.join(plan.objects)}\n"
    check_golden(Path(__file__).parent / "golden" / "plans.txt", text)


def test_all_units_begin_before_one_goes_on_and_the_longest_begins_first():
    units = tuple(
        Unit(stem=stem, sources=(SourceText(name=stem, text="x" * length),), path=Path(f"/{stem}.cc"))
        for stem, length in (("a", 5), ("b", 9), ("c", 7))
    )

    def steps(stem: str, count: int) -> UnitBuild:
        edges = (Edge(("cc",), (), (f"{stem}{step}",), "", "compile") for step in range(count))
        return UnitBuild(unit_files(stem, "cpp"), tuple(edges))

    request = units_of("k")[0]._replace(units=units)
    plan = graph.plan_build(request, {"a": steps("a", 3), "b": steps("b", 1), "c": steps("c", 2)}, TOOLS, LINK, "h.o")
    assert [edge.outputs[0] for edge in plan.commands] == ["b0", "c0", "a0", "c1", "a1", "a2", "module.so"]


@pytest.mark.parametrize(
    "stems", [("a b", "a_b", "a|b"), ("be_handler", "be_device_link"), ("k.cc", "k"), ("ä", "a\udcff", "$x", "a'b")]
)
def test_files_of_a_build_have_plain_names_of_their_own(stems: tuple[str, ...]):
    plan = plan_of(*stems)
    outputs = [output for edge in plan.commands for output in edge.outputs]
    assert len(set(outputs)) == len(stems) + 2
    names = [Path(path).name for path in (*outputs, *(file.path for file in plan.files))]
    assert all(name.replace(".", "").replace("_", "").replace("-", "").isascii() for name in names)
    assert not any(set(name) & set(" |$'\"") for name in names)


def test_the_compilers_phases_take_the_place_of_the_whole_command():
    request, whole = units_of("a", "b")
    phases = UnitBuild(whole["a"].unit, whole["b"].edges)
    units = graph.plan_units(request, codegen.bind(request), ("c++",), {"a": phases})
    assert (units["a"].edges, units["a"].files) == (phases.edges, whole["a"].files)
    assert units["b"].edges[0].argv[0] == units["a"].command[0] == "c++"


@pytest.mark.parametrize(("ldflags", "is_whole"), [((), True), (("-lfoo",), False)])
def test_a_unit_is_the_whole_program_for_other_machines_too(ldflags: tuple[str, ...], *, is_whole: bool):
    """So a call costs the same there. A library of the author's may call the unit."""
    request = units_of("k")[0]._replace(compile=CompileOptions(ldflags=ldflags))
    for each in (request, portable_request(request, Demand("x86-64-v3", ()))):
        assert ("-fwhole-program" in graph.compile_command(each, TOOLS)) is is_whole
