"""The largest sources that are read, each one construct of C++ over and over, and the cost of reading them.

``python -m tests.support.large_sources FUNCTIONS NAME...`` reads each in a process of its own and prints its cost.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.compile.codegen import bind, render_inline_source, render_named_types, render_unit
from be_runtime.errors import BeRuntimeError
from be_runtime.load.identity import request_fields
from be_runtime.request.options import BuildRequest, CompileOptions, Unit
from be_runtime.signature import SourceText
from be_runtime.signature.cpp.program import LARGEST
from be_runtime.store.keys import make_key
from tests.support.speed import usual_seconds

ROOT = Path(__file__).resolve().parents[2]
_GIVEN_UP_S = 60
_LONGEST = 60_000
"""The bytes of a pipe."""
HEAD = "void f(const BE::Tensor x, BE::Tensor y) {}\n"
NOTED = f"// @BE f\n{HEAD}"
MANY = 1000
"""The most entry points of a source."""


ENTRY = "// @BE f@#\nvoid f@#(BE::Tensor y) {}\n"


class Large(NamedTuple):
    """A source that repeats something; ``@#`` in it is its number.

    Parameters
    ----------
    unit : str
    before, after : str
        Text around all the units.
    closing : str
        Text that follows the units as often as there are units.
    times : int
        Number of units; 0 for as many as a source may have.
    """

    unit: str
    before: str = NOTED
    after: str = ""
    closing: str = ""
    times: int = 0

    def text(self, largest: int = LARGEST) -> str:
        """The source."""
        room = largest - len(self.before) - len(self.after)
        count = self.times or room // len(self.unit + self.closing)
        repeated = _each(self.unit, count) + self.closing * count
        return f"{self.before}{repeated[:room]}{self.after}"


def _each(line: str, count: int = MANY) -> str:
    """Repeat a line; ``@#`` in it is its number."""
    return "".join(line.replace("@#", str(number)) for number in range(count)) if "@#" in line else line * count


def _taking(parameters: str) -> str:
    return f"// @BE f@#\nvoid f@#({parameters}BE::Tensor y) {{}}\n"


def _of_types(count: int) -> str:
    return f"// @BE f\nvoid f(BE::Tensor y{_each(', S@# s@#', count)}) {{}}\n"


BOTH, BY_NAME = "const BE::Tensor x, BE::Tensor y", "BE::Tensor const& x, BE::Tensor y"
PAIR, OPTIONS = "const BE::Tensor a@#, int b@#, ", "}\nvoid f(BE::Tensor y, Options o) {}\n"
DOUBLING = "#define A(x) x\n#define B(x) A(x x)\n#define C(x) B(B(x x))\n#define A(x) C(C(x))\n"
MANY_PARAMETERS = f"#define D({_each('a@#, ', 9000)}a) void g({_each('a@# ', 9000)}"
WITH_STREAM = "// @BE f@# ret stream\nvoid f@#(BE::Tensor y, int64_t s@#) {}\n"
LAUNCHES = "#define D(N) void N(BE::Tensor y) { k<<<1, 2, 0, s>>>(y); }\n"
MANY_TOKENS = """// @BE f@# arg[n k] arg[k] ret[n] attr.a:int32=1 attr.b:float32[] stream
void f@#(const BE::Tensor m, const BE::Tensor x, BE::Tensor y, int a, BE::Span<const float> b, int64_t stream)\
 { k<<<1, 2, 0, s>>>(x); }
"""
AXES = f"arg[{_each('n@# ', 64)}] " * 30
SPELLINGS = f"// @BE f@#\nvoid f@#(BE::Tensor y, {''.join(f'const a{i}_@#::S& b{i}, ' for i in range(10))}int n) {{}}\n"
MEMBERS = _each("int a@#; ", 998)
CONSTS = "".join(f"BE::Span<{'const ' * 900}float> a{i}; " for i in range(40))

CHAIN = "void h1000() { exit(1); }\n" + "".join(f"void h{i}() {{ h{i + 1}(); }}\n" for i in range(1, MANY))
MACROS = "#define D1000 exit(1)\n" + "".join(f"#define D{i} D{i + 1}\n" for i in range(1, MANY))

