"""The first real error in what compilers and linkers print, and what is said about it."""

from __future__ import annotations

import textwrap

import pytest

from be_runtime.compile.messages.diagnose import Diagnosis, diagnose

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
        ("k.o: in function `f':\nk.cc:(.text+0x1): undefined reference to `g'", "undefined reference to 'g'", "-lNAME"),
        ("ld.lld: error: undefined symbol: g", "undefined reference to 'g'", "-lNAME"),
        ("k.cc:function f(): error: undefined reference to 'GOMP_parallel'", "undefined", "extra_ldflags=['-fopenmp']"),
        ("ld.lld: error: undefined symbol: __asan_init", "undefined", "-fsanitize="),
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
        ("m:2:1: error: '__global__' does not name a type", "m:2:1", "load_cuda_inline"),
        ("m:2:1: error: unknown type name '__global__'", "m:2:1", "load_cuda_inline"),
        ("m:2:6: error: 'span' is not a member of 'std'", "m:2:6", "extra_cflags=['-std=c++20']"),
        ("m:2:6: error: no member named 'bit_cast' in namespace 'std'", "m:2:6", "extra_cflags=['-std=c++20']"),
        ("m:1:10: fatal error: curand_kernel.h: No such file or directory", "m:1:10", "extra_include_paths"),
    ],
)
def test_known_failures_have_a_hint(output: str, first: str, hint: str):
    found = look(output)
    assert found.first_error.startswith(first)
    assert not hint or hint in found.hints[0]
    assert len(found.hints) <= 1


@pytest.mark.parametrize(
    ("output", "hint"),
    [
        ("m:1:10: fatal error: curand_kernel.h: No such file or directory", "pip install nvidia-curand brings"),
        ('m(1): catastrophic error: cannot open source file "curand_kernel.h"', "pip install nvidia-curand brings"),
        ("m:1:10: fatal error: 'cuda/std/array' file not found", "nvidia-cuda-cccl brings"),
        ("m:1:10: fatal error: mine.h: No such file or directory", "extra_include_paths"),
        ('m(2): error: namespace "std" has no member "span"', "extra_cuda_cflags=['-std=c++20']"),
        ("m:2:9: error: invalid use of incomplete type 'struct BE::float16_t'", "brainevent/dispatch.h"),
        ("m:2:9: error: aggregate 'BE::complex64_t y' has incomplete type and cannot be", "brainevent/dispatch.h"),
        ("m:2:9: error: implicit instantiation of undefined template 'BE::Complex<float>'", "brainevent/dispatch.h"),
        ('m(2): error: incomplete type "T" (aka "__half") is not allowed', "brainevent/dispatch.h"),
        (
            'm(2): error: argument of type "int64_t" is incompatible with parameter of type "CUstream_st *"',
            "(cudaStream_t)stream",
        ),
        (
            "m:2:1: error: cannot initialize a parameter of type 'cudaStream_t' with an lvalue of type 'int64_t'",
            "(cudaStream_t)stream",
        ),
        (
            "m(2): error: __host__ or __device__ annotation on lambda requires --extended-lambda nvcc flag",
            "extra_cuda_cflags=['--extended-lambda']",
        ),
        (
            'm(2): error: expression must have class type but it has type "const BE::DType"',
            "two dtypes, then two names",
        ),
    ],
)
def test_known_failures_of_cuda_have_a_hint(output: str, hint: str):
    (said,) = diagnose(output, {"m": SOURCE}, is_cuda=True).hints
    assert hint in said


def test_an_error_at_a_trampoline_is_about_the_arg_spec():
    where = "m: In function 'void be_call_f(const BE::detail::Call&)':\n"
    error = "m:2:5: error: could not convert 'x' from 'int' to 'Own'\n"
    assert "arg_spec" in look(where + error, ("m", 2)).hints[0]
    assert look(where + error, ("other", 2)).hints == ()
    assert look(error, ("m", 2)).hints == (), "a mistake of the author's on that line"


def test_a_trampoline_that_fails_because_of_an_earlier_error_says_nothing_of_the_arg_spec():
    output = "m:2:8: error: 'BE' does not name a type\nm: In function 'void be_call_f(const BE::detail::Call&)':\n"
    (hint,) = look(output, ("m", 2)).hints
    assert "common.h" in hint


def test_a_trampoline_s_own_text_is_not_shown():
    output = """
    m(2): error: no suitable constructor exists to convert from "float" to "Own"
      static void be_call_f(const ::BE::detail::Call& be_call) { ::f(be_call.be_rets[0]); }
                                                                     ^
    """
    found = look(output, ("m", 2))
    assert found.first_error.splitlines()[1:] == ["    2 | void f(BE::Tensor out) { nonsense(); }"]
    assert "arg_spec" in found.hints[0]


GCC_TEMPLATE = """
    In file included from m:1:
    /usr/include/ops.h: In instantiation of 'bool less(I, I) [with I = P*]':
    /usr/include/algo.h:1809:14:   required from 'void insertion(I, I) [with I = P*]'
    m:2:26:   required from here
    /usr/include/ops.h:45:23: error: no match for 'operator<'
       45 |       { return *a < *b; }
          |                ~~~^~~~
    In file included from /usr/include/pair.h:3:
    /usr/include/iterator.h:12:5: note: candidate: 'bool operator<(A, B)'
       12 |     operator<(const A& a,
    """
