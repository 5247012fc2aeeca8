"""The first real error in what compilers and linkers print, and what is said about it."""

from __future__ import annotations

import textwrap

import pytest

from be_runtime.build.diagnose import Diagnosis, diagnose

SOURCE = "// one\nvoid f(BE::Tensor out) { nonsense(); }\n\tint x = ä + oops;\n"


def look(output: str, *calls: tuple[str, int]) -> Diagnosis:
    return diagnose(textwrap.dedent(output).lstrip("\n"), {"m": SOURCE}, calls)


def test_gcc_of_an_inline_source_gets_its_line_and_a_caret():
    found = look("m: In function 'void f()':\nm:2:26: error: 'nonsense' was not declared in this scope\n")
    assert found.first_error.splitlines() == [
        "m:2:26: error: 'nonsense' was not declared in this scope",
        "    2 | void f(BE::Tensor out) { nonsense(); }",
        "      |                          ^",
    ]


def test_a_caret_stands_under_its_column_whatever_comes_before():
    """Gcc counts bytes; tabs and letters of two bytes stand before this one."""
    shown = look("m:3:15: error: 'oops' was not declared\n").first_error.splitlines()
    assert shown[1].index("oops") == shown[2].index("^")


def test_gcc_s_own_excerpt_is_kept():
    output = """
    /src/k.cc:3:5: error: expected ';'
        3 |     int x
          |     ^
          |     ;
    /src/k.cc:9:1: error: later
    """
    assert look(output).first_error.splitlines() == [
        "/src/k.cc:3:5: error: expected ';'",
        "    3 |     int x",
        "      |     ^",
        "      |     ;",
    ]


def test_warnings_and_notes_are_no_errors():
    output = """
    In file included from m:1:
    /a.h:3:1: warning: error: not really an error
    /a.h:4:1: note: error-free
    m:2:1: fatal error: no_such.h: No such file or directory
    compilation terminated.
    """
    found = look(output)
    assert found.first_error.startswith("m:2:1: fatal error: no_such.h")
    assert "terminated" not in found.first_error.splitlines()[0]


def test_nvcc_s_front_end():
    output = """
    m(2): warning #177-D: variable "x" was declared but never referenced

    m(2): error: identifier "nonsense" is undefined
      void f(BE::Tensor out) { nonsense(); }
                               ^

    1 error detected in the compilation of "src/m.cu".
    """
    assert look(output).first_error.splitlines() == [
        'm(2): error: identifier "nonsense" is undefined',
        "  void f(BE::Tensor out) { nonsense(); }",
        "                           ^",
    ]


def test_clang_s_count_of_errors_is_no_part_of_the_first():
    output = """
    m:3:9: error: use of undeclared identifier 'y'
        3 | int x = y;
          |         ^
    1 error generated when compiling for sm_90.
    """
    assert look(output).first_error.splitlines() == [
        "m:3:9: error: use of undeclared identifier 'y'",
        "    3 | int x = y;",
        "      |         ^",
    ]


@pytest.mark.parametrize(
    ("output", "first", "hint"),
    [
        ("nvcc fatal   : Unsupported gpu architecture 'compute_999'", "nvcc fatal", "--list-gpu-arch"),
        ("ptxas /tmp/x.ptx, line 5; error   : Unsupported .version 9.9", "ptxas", "different releases"),
        ("ptxas fatal   : Value 'sm_999' is not defined for option 'gpu-name'", "ptxas fatal", "architecture"),
        (
            "/usr/bin/ld: cannot find -lfoo: No such file\ncollect2: error: ld returned 1",
            "/usr/bin/ld: cannot",
            "-L/its",
        ),
        ("/usr/bin/ld.gold: error: cannot find -lfoo", "/usr/bin/ld.gold: error", "-L/its"),
        ("k.o: in function `f':\nk.cc:(.text+0x1): undefined reference to `g'", "k.cc:(.text", "extra_ldflags"),
        ("ld.lld: error: undefined symbol: g", "ld.lld", "extra_ldflags"),
        ("/usr/bin/ld: b.o: in function `f':\nb.cc:1: multiple definition of `f'", "b.cc:1", "static or inline"),
        ("cc1plus: error: unrecognized command-line option '-fnope'", "cc1plus", ""),
        ("g++: error: unrecognized command-line option '-fnope'", "g++: error", ""),
        ("g++: fatal error: Killed signal terminated program cc1plus", "", "ninja_workers=1"),
        ("/bin/sh: 1: /no/such/g++: not found", "/bin/sh", "doctor"),
        ("m:1:1: error: something\nm:2:2: error: No space left on device", "m:1:1", "disk is full"),
        ("cannot write: No space left on device", "cannot write", "disk is full"),
        (
            "m:1:10: fatal error: cuda_runtime.h: No such file or directory",
            "m:1:10",
            "C++ sources are compiled without",
        ),
        ("m:2:8: error: 'BE' has not been declared", "m:2:8", "brainevent/common.h"),
        ("m:2:8: error: 'BE' does not name a type", "m:2:8", "brainevent/common.h"),
        ("m:2:8: error: use of undeclared identifier 'BE'", "m:2:8", "brainevent/common.h"),
        ('m(2): error: name followed by "::" must be a class or namespace name', "m(2)", "brainevent/common.h"),
        (
            'm(2): error: explicit type is missing ("int" assumed)\n  void f(const BE::Tensor a) {}\n  ^',
            "m(2)",
            "brainevent/common.h",
        ),
        ("/cuda/host_config.h:1:2: error: #error -- unsupported GNU version!", "/cuda/host", "BE_CXX"),
    ],
)
def test_known_failures_have_a_hint(output: str, first: str, hint: str):
    found = look(output)
    assert found.first_error.startswith(first)
    assert not hint or any(hint in each for each in found.hints), found.hints


def test_an_error_at_a_trampoline_is_about_the_arg_spec():
    where = "m: In function 'void be_call_f(const BE::detail::Call&)':\n"
    error = "m:2:5: error: could not convert 'x' from 'int' to 'Own'\n"
    assert "arg_spec" in look(where + error, ("m", 2)).hints[0]
    assert look(where + error, ("other", 2)).hints == ()
    assert look(error, ("m", 2)).hints == (), "a mistake of the author's on that line"


def test_output_without_any_error():
    lines = [f"line {number}" for number in range(50)]
    found = look("\n".join(lines))
    assert found.first_error.splitlines() == lines[-12:]
    assert look("").first_error == ""


def test_a_path_with_spaces_and_colons():
    found = look("/a b: c/k.cc:7:3: error: oops\n")
    assert found.first_error == "/a b: c/k.cc:7:3: error: oops"


def test_a_line_that_is_not_in_the_source():
    assert look("m:99:1: error: oops\n").first_error == "m:99:1: error: oops"