SOURCES: dict[str, Large] = {
    # Macros
    "pastes in a macro": Large("a##", NOTED + "#define D(a) ", "a\nD(x)\n"),
    "pastes of words": Large("x##y##", NOTED + "#define D ", "z\nvoid D();\n"),
    "pastes that make an annotated name": Large("a##", "#define D(a) void ", "a(BE::Tensor y)\n// @BE f\nD(f) {}\n"),
    "quotes in a macro": Large("#a ", NOTED + "#define D(a) ", "\nD(x)\n"),
    "macros of macros": Large("#define D@#(x) E@#(x)\n#define E@#(x) void f@#(x)\nD@#(BE::Tensor y)\n"),
    "a chain of macros": Large("#define A@#(x) A@#1(x)\n", after="A0(void g();)\n"),
    "a chain of doubling macros": Large(DOUBLING, after="A(void g();)\n"),
    "a macro defined again": Large("#define D(N) void N(BE::Tensor y)\nD(f@#);\n"),
    "calls of one macro": Large("D(f@#)\n", NOTED + "#define D(N) void N(BE::Tensor y) {}\n"),
    "calls of one macro in one header": Large("D(a) ", NOTED + "#define D(N) N\n", "g();\n"),
    "one call with many arguments": Large("a,", NOTED + "#define D(...) void g(__VA_ARGS__)\nD(", "a);\n"),
    "many variadic arguments": Large("a,b,c,", NOTED + "#define D(a, ...) void g(a, ## __VA_ARGS__)\nD(", "a);\n"),
    "a macro of many parameters": Large("a@#,", NOTED + "#define D(", "a) void g(a)\nD(x);\n"),
    "a macro that uses its many parameters": Large("a ", NOTED + MANY_PARAMETERS, ")\nD(1);\n", times=1),
    "nested calls of macros": Large("D(", NOTED + "#define D(x) x\n", ";\n", closing=")"),
    "nested calls with text": Large("D(a ", NOTED + "#define D(x) int x\n", ";\n", closing=")"),
    "definitions nobody uses": Large("#define M@# (a + b)\n"),
    "undefinitions": Large("#undef M@#\n"),
    "one long macro": Large("do_that(x); ", NOTED + "#define D(x) ", "\nD(f)\n"),
    "bodies in a macro": Large("void f@#(T x) { g(); } ", NOTED + "#define D(T) ", "\nD(int)\n"),
    "a macro over many lines": Large("void f@#(T x); \\\n", NOTED + "#define D(T) ", "\n\nD(int)\n"),
    "annotated macro calls": Large("// @BE f@#\nD(f@#)\n", "#define D(N) void N(BE::Tensor y) {}\n"),
    "annotated unknown calls": Large("// @BE f@# arg ret\nD(f@#)\n", ""),
    # Functions
    "annotated functions": Large("// @BE f@#\nvoid f@#(const BE::Tensor x, BE::Tensor y) {}\n", ""),
    "annotated functions with bodies": Large(f"// @BE f@#\nvoid f@#({BOTH}) {{ g(x, y); }}\n", ""),
    "annotations with tokens": Large(f"// @BE f@# arg[n] ret[n] attr.k:int32=3\nvoid f@#({BY_NAME}, int k) {{}}\n", ""),
    "annotated overloads": Large("// @BE f\nvoid f(const BE::Tensor x, BE::Tensor y, int a@#) {}\n", ""),
    "overloads of one name": Large(f"void f({BOTH}, T@# a) {{}}\n", "// @BE f arg ret attr.a:int32\n"),
    "prototypes of one function": Large("void f(const BE::Tensor x, BE::Tensor y);\n"),
    "other functions": Large("static inline int g@#(int a, float b) { return a; }\n"),
    "short functions": Large("int g();"),
    "a function nobody defines": Large("void g@#(int a);\n", "// @BE fff\n"),
    "many that nobody defines": Large("void g@#(int a);\n"),
    "documented functions": Large("/// Says it.\n// @BE f@#\nvoid f@#(BE::Tensor y) {}\n", ""),
    "one long documentation": Large("/// Says it.\n", "", NOTED),
    "one long block of documentation": Large(" * Says it.\n", "/**\n", " */\n// @BE f\n" + HEAD),
    "very many parameters": Large("int a@#, ", "// @BE f\nvoid f(", "BE::Tensor y) {}\n"),
    "very many arrays": Large("BE::Tensor a@#, ", "// @BE f\nvoid f(", "BE::Tensor y) {}\n"),
    "very many tokens": Large("arg ", "// @BE f ", "ret\n" + HEAD),
    "very many attributes": Large("attr.a@#:int32=1 ", "// @BE f ", "ret\n" + HEAD),
    "very many axes": Large("n@# ", "// @BE f arg[", "] ret\n" + HEAD),
    "one long token": Large("n", "// @BE f arg[", "] ret\n" + HEAD),
    "a default of a parameter": Large("1+", "// @BE f\nvoid f(BE::Tensor y, int n = ", "1) {}\n"),
    "one long default": Large("1", "// @BE f\nvoid f(BE::Tensor y, int n = ", ") {}\n"),
    "one long type": Large("A<", "// @BE f\nvoid f(BE::Tensor y, ", " n) {}\n"),
    "pointers to pointers": Large("*", "// @BE f\nvoid f(BE::Tensor y, int ", "n) {}\n"),
    "members of a structure": Large("int a@#; ", "struct S { ", "};\n// @BE f\nvoid f(BE::Tensor y, S s) {}\n"),
    "names of an enumeration": Large("a@#, ", "enum S { ", "};\n// @BE f\nvoid f(BE::Tensor y, S s) {}\n"),
    "structures": Large("struct S@# { int a; };\n", "// @BE f\nvoid f(BE::Tensor y, S s) {}\n"),
    "attributes of the compiler": Large("[[a]] ", "// @BE f\n", HEAD),
    "GNU attributes": Large("__attribute__((a)) ", "// @BE f\n", HEAD),
    "words before a function": Large("inline ", "// @BE f\n", HEAD),
    "qualifiers": Large("a::", "// @BE f\nvoid ", "f(BE::Tensor y) {}\n"),
    "calls without semicolons": Large("D(a) ", after="g();\n"),
    # Nesting
    "nested parentheses": Large("(", NOTED + "void g(", ");\n", closing=")"),
    "opening parentheses": Large("(", NOTED + "void g"),
    "opening braces": Large("{", NOTED + "void g()"),
    "closing braces": Large("}"),
    "opening brackets": Large("[", NOTED + "int g("),
    "names before open parentheses": Large("f("),
    "nested templates": Large("A<", NOTED + "void g(", " x);\n", closing=">"),
    "opening angles": Large("a<", NOTED + "void g(", "b);\n"),
    "template parameters": Large("class T@#, ", NOTED + "template <", "class U> void g(U u) {}\n"),
    "template heads": Large("template <class T> ", after="void g();\n"),
    "namespaces": Large("namespace a { ", after="void g();\n", closing="} "),
    "namespaces with functions": Large("namespace a { void g();\n", closing="} "),
    "namespaces side by side": Large("namespace a@# { void g(); }\n"),
    "a long name of a namespace": Large("a::", NOTED + "namespace ", "b { void g(); }\n"),
    "classes": Large("struct A { ", after="void g();\n", closing="}; "),
    "one large class": Large("void g@#(int a); ", NOTED + "class A {", "};\n"),
    "bases of a class": Large("B@#, ", NOTED + "class A : ", "B { void g(); };\n"),
    "extern blocks": Large('extern "C" { ', after="void g();\n", closing="} "),
    "nested conditions": Large("#if X\n", closing="#endif\n"),
    "open conditions": Large("#if X\n"),
    "conditions with annotations": Large("#if X\n// @BE f@#\nvoid f@#(BE::Tensor y) {}\n", ""),
    "branches of one condition": Large("#elif X@#\nvoid g();\n", NOTED + "#if X\n", "#endif\n"),
    "branches with annotations": Large(f"#elif X@#\n// @BE f\nvoid f({BOTH}) {{}}\n", "#if X\n" + NOTED, "#endif\n"),
    "branches that do not close": Large("#elif X@#\nvoid g() {\n", NOTED + "#if X\nvoid g() {\n", "#endif\n}\n"),
    # Text
    "one long line": Large("int a; "),
    "one long word": Large("a", NOTED + "int ", ";\n"),
    "one long number": Large("1'000", NOTED + "int a[] = {", "};\n"),
    "comments": Large("//\n"),
    "comments with text": Large("// a b\n"),
    "comments between": Large("/**/a", after=";\n"),
    "a long comment": Large("a ", NOTED + "/* ", "*/\n"),
    "an open comment": Large("/* "),
    "stars": Large("*", NOTED + "/"),
    "slashes": Large("/"),
    "blank lines": Large("\n", after=HEAD),
    "spaces": Large(" ", after=HEAD),
    "tabs and spaces in code": Large("\t a", after=";\n"),
    "continued lines": Large("\\\n", after=HEAD),
    "a continued comment": Large("a\\\n", NOTED + "// ", "\n"),
    "a continued annotation": Large(" \\\n", "// @BE f", "\n" + HEAD),
    "a continued definition": Large("\\\n", NOTED + "#define A ", "\n" + HEAD),
    "backslashes": Large("\\"),
    "backslashes in a string": Large("\\", NOTED + 'auto a = "'),
    "raw strings": Large('R"(a)" ', after=";\n"),
    "open raw strings": Large('R"(a'),
    "open raw strings with delimiters": Large('R"d@#(a '),
    "a long raw string": Large(')x" ', NOTED + 'auto a = R"y(', ')y";\n'),
    "raw strings that never begin": Large('R"'),
    "strings": Large('"a" ', NOTED + "auto a = ", ";\n"),
    "quotes": Large('"'),
    "apostrophes": Large("'"),
    "characters": Large("'a', ", NOTED + "char a[] = {", "};\n"),
    "prefixes": Large("u8R", NOTED + "auto a = ", '"(a)";\n'),
    "trigraphs": Large("??=define A ??( ??/\n"),
    "digraphs": Large("%:define A <: :> <% %>\n"),
    "hashes": Large("#"),
    "hashes in lines": Large(" # a\n"),
    "hashes behind comments": Large("/* */ #"),
    "directives with strings": Large("#error \"a\" 'b' //\n"),
    "a long directive": Large("a/", NOTED + "#error "),
    "includes": Large('#include "a@#.h"\n'),
    "signs": Large("+-", NOTED + "int a = ", "1;\n"),
    "semicolons": Large(";"),
    "commas": Large(",", NOTED + "int a", ";\n"),
    "a table of numbers": Large("1.5f, ", NOTED + "float a[] = {", "};\n"),
    "a table in a macro's call": Large("1.5f, ", NOTED + "#define D(...) {__VA_ARGS__}\nfloat a[] = D(", "1);\n"),
    "a table of tables": Large("{1, 2}, ", NOTED + "int a[][2] = {", "};\n"),
    "letters that are none": Large("é", NOTED + "int ", ";\n"),
    "returns only": Large("int a;\r"),
    "annotations without a function": Large("// @BE f@#\n", ""),
    "annotations without a name": Large("// @BE\n", ""),
    "one annotation again": Large("// @BE f\n", "", HEAD),
    "brackets in an annotation": Large("[{(", "// @BE f ", "\n" + HEAD),
    "closed brackets in an annotation": Large("[a] ", "// @BE f ", "\n" + HEAD),
    "launches": Large("k<<<1, 2>>>(x); ", "// @BE f\nvoid f(BE::Tensor y) {", "}\n"),
    "launches that do not end": Large("<<<", f"// @BE f\nvoid f({BOTH}) {{"),
    "launches that end far away": Large("k<<<1, ", f"// @BE f\nvoid f({BOTH}) {{", ">>>(x); }\n"),
    "launches in functions": Large("// @BE f@#\nvoid f@#(BE::Tensor y) { k<<<1, 2>>>(x); }\n", ""),
    "launches in macros": Large(
        "#define D@#(x) k<<<1, 2>>>(x)\n// @BE f@#\nvoid f@#(BE::Tensor y) { D@#(y); }\n", "", times=MANY
    ),
    "ends of the process": Large("exit(1); ", "// @BE f\nvoid f(BE::Tensor y) {", "}\n"),
    "functions in a chain to an end": Large("// @BE f@#\nvoid f@#(BE::Tensor y) { h1(); }\n", CHAIN, times=MANY),
    "macros in a chain to an end": Large("// @BE f@#\nvoid f@#(BE::Tensor y) { D1; }\n", MACROS, times=MANY),
    "calls of a stream": Large("cudaLaunchKernel(", "// @BE f\nvoid f(BE::Tensor y) {", "}\n"),
    "kernels": Large("__global__ void k@#(float* x, int n) { }\n"),
    "using namespaces": Large("using namespace a;\n"),
    "using of BE": Large("using ::"),
    # What used to be read anew for each line
    "branches within branches": Large("#if X\n#else\n", closing="#endif\n"),
    "branches within branches with code": Large("#if X\nint a;\n#else\n{ int b; }\n", closing="#endif\n"),
    "hashes in code": Large("#", NOTED + "a "),
    "hashes in code and blanks": Large(" #", NOTED + "a "),
    "open comments in a condition": Large("/* ", NOTED + "#if "),
    "one documentation of many": Large("/// Says it.\n", "", "/// @BE f\n" + _each("void f@#(BE::Tensor y) {} ")),
    "annotations in one comment": Large("// @BE f@#\n// D(f@#)\n", "", HEAD),
    "streams beside a long macro": Large("a ", "#define A ", "\n" + _each(WITH_STREAM)),
    "entry points behind much code": Large("a ", "const char* a[] = {", "};\n" + _each(ENTRY)),
    "entry points before much code": Large("a ", _each(ENTRY), ";\n"),
    "entry points with many tokens": Large(MANY_TOKENS, "", times=MANY),
    "entry points in deep conditions": Large("#if X\n", "", _each(ENTRY), times=20_000),
    "entry points in deep namespaces": Large(
        "namespace b { void f@#(BE::Tensor y) {} }\n", NOTED + "namespace a {" * 250
    ),
    "entry points by macros": Large("// @BE f@#\nD(f@#)\n", LAUNCHES, times=MANY),
    "entry points of unknown macros": Large("// @BE f@# arg ret\nD(f@#)\n", "", times=MANY),
    "one thousand parameters": Large(PAIR, "// @BE f\nvoid f(", "BE::Tensor y) {}\n", times=499),
    "entry points with a thousand parameters": Large(_taking(_each("int b@#, ", 999)), ""),
    "parameters of one structure": Large(_taking(_each("S b@#, ", 50)), f"struct S {{{MEMBERS}int a998; }};\n"),
    "one name annotated often": Large(f"// @BE f\nvoid f({BOTH}) {{", ""),
    "annotated names before parentheses": Large("// @BE f@#\nf@#(x)\n", ""),
    "axes": Large(
        f"// @BE f@# {AXES}ret[n0] parallel[n0]\nvoid f@#({'const BE::Tensor, ' * 30}BE::Tensor y) {{}}\n", ""
    ),
    "arithmetic of axes": Large(
        f"// @BE f@# arg[n] ret[{'+'.join(['n'] * 30)}]\nvoid f@#({BOTH}) {{}}\n", "", times=MANY
    ),
    "fields of an attribute": Large("a@#:int32=1 ", "// @BE f ret attr.o:{", OPTIONS, times=700),
    "words that begin scopes": Large("namespace ", after="a(b {"),
    "words that begin classes": Large("class ", after="a(b {"),
    "namespaces with attributes": Large("__attribute__((a)) ", NOTED + "namespace a ", "b {"),
    "alignments": Large("alignas(", NOTED + "struct ", "{"),
    "double brackets": Large("[[", NOTED + "struct ", "{"),
    "blanks after using": Large(" ", NOTED + "using", "x;\n"),
    "blanks in directives": Large(" ", NOTED + "#define", "x\n"),
    "annotations over lines": Large("// [a]\n", "// @BE f arg[\n", HEAD),
    "annotations over lines that do not end": Large("// @BE f arg[\n// a\n", "", HEAD),
    "annotations with backslashes": Large("// @BE f@# ret \\\n// \n", "", HEAD),
    "kernels that are no kernels": Large("__global__ "),
    "enumerations of enumerations": Large("enum A@# { a }; ", "// @BE f\nvoid f(BE::Tensor y, A1 a, A2 b) {}\n"),
    "texts as defaults": Large("a", '// @BE f\nvoid f(BE::Tensor y, std::string_view t = "', '") {}\n'),
    "a long argument that is often repeated": Large("a ", NOTED + "#define D(a) ", f"\nvoid g(D({'w' * 90_000}));\n"),
    "long arguments that are often repeated": Large(
        f"void g@#(D({'w' * 2000}));\n", f"{NOTED}#define D(a) {'a ' * 300}\n"
    ),
    "calls of a macro that is too long": Large("D();", NOTED + "#define D " + "x " * 150_000 + "\n"),
    "calls of a macro with too many functions": Large("D();", NOTED + "#define D " + "f(){};" * 50_000 + "\n"),
    "calls of a macro with many functions": Large("D();", NOTED + "#define D " + "g();" * 24_000 + "\n"),
    "spellings of one enumeration": Large(SPELLINGS, "enum class S { " + _each("a@#, ", 999) + "};\n", times=MANY),
    "spellings of one structure": Large(SPELLINGS, f"struct S {{ {CONSTS}}};\n", times=MANY),
    "enumerations that do not end": Large("a ", f"{_of_types(1000)}{_each('enum S@# {')}"),
    "structures in structures": Large("int a; ", f"{_of_types(998)}{_each('struct S@# {')}", "};" * MANY + "\n"),
    "calls of one name": Large("f();"),
    "entry points of one structure": Large(
        "// @BE f@#\nvoid f@#(S s, BE::Tensor y) {}\n", f"struct S {{{MEMBERS}}};\n", times=MANY
    ),
}


