"""Nvcc's dry run taken apart into commands that run at once, and what they take that is kept of headers."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

import be_runtime
from be_runtime.compile import nvcc, nvcc_preamble, plan
from tests.unit.be_runtime.compile.codegen.golden_files import check_golden, edges_text

RECORDED = Path(__file__).parent / "recorded"
TOOLS = {name: f"/opt/cuda/bin/{name}" for name in ("cudafe++", "cicc", "ptxas", "fatbinary")}


def split(text: str) -> plan.UnitBuild | None:
    dry = nvcc.parse_dryrun(text)
    return None if dry is None else nvcc.split_phases(dry, TOOLS, plan.files_named("k", "cuda"), "_1_k_cu_2")


def recorded(name: str) -> plan.UnitBuild:
    phases = split((RECORDED / f"{name}.txt").read_text())
    assert phases is not None
    return phases


@pytest.mark.parametrize("name", ["cuda13_one", "cuda13_two"])
def test_the_commands_of_the_phases(name: str):
    """Preprocessors list what they read, tools are called by their own path, the module id is given, not invented."""
    phases = recorded(name)
    files = "".join(f"file {file.path}\n{file.text}\n" for file in phases.files)
    text = f"library path {phases.library_path}\n{files}{edges_text(phases.edges)}"
    check_golden(RECORDED / f"{name}_phases.txt", text)


def test_commands_with_kept_headers_and_a_kept_beginning():
    phases = recorded("cuda13_one")
    with_headers = nvcc_preamble.use_kept_headers(phases, "/s.sh", "/kept", [".cpp1.ii", ".other.ii"])
    with_preamble = nvcc_preamble.use_preamble(phases, "/s.sh", "/kept")
    assert nvcc_preamble.use_kept_headers(phases, "/s.sh", "/kept", []) == phases
    changed = [edge for build in (with_headers, with_preamble) for edge in build.edges if edge not in phases.edges]
    asked = "".join(f"{shlex.join(argv)}\n" for argv in nvcc_preamble.probes(phases))
    text = f"{edges_text(changed)}{asked}{edges_text(nvcc_preamble.checks(nvcc_preamble.preprocessing(phases)))}"
    making = nvcc_preamble.make_preamble(phases, ["-I/opt/cuda/bin/../targets/x86_64-linux/include"])
    check_golden(RECORDED / "cuda13_one_kept.txt", f"{text}{edges_text(making.edges)}{making.files[-1].text}")


def test_a_failing_compiler_leaves_no_preamble_and_no_failure(tmp_path: Path):
    making = nvcc_preamble.make_preamble(recorded("cuda13_one"), ["-I/mine"])
    for file in making.files:
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
    (edge,) = making.edges
    done = subprocess.run(edge.argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
    assert (tmp_path / edge.outputs[0]).is_file()
    assert not list(tmp_path.rglob("*.gch"))


def test_a_path_that_an_assembler_misreads_runs_nvcc_as_a_whole():
    assert nvcc.is_embeddable("obj/k.fatbin")
    assert not any(map(nvcc.is_embeddable, ('a"b', "a\\b", "a%sb", "")))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: text.replace("cudafe++ ", "cudafe99 "), "a tool of another name"),
        (lambda text: text.replace("#$ ptxas", "#$ nvlink"), "a step that is not expected"),
        (lambda text: text.replace("$CICC_PATH", "$SOMETHING"), "a variable that is not set"),
        (lambda text: text + "nvcc warning : something\n", "a message among the steps"),
        (lambda text: text.replace("--module_id_file_name", "--id_file"), "no module id"),
        (lambda text: text.replace('-o "obj/k.o"', '-o "obj/other.o"'), "another object"),
        (lambda text: text.replace("#$ ptxas", "#$ ptxas 'unclosed"), "quotes that do not close"),
        (lambda text: text.replace("#$ ptxas", "#$ true && ptxas"), "more of a shell than arguments"),
        (lambda text: "", "nothing"),
    ],
)
def test_what_is_not_understood_runs_nvcc_as_a_whole(damage: Callable[[str], str], why: str):
    text = (RECORDED / "cuda13_one.txt").read_text()
    assert damage(text) != text
    assert split(damage(text)) is None, why


def test_renaming_reaches_every_name():
    renamed = nvcc.rename(recorded("cuda13_one"), "k", "kernel")
    assert renamed.unit == plan.files_named("kernel", "cuda")
    assert renamed.edges[-1].outputs == ("obj/kernel.o",)
    assert all("kernel" in output for edge in renamed.edges for output in edge.outputs)


GCC12 = '# 0 "src/k.cu"\n# 0 "<built-in>"\n# 1 "/cuda/a.h" 1\nint a;\n# 0 "<command-line>" 2\n# 1 "src/k.cu"\n\n'
GCC10 = GCC12.replace("# 0", "# 1").replace('# 1 "<command-line>" 2', '# 1 "<command-line>" 2\n')


def test_the_text_is_all_between_the_two_lines_that_name_the_source():
    for preprocessed in (GCC12, GCC10):
        first, rest = preprocessed.split("\n", 1)
        assert f'{nvcc_preamble.headers_text(preprocessed, "src/k.cu")}# 1 "src/k.cu"\n\n' == rest, first


NOT_KEPT = {
    "no line of the source's own": GCC12.replace('# 1 "src/k.cu"', '# 1 "src/other.cu"'),
    "the source is not empty": f"{GCC12}int own;\n",
    "the source's name in the text": GCC12.replace("int a;", 'const char* a = "src/k.cu";'),
    "the build's folder, as by -g": GCC12.replace("int a;", '# 1 "/build/here//"\nint a;'),
    "what looks like a macro": GCC12.replace("int a;", 'auto a = R"(\n#define B\n)";'),
    "empty": "",
}


def test_text_that_is_not_of_the_headers_alone_is_not_kept():
    assert [why for why, text in NOT_KEPT.items() if nvcc_preamble.headers_text(text, "src/k.cu") is not None] == []


DEFINES = """\
# 0 "<built-in>"
#define __GNUC__ 12
# 0 "<command-line>"
#define GIVEN 1
# 1 "/usr/include/x.h" 1 3 4

