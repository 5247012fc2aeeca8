"""Sources as large as nobody writes them, one construct of C++ over and over, and what a load does with each.

``python -m tests.support.large_sources`` reads each in a process of its own and prints its seconds and its memory.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LARGE = (1 << 19) - 200
"""Characters of each source."""
HEAD = "void f(const BE::Tensor x, BE::Tensor y) {}\n"
NOTED = f"// @BE f\n{HEAD}"


def _of(unit: str, before: str = "", after: str = "") -> str:
    """Repeat a unit; ``#`` after an ``@`` in it is its number."""
    count = max(1, (LARGE - len(before) - len(after)) // (len(unit) + 3 * unit.count("@#")))
    repeated = unit * count if "@#" not in unit else "".join(unit.replace("@#", str(number)) for number in range(count))
    return f"{before}{repeated}{after}"


SOURCES: dict[str, Callable[[], str]] = {
    # Macros
    "pastes in a macro": lambda: _of("a##", NOTED + "#define D(a) ", "a\nD(x)\n"),
    "pastes of words": lambda: _of("x##y##", NOTED + "#define D ", "z\nvoid D();\n"),
    "pastes that make an annotated name": lambda: _of(
        "a##", "#define D(a) void ", "a(BE::Tensor y)\n// @BE f\nD(f) {}\n"
    ),
    "quotes in a macro": lambda: _of("#a ", NOTED + "#define D(a) ", "\nD(x)\n"),
    "macros of macros": lambda: _of("#define D@#(x) E@#(x)\n#define E@#(x) void f@#(x)\nD@#(BE::Tensor y)\n", NOTED),
    "a chain of macros": lambda: NOTED + _chain("#define A{}(x) A{}(x)\n", 1) + "A0(void g();)\n",
    "a chain of doubling macros": lambda: NOTED + _chain("#define A{}(x) A{}(x x)\n", 1) + "A0(void g();)\n",
    "a macro defined again": lambda: _of("#define D(N) void N(BE::Tensor y)\nD(f@#);\n", NOTED),
    "calls of one macro": lambda: _of("D(f@#)\n", NOTED + "#define D(N) void N(BE::Tensor y) {}\n"),
    "calls of one macro in one header": lambda: _of("D(a) ", NOTED + "#define D(N) N\n", "g();\n"),
    "one call with many arguments": lambda: _of("a,", NOTED + "#define D(...) void g(__VA_ARGS__)\nD(", "a);\n"),
    "many variadic arguments": lambda: _of(
        "a,b,c,", NOTED + "#define D(a, ...) void g(a, ## __VA_ARGS__)\nD(", "a);\n"
    ),
    "a macro of many parameters": lambda: _of("a@#,", NOTED + "#define D(", "a) void g(a)\nD(x);\n"),
    "a macro that uses its many parameters": lambda: _many_parameters(),
    "nested calls of macros": lambda: NOTED + "#define D(x) x\n" + "D(" * (LARGE // 3) + ")" * (LARGE // 3) + ";\n",
    "nested calls with text": lambda: (
        NOTED + "#define D(x) int x\n" + "D(a " * (LARGE // 5) + ")" * (LARGE // 5) + ";\n"
    ),
    "definitions nobody uses": lambda: _of("#define M@# (a + b)\n", NOTED),
    "undefinitions": lambda: _of("#undef M@#\n", NOTED),
    "one long macro": lambda: _of("do_that(x); ", NOTED + "#define D(x) ", "\nD(f)\n"),
    "bodies in a macro": lambda: _of("void f@#(T x) { g(); } ", NOTED + "#define D(T) ", "\nD(int)\n"),
    "a macro over many lines": lambda: _of("void f@#(T x); \\\n", NOTED + "#define D(T) ", "\n\nD(int)\n"),
    "annotated macro calls": lambda: _of("// @BE f@#\nD(f@#)\n", "#define D(N) void N(BE::Tensor y) {}\n"),
    "annotated unknown calls": lambda: _of("// @BE f@# arg ret\nD(f@#)\n"),
    # Functions
    "annotated functions": lambda: _of("// @BE f@#\nvoid f@#(const BE::Tensor x, BE::Tensor y) {}\n"),
    "annotated functions with bodies": lambda: _of(
        "// @BE f@#\nvoid f@#(const BE::Tensor x, BE::Tensor y) { g(x, y); }\n"
    ),
    "annotations with tokens": lambda: _of(
        "// @BE f@# arg[n] ret[n] attr.k:int32=3\nvoid f@#(BE::Tensor const& x, BE::Tensor y, int k) {}\n"
    ),
    "annotated overloads": lambda: _of("// @BE f\nvoid f(const BE::Tensor x, BE::Tensor y, int a@#) {}\n"),
    "overloads of one name": lambda: _of(
        "void f(const BE::Tensor x, BE::Tensor y, T@# a) {}\n", "// @BE f arg ret attr.a:int32\n"
    ),
    "prototypes of one function": lambda: _of("void f(const BE::Tensor x, BE::Tensor y);\n", NOTED),
    "other functions": lambda: _of("static inline int g@#(int a, float b) { return a; }\n", NOTED),
    "short functions": lambda: _of("int g();", NOTED),
    "a function nobody defines": lambda: _of("void g@#(int a);\n", "// @BE fff\n"),
    "many that nobody defines": lambda: _of("void g@#(int a);\n", NOTED),
    "documented functions": lambda: _of("/// Says it.\n// @BE f@#\nvoid f@#(BE::Tensor y) {}\n"),
    "one long documentation": lambda: _of("/// Says it.\n", "", NOTED),
    "one long block of documentation": lambda: _of(" * Says it.\n", "/**\n", " */\n" + NOTED),
    "very many parameters": lambda: _of("int a@#, ", "// @BE f\nvoid f(", "BE::Tensor y) {}\n"),
    "very many arrays": lambda: _of("BE::Tensor a@#, ", "// @BE f\nvoid f(", "BE::Tensor y) {}\n"),
    "very many tokens": lambda: _of("arg ", "// @BE f ", "ret\n" + HEAD),
    "very many attributes": lambda: _of("attr.a@#:int32=1 ", "// @BE f ", "ret\n" + HEAD),
    "very many axes": lambda: _of("n@# ", "// @BE f arg[", "] ret\n" + HEAD),
    "one long token": lambda: _of("n", "// @BE f arg[", "] ret\n" + HEAD),
    "a default of a parameter": lambda: _of("1+", "// @BE f\nvoid f(BE::Tensor y, int n = ", "1) {}\n"),
    "one long default": lambda: _of("1", "// @BE f\nvoid f(BE::Tensor y, int n = ", ") {}\n"),
    "one long type": lambda: _of("A<", "// @BE f\nvoid f(BE::Tensor y, ", " n) {}\n"),
    "pointers to pointers": lambda: _of("*", "// @BE f\nvoid f(BE::Tensor y, int ", "n) {}\n"),
    "members of a structure": lambda: _of("int a@#; ", "struct S { ", "};\n// @BE f\nvoid f(BE::Tensor y, S s) {}\n"),
    "names of an enumeration": lambda: _of("a@#, ", "enum S { ", "};\n// @BE f\nvoid f(BE::Tensor y, S s) {}\n"),
    "structures": lambda: _of("struct S@# { int a; };\n", "// @BE f\nvoid f(BE::Tensor y, S s) {}\n"),
    "attributes of the compiler": lambda: _of("[[a]] ", "// @BE f\n", HEAD),
    "GNU attributes": lambda: _of("__attribute__((a)) ", "// @BE f\n", HEAD),
    "words before a function": lambda: _of("inline ", "// @BE f\n", HEAD),
    "qualifiers": lambda: _of("a::", "// @BE f\nvoid ", "f(BE::Tensor y) {}\n"),
    "calls without semicolons": lambda: _of("D(a) ", NOTED, "g();\n"),
    # Nesting
    "nested parentheses": lambda: NOTED + "void g(" + "(" * (LARGE // 2) + ")" * (LARGE // 2) + ");\n",
    "opening parentheses": lambda: _of("(", NOTED + "void g"),
    "opening braces": lambda: _of("{", NOTED + "void g()"),
    "closing braces": lambda: _of("}", NOTED),
    "opening brackets": lambda: _of("[", NOTED + "int g("),
    "names before open parentheses": lambda: _of("f(", NOTED),
    "nested templates": lambda: NOTED + "void g(" + "A<" * (LARGE // 4) + ">" * (LARGE // 4) + " x);\n",
    "opening angles": lambda: _of("a<", NOTED + "void g(", "b);\n"),
    "template parameters": lambda: _of("class T@#, ", NOTED + "template <", "class U> void g(U u) {}\n"),
    "template heads": lambda: _of("template <class T> ", NOTED, "void g();\n"),
    "namespaces": lambda: NOTED + _nested("namespace a { ", "} ", "void g();\n"),
    "namespaces with functions": lambda: NOTED + _nested("namespace a { void g();\n", "} ", ""),
    "namespaces side by side": lambda: _of("namespace a@# { void g(); }\n", NOTED),
    "a long name of a namespace": lambda: _of("a::", NOTED + "namespace ", "b { void g(); }\n"),
    "classes": lambda: NOTED + _nested("struct A { ", "}; ", "void g();\n"),
    "one large class": lambda: _of("void g@#(int a); ", NOTED + "class A {", "};\n"),
    "bases of a class": lambda: _of("B@#, ", NOTED + "class A : ", "B { void g(); };\n"),
    "extern blocks": lambda: NOTED + _nested('extern "C" { ', "} ", "void g();\n"),
    "nested conditions": lambda: NOTED + _nested("#if X\n", "#endif\n", ""),
    "open conditions": lambda: _of("#if X\n", NOTED),
    "conditions with annotations": lambda: _of("#if X\n// @BE f@#\nvoid f@#(BE::Tensor y) {}\n"),
    "branches of one condition": lambda: _of("#elif X@#\nvoid g();\n", NOTED + "#if X\n", "#endif\n"),
    "branches with annotations": lambda: _of(f"#elif X@#\n{NOTED}", f"#if X\n{NOTED}", "#endif\n"),
    "branches that do not close": lambda: _of("#elif X@#\nvoid g() {\n", NOTED + "#if X\nvoid g() {\n", "#endif\n}\n"),
    # Text
    "one long line": lambda: _of("int a; ", NOTED),
    "one long word": lambda: _of("a", NOTED + "int ", ";\n"),
    "one long number": lambda: _of("1'000", NOTED + "int a[] = {", "};\n"),
    "comments": lambda: _of("//\n", NOTED),
    "comments with text": lambda: _of("// a b\n", NOTED),
    "comments between": lambda: _of("/**/a", NOTED, ";\n"),
    "a long comment": lambda: _of("a ", NOTED + "/* ", "*/\n"),
    "an open comment": lambda: _of("/* ", NOTED),
    "stars": lambda: _of("*", NOTED + "/"),
    "slashes": lambda: _of("/", NOTED),
    "blank lines": lambda: _of("\n", NOTED, HEAD),
    "spaces": lambda: _of(" ", NOTED, HEAD),
    "tabs and spaces in code": lambda: _of("\t a", NOTED, ";\n"),
    "continued lines": lambda: _of("\\\n", NOTED, HEAD),
    "a continued comment": lambda: _of("a\\\n", NOTED + "// ", "\n"),
    "a continued annotation": lambda: _of(" \\\n", "// @BE f", "\n" + HEAD),
    "a continued definition": lambda: _of("\\\n", NOTED + "#define A ", "\n" + HEAD),
    "backslashes": lambda: _of("\\", NOTED),
    "backslashes in a string": lambda: _of("\\", NOTED + 'auto a = "'),
    "raw strings": lambda: _of('R"(a)" ', NOTED, ";\n"),
    "open raw strings": lambda: _of('R"(a', NOTED),
    "open raw strings with delimiters": lambda: _of('R"d@#(a ', NOTED),
    "a long raw string": lambda: _of(')x" ', NOTED + 'auto a = R"y(', ')y";\n'),
    "raw strings that never begin": lambda: _of('R"', NOTED),
    "strings": lambda: _of('"a" ', NOTED + "auto a = ", ";\n"),
    "quotes": lambda: _of('"', NOTED),
    "apostrophes": lambda: _of("'", NOTED),
    "characters": lambda: _of("'a', ", NOTED + "char a[] = {", "};\n"),
    "prefixes": lambda: _of("u8R", NOTED + "auto a = ", '"(a)";\n'),
    "trigraphs": lambda: _of("??=define A ??( ??/\n", NOTED),
    "digraphs": lambda: _of("%:define A <: :> <% %>\n", NOTED),
    "hashes": lambda: _of("#", NOTED),
    "hashes in lines": lambda: _of(" # a\n", NOTED),
    "hashes behind comments": lambda: _of("/* */ #", NOTED),
    "directives with strings": lambda: _of("#error \"a\" 'b' //\n", NOTED),
    "a long directive": lambda: _of("a/", NOTED + "#error "),
    "includes": lambda: _of('#include "a@#.h"\n', NOTED),
    "signs": lambda: _of("+-", NOTED + "int a = ", "1;\n"),
    "semicolons": lambda: _of(";", NOTED),
    "commas": lambda: _of(",", NOTED + "int a", ";\n"),
    "a table of numbers": lambda: _of("1.5f, ", NOTED + "float a[] = {", "};\n"),
    "a table in a macro's call": lambda: _of("1.5f, ", NOTED + "#define D(...) {__VA_ARGS__}\nfloat a[] = D(", "1);\n"),
    "a table of tables": lambda: _of("{1, 2}, ", NOTED + "int a[][2] = {", "};\n"),
    "letters that are none": lambda: _of("é", NOTED + "int ", ";\n"),
    "returns only": lambda: _of("int a;\r", NOTED),
    "annotations without a function": lambda: _of("// @BE f@#\n"),
    "annotations without a name": lambda: _of("// @BE\n"),
    "one annotation again": lambda: _of("// @BE f\n", "", HEAD),
    "brackets in an annotation": lambda: _of("[{(", "// @BE f ", "\n" + HEAD),
    "closed brackets in an annotation": lambda: _of("[a] ", "// @BE f ", "\n" + HEAD),
    "launches": lambda: _of("k<<<1, 2>>>(x); ", "// @BE f\nvoid f(BE::Tensor y) {", "}\n"),
    "launches in functions": lambda: _of("// @BE f@#\nvoid f@#(BE::Tensor y) { k<<<1, 2>>>(x); }\n"),
    "calls of a stream": lambda: _of("cudaLaunchKernel(", "// @BE f\nvoid f(BE::Tensor y) {", "}\n"),
    "kernels": lambda: _of("__global__ void k@#(float* x, int n) { }\n", NOTED),
    "using namespaces": lambda: _of("using namespace a;\n", NOTED),
    "using of BE": lambda: _of("using ::", NOTED),
}


def _chain(line: str, step: int) -> str:
    count = LARGE // (len(line) + 8)
    return "".join(line.format(number, number + step) for number in range(count))


def _nested(opening: str, closing: str, middle: str) -> str:
    count = LARGE // (len(opening) + len(closing))
    return opening * count + middle + closing * count


def _many_parameters() -> str:
    names = [f"a{number}" for number in range(LARGE // 18)]
    return f"{NOTED}#define D({', '.join(names)}) void g({' '.join(names)})\nD(1);\n"


class Cost(NamedTuple):
    """What reading a source took: the outcome, the processor's seconds, and the process' memory above its start."""

    outcome: str
    seconds: float
    peak_mb: float


def read(what: str, names: str) -> Cost:
    """Read a source as a load does, up to the compiler; `names` is the argument ``functions`` as JSON."""
    from be_runtime.cache import make_key
    from be_runtime.errors import BeRuntimeError
    from be_runtime.generate.bind import bind
    from be_runtime.generate.codegen import render_inline_source, render_named_types, render_unit
    from be_runtime.load.identity import request_fields
    from be_runtime.request.options import BuildRequest, CompileOptions, Unit
    from be_runtime.source_text import SourceText

    text = SOURCES[what]()
    source = SourceText(name="k.cu", text=text)
    unit = Unit(stem="k", sources=(source,), path=None)
    request = BuildRequest(
        name="k", language="cuda", units=(unit,), functions=json.loads(names), compile=CompileOptions()
    )
    began = time.thread_time()
    try:
        make_key("k", *request_fields(request))
        bindings = bind(request)
        head = render_named_types([source])
        body = render_inline_source([source])
        generated = render_unit(head + body, "k", bindings["k"], language="cuda")
        outcome = f"{len(bindings['k'])} entry points, {len(generated)} characters"
    except BeRuntimeError as error:
        shown = str(error)
        outcome = f"{type(error).__name__}: {len(shown)} characters: {shown[:160]!r}"
    took = time.thread_time() - began
    return Cost(outcome, took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def measure(what: str, functions: object = None) -> Cost:
    """Read a source in a process of its own."""
    command = [sys.executable, "-m", __name__, what, json.dumps(functions)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=20)
    return Cost(*json.loads(done.stdout)) if done.returncode == 0 else Cost(done.stderr[-300:], 0.0, 0.0)


if __name__ == "__main__":
    print(json.dumps(read(sys.argv[1], sys.argv[2])))