class Cost(NamedTuple):
    """The outcome of reading a source, its processor time on a usual machine, and the most memory of the process."""

    outcome: str
    seconds: float
    peak_mb: float


def read(what: str, functions: object) -> Cost:
    """Read a source as a load does, up to the compiler."""
    source = SourceText(name="k.cu", text=SOURCES[what].text())
    units = (Unit(stem="k", sources=(source,), path=None),)
    request = BuildRequest(name="k", language="cuda", units=units, functions=functions, compile=CompileOptions())
    began = time.thread_time()
    try:
        make_key("k", *request_fields(request))
        bindings = bind(request)["k"]
        render_unit(render_named_types([source]) + render_inline_source([source]), "k", bindings, language="cuda")
        outcome = f"{len(bindings)} entry points"
    except BeRuntimeError as error:
        outcome = str(error)
    took_s = time.thread_time() - began
    return Cost(outcome, usual_seconds(took_s), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _read_apart(what: str, functions: object) -> Cost:
    """Read a source in a process of its own."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(_GIVEN_UP_S)
        os.write(writable, json.dumps(read(what, functions)).encode()[:_LONGEST])
        os._exit(0)
    os.close(writable)
    with open(readable, encoding="utf-8") as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return Cost(*json.loads(answer)) if answer else Cost("given up", float("inf"), 0.0)


def measure(functions: object, names: Sequence[str]) -> dict[str, Cost]:
    """Read each of some sources in a process of its own, which has nothing but our reader in its memory."""
    command = [sys.executable, "-m", "tests.support.large_sources", json.dumps(functions), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return {name: Cost(*cost) for name, cost in json.loads(done.stdout).items()}


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps({name: _read_apart(name, wanted) for name in sys.argv[2:] or SOURCES}))
