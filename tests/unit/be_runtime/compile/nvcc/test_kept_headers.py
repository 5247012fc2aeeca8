"""Headers kept as text and macros: what is written down, and when it may not be used."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from be_runtime.compile.nvcc.plan_headers import (
    are_left,
    checks,
    header_macros,
    headers_text,
    is_shadowed,
    is_understood,
    names_in_headers,
    preprocessing,
    probes,
    use_kept_headers,
)
from be_runtime.compile.plan.build_plan import Edge, UnitBuild
from be_runtime.compile.plan.unit_files import files_named

GCC12 = '# 0 "src/k.cu"\n# 0 "<built-in>"\n# 1 "/cuda/a.h" 1\nint a;\n# 0 "<command-line>" 2\n# 1 "src/k.cu"\n\n'
GCC10 = GCC12.replace("# 0", "# 1").replace('# 1 "<command-line>" 2', '# 1 "<command-line>" 2\n')


@pytest.mark.parametrize("preprocessed", [GCC12, GCC10])
def test_the_text_is_all_between_the_two_lines_that_name_the_source(preprocessed: str):
    text = headers_text(preprocessed, "src/k.cu")
    assert text is not None
    first, rest = preprocessed.split("\n", 1)
    assert f'{first}\n{text}# 1 "src/k.cu"\n\n' == f"{first}\n{rest}"


@pytest.mark.parametrize(
    "preprocessed",
    [
        pytest.param(GCC12.replace('# 1 "src/k.cu"', '# 1 "src/other.cu"'), id="no line of the source's own"),
        pytest.param(f"{GCC12}int own;\n", id="the source is not empty"),
        pytest.param(GCC12.replace("int a;", 'const char* a = "src/k.cu";'), id="the source's name in the text"),
        pytest.param(GCC12.replace("int a;", '# 1 "/build/here//"\nint a;'), id="the build's folder, as by -g"),
        pytest.param(GCC12.replace("int a;", 'auto a = R"(\n#define B\n)";'), id="what looks like a macro"),
        pytest.param("", id="empty"),
    ],
)
def test_text_that_is_not_of_the_headers_alone_is_not_kept(preprocessed: str):
    assert headers_text(preprocessed, "src/k.cu") is None


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


def test_macros_are_kept_in_order_at_their_places():
    assert header_macros(DEFINES) == (
        '# 2 "/usr/include/x.h" 3\n#define A 1\n#define B(x) (x)\n# 6 "/usr/include/x.h" 3\n#undef A\n'
        '# 9 "/cuda/c.h"\n#define C "a\x0cb\u2028"\n'
    )


@pytest.mark.parametrize(
    ("found", "are"),
    [
        ('#define GIVEN 1\n#define __GNUC__ 12\n#define B(x) (x)\n#define C "a\x0cb\u2028"\n#define GIVEN_TOO\n', True),
        ("#define MORE\n", False),
    ],
)
def test_macros_that_are_read_back_are_the_same(found: str, are: bool):
    complete = '#define GIVEN 1\n#define __GNUC__ 12\n#define B(x) (x)\n#define C "a\x0cb\u2028"\n#define GIVEN_TOO\n'
    assert are_left(DEFINES, found if are else f"{complete}#define A 1\n") is are
    assert not are_left(DEFINES, found.replace("(x) (x)", "(x) x"))
    assert not are_left(DEFINES, "")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('#if __has_include(<tbb/tbb.h>) && __has_include( "a.h" )\n#endif // __has_include', ("tbb/tbb.h", "a.h")),
        ("#if defined(__has_include)\nint once;", ()),
        ("#if __has_include(NAME)", None),
        ("  #  pragma once", None),
        ("int a = __COUNTER__;", None),
        ("/* licence */ #pragma once", None),
        ('_Pragma("once")', None),
        ('#pragma push_macro("A")', None),
        ("const char* a = __DATE__;", None),
    ],
)
def test_headers_that_leave_more_than_text_and_macros_are_not_kept(text: str, names: tuple[str, ...] | None):
    assert names_in_headers(["int a;", text]) == names


@pytest.mark.parametrize(
    ("flags", "understood"),
    [
        (["-I/a", "-I", "/b", "-isystem", "/a", "-isystem/b", "-DX=-I/c", "-MD", "-MF", "k.d", "-m64"], True),
        (["-I/c"], False),
        (["-isystem", "/c"], False),
        (["-include", "mine.h"], False),
        (["-includemine.h"], False),
        (["-imacros", "mine.h"], False),
        (["-iquote", "/a"], False),
        (["--include-directory=/a"], False),
        (["--sysroot=/r"], False),
        (["-nostdinc++"], False),
        (["@more"], False),
        (["-finput-charset=latin1"], False),
        (["-MMD"], False),
    ],
)
def test_commands_that_may_read_other_headers_are_not_understood(flags: list[str], understood: bool):
    argv = ["/usr/bin/g++", "-E", *flags, "-include", "cuda_runtime.h", "src/k.cu"]
    assert is_understood(argv, {"/a", "/b"}.__contains__) is understood


@pytest.mark.parametrize(
    ("files", "shadowed"),
    [
        pytest.param(["/mine/math.h"], True, id="a system header's name"),
        pytest.param(["/mine/crt/device.h"], True, id="a header of the toolkit's, in a folder"),
        pytest.param(["/mine/device.h"], True, id="the end of a name"),
        pytest.param(["/mine/mine.h", "/mine/bits/other.h", "/mine/include/mine.h"], False, id="other names"),
        pytest.param(["/mine/cuda/include/crt/device.h"], False, id="itself, by a link"),
        pytest.param(["/mine/cuda/include/crt/device.h", "/mine/crt/device.h"], True, id="itself and another"),
    ],
)
def test_a_folder_that_may_hold_another_header_is_noticed(files: list[str], shadowed: bool):
    headers = ["/cuda/include/crt/device.h", "/usr/include/math.h", "/usr/include/c++/12/bits/x.h"]

    def list_dir(folder: str) -> set[str]:
        inside = f"{PurePath(folder)}/"
        return {path.removeprefix(inside).split("/")[0] for path in files if path.startswith(inside)}

    def stat(path: PurePath) -> str | None:
        return str(path).replace("/mine/cuda", "/cuda") if str(path) in [*files, *headers] else None

    folders = ("/empty", "/mine/")
    assert is_shadowed(folders, headers, list_dir, stat) is shadowed


COMPILE = Edge(("g++", "-c", "src/k.cu", "-o", "obj/k.o"), (), ("obj/k.o",), "compile", "compile", "obj/k.o.d")
HOST, DEVICE = (
    Edge(
        ("g++", "-E", "-O3", "src/k.cu", "-o", f"obj/p/k{phase}", "-MD", "-MF", f"obj/p/k{phase}.d"),
        *((), (f"obj/p/k{phase}",), phase, "preprocess", f"obj/p/k{phase}.d"),
    )
    for phase in (".cpp4.ii", ".compute_90.cpp1.ii")
)
PHASES = UnitBuild(files_named("k", "cuda"), edges=(HOST, DEVICE, COMPILE))


def test_only_the_phases_that_are_kept_change():
    used = use_kept_headers(PHASES, "/s.sh", "/kept", [".compute_90.cpp1.ii", ".cpp1.ii"])
    assert (used.edges[0], used.edges[2]) == (HOST, COMPILE)
    output = "obj/p/k.compute_90.cpp1.ii"
    assert used.edges[1] == DEVICE._replace(
        argv=(
            *("/bin/sh", "/s.sh", "/kept", ".compute_90.cpp1.ii", "src/k.cu", output),
            *("g++", "-E", "-O3", "src/k.cu", "-MD", "-MF", f"{output}.d"),
        )
    )
    assert use_kept_headers(PHASES, "/s.sh", "/kept", []) == PHASES


def test_each_preprocessor_is_run_as_it_is_and_for_its_macros():
    assert list(preprocessing(PHASES)) == [".cpp4.ii", ".compute_90.cpp1.ii"]
    as_it_is, macros, *_ = probes(PHASES, "there")
    assert as_it_is == HOST.argv
    assert macros == (*HOST.argv[:4], *HOST.argv[6:], "-dD", "-o", "there/defines.cpp4.ii")


def test_each_preprocessor_is_asked_which_macros_it_reads_back():
    host, device = checks(preprocessing(PHASES), "there")
    assert host.argv[-5:] == ("-dM", "-imacros", "there/headers.cpp4.ii.macros", "-o", "there/check.cpp4.ii")
    assert device.outputs == ("there/check.compute_90.cpp1.ii",)