#define A 1
#define B(x) (x)

int a;
#undef A
# 9 "/cuda/c.h" 2
#define C "a\x0cb\u2028"
#pragma GCC diagnostic pop
# 0 "<command-line>" 2
#define GIVEN_TOO
# 1 "src/k.cu"
"""


def test_macros_are_kept_in_order_at_their_places_and_read_back():
    assert nvcc_preamble.header_macros(DEFINES) == (
        '# 2 "/usr/include/x.h" 3\n#define A 1\n#define B(x) (x)\n# 6 "/usr/include/x.h" 3\n#undef A\n'
        '# 9 "/cuda/c.h"\n#define C "a\x0cb\u2028"\n'
    )
    left = '#define GIVEN 1\n#define __GNUC__ 12\n#define B(x) (x)\n#define C "a\x0cb\u2028"\n#define GIVEN_TOO\n'
    assert nvcc_preamble.are_left(DEFINES, left)
    assert not nvcc_preamble.are_left(DEFINES, f"{left}#define A 1\n")
    assert not nvcc_preamble.are_left(DEFINES, left.replace("(x) (x)", "(x) x"))
    assert not any(nvcc_preamble.are_left(DEFINES, found) for found in ("#define MORE\n", ""))


LEFT: dict[str, tuple[str, ...] | None] = {
    '#if __has_include(<tbb/tbb.h>) && __has_include( "a.h" )\n#endif // __has_include': ("tbb/tbb.h", "a.h"),
    "#if defined(__has_include)\nint once;": (),
    **dict.fromkeys(("#if __has_include(NAME)", "int a = __COUNTER__;", "const char* a = __DATE__;")),
    **dict.fromkeys(("  #  pragma once", "/* licence */ #pragma once", '_Pragma("once")', '#pragma push_macro("A")')),
}


def test_headers_that_leave_more_than_text_and_macros_are_not_kept():
    assert {text: nvcc_preamble.names_in_headers(["int a;", text]) for text in LEFT} == LEFT


def test_commands_that_may_read_other_headers_are_not_understood():
    def understood(flags: str) -> bool:
        argv = ["/usr/bin/g++", "-E", *flags.split(), "-include", "cuda_runtime.h", "src/k.cu"]
        return nvcc_preamble.is_understood(argv, {"/a", "/b"}.__contains__)

    assert understood("-I/a -I /b -isystem /a -isystem/b -DX=-I/c -MD -MF k.d -m64")
    refused = "-I/c|-isystem /c|-include mine.h|-includemine.h|-imacros mine.h|-iquote /a|--include-directory=/a|"
    refused += "--sysroot=/r|-nostdinc++|@more|-finput-charset=latin1|-MMD"
    assert [flags for flags in refused.split("|") if understood(flags)] == []


@pytest.mark.parametrize(
    ("files", "shadowed", "why"),
    [
        (["/mine/math.h"], True, "a system header's name"),
        (["/mine/crt/device.h"], True, "a header of the toolkit's, in a folder"),
        (["/mine/device.h"], True, "the end of a name"),
        (["/mine/mine.h", "/mine/bits/other.h", "/mine/include/mine.h"], False, "other names"),
        (["/mine/cuda/include/crt/device.h"], False, "itself, by a link"),
        (["/mine/cuda/include/crt/device.h", "/mine/crt/device.h"], True, "itself and another"),
    ],
)
def test_a_folder_that_may_hold_another_header_is_noticed(files: list[str], shadowed: bool, why: str):
    headers = ["/cuda/include/crt/device.h", "/usr/include/math.h", "/usr/include/c++/12/bits/x.h"]

    def list_dir(folder: str) -> set[str]:
        paths = (PurePath(path) for path in files)
        return {path.relative_to(folder).parts[0] for path in paths if path.is_relative_to(folder)}

    def stat(path: str) -> str | None:
        return path.replace("/mine/cuda", "/cuda") if path in [*files, *headers] else None

    assert nvcc_preamble.is_shadowed(("/empty", "/mine/"), headers, list_dir, stat) is shadowed, why


PREAMBLE = '#pragma GCC diagnostic ignored "-Wx"\n# 1 "/cuda/cuda_runtime.h"\nint a;\nint b;\n'
WHOLE = f'# 1 "k.cu"\n{PREAMBLE}# 4 "k.cu"\nint mine;\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "preamble.h").write_text(PREAMBLE)
    (tmp_path / "pragmas.h").write_text('#pragma GCC diagnostic ignored "-Wx"\n')
    (tmp_path / "size").write_text(f"{len(PREAMBLE)}\n")
    return tmp_path


def compile_with(folder: Path, whole: str, path: str = os.environ["PATH"]) -> tuple[list[str], str]:
    """What the compiler is given by the script: its arguments, and the text of the file it is to compile."""
    (folder / "k.cpp").write_text(whole)
    script = Path(be_runtime.__file__).parent / "native" / "with_preamble.sh"
    argv = ["/bin/sh", str(script), str(folder), str(folder / "k.cpp"), "/bin/echo", "-O3", "-c", "-o", "k.o"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path})
    arguments = done.stdout.split()
    return arguments, Path(arguments[-1]).read_text()


def test_the_same_beginning_comes_from_the_header(folder: Path):
    arguments, text = compile_with(folder, WHOLE)
    header, pragmas = str(folder / "preamble.h"), str(folder / "pragmas.h")
    given = ["-iquote", str(folder), "-include", header, "-include", pragmas, "-x", "c++"]
    assert arguments[:-1] == ["-O3", "-c", "-o", "k.o", *given]
    assert text == '# 1 "k.cu"\n# 4 "k.cu"\nint mine;\n'


def test_anything_else_is_compiled_as_it_is(folder: Path):
    asis = ["-O3", "-c", "-o", "k.o", "-x", "c++", str(folder / "k.cpp")]
    for whole in (WHOLE.replace("int b", "int c"), f'# 1 "k.cu"\n{PREAMBLE[:-5]}', ""):
        assert compile_with(folder, whole) == (asis, whole)
    assert compile_with(folder, WHOLE, path=str(folder / "nothing")) == (asis, WHOLE), "without the programs"
    (folder / "preamble.h").unlink()
    assert compile_with(folder, WHOLE) == (asis, WHOLE), "a lost header"