CLANG_TEMPLATE = """
    /usr/include/ops.h:45:23: error: no match for 'operator<'
       45 |       { return *a < *b; }
          |                ~~~^~~~
    /usr/include/algo.h:1809:14: note: in instantiation of member function 'less<P *>' requested here
     1809 |           if (less(a, b))
    m:2:26: note: in instantiation of function template specialization 'std::sort<P *>' requested here
        2 | void f(BE::Tensor out) { nonsense(); }
    """
NVCC_TEMPLATE = """
    /usr/include/ops.h(45): error: no match for 'operator<'
            { return *a < *b; }
                        ^
    /usr/include/iterator.h(12): note #3327-D: candidate function template failed deduction
              detected during:
                instantiation of "bool less(I, I)" at line 1809 of /usr/include/algo.h
                instantiation of "void std::sort(I, I) [with I=P *]" at line 2 of m
    """


@pytest.mark.parametrize("output", [GCC_TEMPLATE, CLANG_TEMPLATE, NVCC_TEMPLATE], ids=["gcc", "clang", "nvcc"])
def test_an_error_in_a_library_s_template_is_shown_at_the_author_s_line(output: str):
    lines = look(output).first_error.splitlines()
    assert lines[0] in ("m:2:26: error: no match for 'operator<'", "m(2): error: no match for 'operator<'")
    assert lines[1] == "    2 | void f(BE::Tensor out) { nonsense(); }"
    assert any(line.startswith("/usr/include/ops.h") for line in lines[2:4])
    assert "return *a < *b;" in "\n".join(lines)
    assert "iterator.h" not in "\n".join(lines)


def test_an_error_in_a_header_of_the_author_s_own_stays_there():
    output = "/own/k.cc:9:3:   required from here\n/own/part.h:4:1: error: no match\n"
    assert diagnose(output, {"/own/k.cc": ""}).first_error == "/own/part.h:4:1: error: no match"


MACRO = """
    m:2:26: error: 'nonsense' was not declared in this scope
    /inc/dispatch_macros.h:102:7: note: in definition of macro 'BE_INTERNAL_DISPATCH'
      102 |       __VA_ARGS__
          |       ^~~~~~~~~~~
    m:2:3: note: in expansion of macro 'BE_DISPATCH_ALL'
    m:2:40: error: 'nonsense' was not declared in this scope
    /inc/dispatch_macros.h:102:7: note: in definition of macro 'BE_INTERNAL_DISPATCH'
    m:2:50: error: invalid use
    """


def test_an_error_in_a_macro_is_the_author_s_line_and_each_other_message_once():
    found = look(MACRO)
    assert found.first_error.splitlines()[1:] == [
        "    2 | void f(BE::Tensor out) { nonsense(); }",
        "      |                          ^",
    ]
    assert found.further == ("m:2:50: error: invalid use",)


def test_nvcc_s_text_of_an_expanded_macro_gives_way_to_the_author_s():
    found = look(f'm(2): error: expected a ")"\n    [&](const DType a.dtype()) {{ {"switch (a) {}" * 40} }}\n      ^\n')
    assert found.first_error.splitlines()[1:] == ["    2 | void f(BE::Tensor out) { nonsense(); }"]


GOLD = """
obj/m.o:m.cc:function BE::detail::be_run<be_entry_f, be_call_f>: error: undefined reference to 'ext(float)'
obj/m.o:m.cc:function f(BE::Tensor) [clone ._omp_fn.0]: error: undefined reference to 'ext(float)'
obj/m.o:m.cc:function help(float) [clone .isra.0]: error: undefined reference to 'other(int, char)'
collect2: error: ld returned 1 exit status
"""
BFD = """
/usr/bin/ld.bfd: obj/m.o: in function `be_call_f(BE::detail::Call const&)':
m.cc:(.text+0x1d): undefined reference to `ext(float)'
/usr/bin/ld.bfd: obj/m.o: in function `help(float)':
m.cc:(.text+0x1): undefined reference to `other(int, char)'
collect2: error: ld returned 1 exit status
"""
LLD = """
ld.lld: error: undefined symbol: ext(float)
>>> referenced by m.cc
>>>               obj/m.o:(be_call_f(BE::detail::Call const&))

ld.lld: error: undefined symbol: other(int, char)
>>> referenced by m.cc
>>>               obj/m.o:(help(float))
clang++: error: linker command failed with exit code 1
"""


@pytest.mark.parametrize("output", [GOLD, BFD, LLD], ids=["gold", "bfd", "lld"])
def test_an_undefined_symbol_is_shown_with_who_uses_it(output: str):
    assert look(output).first_error.splitlines() == [
        "undefined reference to 'ext(float)', used by the entry point f in m",
        "undefined reference to 'other(int, char)', used by help(float) in m",
    ]


def test_of_many_undefined_symbols_a_few_are_shown():
    output = "".join(f"ld.lld: error: undefined symbol: f{number}\n" for number in range(9))
    assert look(output).first_error.splitlines()[4:] == ["undefined reference to 'f4'", "and 4 more"]


def test_an_undefined_symbol_of_a_folder_s_file_names_the_file():
    output = (
        "/usr/bin/ld: obj/b.o: in function `be_call_b_go(BE::detail::Call const&)':\nb.cc: undefined reference to `g'"
    )
    found = diagnose(output, {"/own/a.cc": "", "/own/b.cc": ""})
    assert found.first_error == "undefined reference to 'g', used by the entry point go in /own/b.cc"


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
