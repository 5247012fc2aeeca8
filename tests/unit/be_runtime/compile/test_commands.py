"""Options as the commands of compilers and linkers: g++, nvcc and clang, and what clang makes of nvcc's flags."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from be_runtime.compile.clang.clang_flags import translate
from be_runtime.compile.clang.plan_clang import Packer, split_clang
from be_runtime.compile.cuda_compiler import CudaCompiler, cuda_compiler
from be_runtime.compile.plan import flags
from be_runtime.compile.plan.libraries import link_flags
from be_runtime.compile.plan.unit_files import files_named
from be_runtime.request.options import CompileOptions
from be_runtime.request.tools import Tools
from be_toolchain import ToolchainRequest, resolve
from be_toolchain.arch import parse_archs
from be_toolchain.model import ClangCuda, CudaToolkit, HostCompiler, Toolchain
from tests.support.machines import MemorySystem
from tests.unit.be_runtime.generate.golden_files import answer, check_golden, edges_text, shell_text

GOLDEN = Path(__file__).parent / "golden"
CXX = HostCompiler(Path("/usr/bin/g++"), "gcc", "12.2.0", "x86_64-linux-gnu", "PATH")
INCLUDES = ["-I", "/ours"]


@cache
def toolkit_of(kind: str) -> CudaToolkit:
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


def compiler(kind: str, archs: str = "8.0,9.0a", **changed: Any) -> CudaCompiler:
    toolkit = toolkit_of(kind)
    toolkit = toolkit._replace(compiler=toolkit.compiler._replace(**changed))
    return cuda_compiler(Tools(toolkit.host_compiler, toolkit, parse_archs(archs), Path("/jaxlib")))


def words(make: Callable[..., Iterable[str] | None], *arguments: Any) -> str:
    """A command as the shell reads it, or why there is none."""
    return answer(lambda: shell_text(make(*arguments) or ("none",)))


OPTIONS: list[dict[str, Any]] = [
    {},
    *({"optimization_level": level} for level in range(3)),
    {"use_fast_math": True},
    {"native": "a1"},
    {"line_info": True},
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
    lines = (f"{given}\n  {words(translate, shlex.split(given))}\n" for given in NVCC_FLAGS)
    check_golden(GOLDEN / "clang_flags.txt", "".join(lines))


SIDES: list[dict[str, Any]] = [
    {},
    {"cflags": ("-maxrregcount=64", "-Xptxas", "-v", "-Xcompiler", "-march=native", "-O2")},
    {"line_info": True, "cflags": ("-Xptxas=-O1",)},
]


def test_clang_compiles_both_sides_at_once_and_they_meet_in_the_object():
    """Each side is told what is its own, and both the same id."""
    packer, text = Packer("/py/python", "/py/fatbin.py", "/usr/bin/objcopy"), ""
    for options in SIDES:
        command = compiler("clang", "8.0,9.0").command(CompileOptions(**options), INCLUDES)
        build = split_clang(command, files_named("m", "cuda"), "/cuda/bin/ptxas", packer)
        assert [(file.path, file.text) for file in build.files] == [("obj/m.o.placeholder", "placeholder")]
        text += f"=== {options}\n{edges_text(build.edges)}"
    check_golden(GOLDEN / "clang_sides.txt", text)


def test_the_key_knows_clang_and_the_wheels():
    toolkit = toolkit_of("clang")
    parts = toolkit.components
    changed = [
        toolkit,
        toolkit._replace(compiler=ClangCuda(toolkit.host_compiler._replace(version="20.1.0"))),
        toolkit._replace(root=Path("/other")),
        *(
            toolkit._replace(components=(*parts[:i], part._replace(version=f"{part.version}.1"), *parts[i + 1 :]))
            for i, part in enumerate(parts)
        ),
    ]
    assert len({Toolchain(cuda=each).fingerprint for each in changed}) == len(changed)


def test_a_build_depends_on_the_nvcc_that_was_asked():
    nvcc = toolkit_of("nvcc").nvcc
    assert nvcc is not None
    assert compiler("nvcc").asked() == (nvcc, nvcc.parent / "nvcc.profile")
    assert compiler("clang").asked() == ()


def test_a_preamble_is_for_gcc_behind_nvcc():
    host = HostCompiler(Path("/usr/bin/clang++"), "clang", "19.1.7", "x86_64-linux-gnu", "PATH")
    order: Any = None  # which is not looked at
    for kind in ("nvcc", "clang"):
        assert compiler(kind, host=host).preamble(("nvcc",), order) is None


def test_folders_are_named_once_and_in_order():
    paths = [Path(path) for path in ("/a", "/b", "/a")]
    assert flags.include_flags(paths, [Path("/b"), Path("/c")]) == ("-I", "/a", "-I", "/b", "-isystem", "/c")


LINKS: list[tuple[str, dict[str, str], str]] = [
    *((given, {}, "") for given in ("-lm", "-l m", "-l:libm.so.6", "-rpath=/a,b", "-rpath $ORIGIN", "-l", "-Xlinker")),
    ("-Wl,-rpath,/a -Xlinker -lfoo /x/lib.so", {}, ""),
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
        found = link_flags(given.split(), [Path(each) for each in library_dirs.split()], listed.__getitem__)
        text += f"{given}, {folders}, {library_dirs}\n  {shlex.join(found)}\n"
    for toolkit, ldflags in ((None, ("-lm",)), (None, ("-fsanitize=address",)), (toolkit_of("nvcc"), ())):
        command = flags.link(CXX, toolkit, ldflags, [Path("/cuda/lib")], lambda path: ())
        text += f"{shlex.join(command.head)} OBJECTS {shlex.join(command.tail)}\n"
    check_golden(GOLDEN / "links.txt", text)
