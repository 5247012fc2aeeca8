"""Whatever compilers and linkers look at decides whether a module is built again: no depfile lists most of these."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import be_runtime
from tests.support.looked_at import (
    ANSWERING,
    ASSEMBLED,
    BY_DEFSYM,
    INCLUDES,
    LINKED,
    MAYBE,
    ONE,
    PRECOMPILED,
    REAL_CXX,
    TWO,
    Case,
    apply,
    archives,
    assembler,
    both,
    compile_value,
    filled,
    link,
    linker,
    loaded,
    objects,
    same_stat,
    swap,
    thin_archive,
    versions,
    wrapper,
)
from tests.support.rebuilds import TICK_S, compiled
from tests.support.requirements import OPTIONAL
from tests.support.runtime import run_python, script

pytestmark = pytest.mark.usefixtures("tmp_cache")

KERNEL = (
    ANSWERING
    + """// @BE f
void f(BE::Tensor out) {{ (void)out; }}
"""
)
CASES = {
    # headers
    "a header": Case(INCLUDES, {"i/a.h": ONE}, {"i/a.h": TWO}, ("-I{}/i",)),
    "an edit that keeps size and time": Case(INCLUDES, {"i/a.h": ONE}, same_stat("i/a.h", TWO), ("-I{}/i",)),
    "a header of a header": Case(INCLUDES, {"i/a.h": '#include "b.h"', "i/b.h": ONE}, {"i/b.h": TWO}, ("-I{}/i",)),
    "a header beside the one that includes it": Case(
        '#include "s/a.h"', {"i/s/a.h": '#include "b.h"', "i/b.h": ONE}, {"i/s/b.h": TWO}, ("-I{}/i",)
    ),
    "an earlier folder": Case(INCLUDES, {"i/a.h": ONE, "e/x.h": ""}, {"e/a.h": TWO}, ("-I{}/e", "-I{}/i")),
    "an earlier folder that is not there yet": Case(INCLUDES, {"i/a.h": ONE}, {"e/a.h": TWO}, ("-I{}/e", "-I{}/i")),
    "a folder below one that is not there yet": Case(
        INCLUDES, {"i/a.h": ONE}, {"e/f/g/a.h": TWO}, ("-I{}/e/f/g", "-I{}/i")
    ),
    "-isystem": Case(INCLUDES, {"i/a.h": ONE, "s/x.h": ""}, {"s/a.h": TWO}, ("-isystem", "{}/s", "-isystem", "{}/i")),
    "CPATH comes before -isystem": Case(
        INCLUDES, {"s/a.h": ONE, "c/x.h": ""}, {"c/a.h": TWO}, ("-isystem", "{}/s"), environ={"CPATH": "{}/c"}
    ),
    "-iquote": Case(INCLUDES, {"i/a.h": ONE, "q/x.h": ""}, {"q/a.h": TWO}, ("-I{}/i", "-iquote", "{}/q")),
    "-idirafter": Case(MAYBE, {"d/x.h": ""}, {"d/a.h": TWO}, ("-idirafter", "{}/d")),
    "--include-directory=": Case(
        INCLUDES, {"i/a.h": ONE, "e/x.h": ""}, {"e/a.h": TWO}, ("--include-directory={}/e", "-I{}/i")
    ),
    "-include": Case("", {"a.h": ONE}, {"a.h": TWO}, ("-include", "{}/a.h")),
    "-imacros": Case("", {"a.h": ONE}, {"a.h": TWO}, ("-imacros", "{}/a.h")),
    "#include_next": Case(
        INCLUDES,
        {"e/a.h": "#include_next <a.h>", "f/x.h": "", "i/a.h": ONE},
        {"f/a.h": TWO},
        ("-I{}/e", "-I{}/f", "-I{}/i"),
    ),
    "a link to nothing that is filled": Case(MAYBE, link("i/a.h", "../r/a.h"), {"r/a.h": TWO}, ("-I{}/i",)),
    "a link to a folder that is not there": Case(MAYBE, link("i", "r/s"), {"r/s/a.h": TWO}, ("-I{}/i",)),
    "a link that leads elsewhere": Case(
        INCLUDES, both({"i/a.h": ONE, "j/a.h": TWO}, link("l", "i")), link("l", "j"), ("-I{}/l",)
    ),
    "a folder in a header's place": Case(
        INCLUDES,
        both({"i/a.h": ONE}, lambda root: (root / "e/a.h").mkdir(parents=True)),
        both(lambda root: (root / "e/a.h").rmdir(), {"e/a.h": TWO}),
        ("-I{}/e", "-I{}/i"),
    ),
    "folders that change places": Case(INCLUDES, {"i/a.h": ONE, "j/a.h": TWO}, swap("i", "j"), ("-I{}/i",)),
    "a header that goes": Case(
        INCLUDES, {"e/a.h": ONE, "i/a.h": TWO}, {"e/a.h": None}, ("-I{}/e", "-I{}/i")
    ),
    "a header that can't be read": Case(
        MAYBE.replace("#endif", "#else\n#define ANSWER 2\n#endif"), {"i/a.h": ONE}, {"i/a.h": None}, ("-I{}/i",)
    ),
    "__has_include": Case(MAYBE, {"i/x.h": ""}, {"i/a.h": TWO}, ("-I{}/i",)),
    "__has_include by a macro": Case(
        '#define NAME "a.h"\n#if __has_include(NAME)\n#include NAME\n#endif', {"i/x.h": ""}, {"i/a.h": TWO}, ("-I{}/i",)
    ),
    "__has_include with a comment": Case(
        '#if __has_include /* maybe */ ( "a.h" )\n#include "a.h"\n#endif', {"i/x.h": ""}, {"i/a.h": TWO}, ("-I{}/i",)
    ),
    "__has_include of a relative path": Case(
        '#if __has_include("../o/a.h")\n#include "../o/a.h"\n#endif', {"i/x.h": ""}, {"o/a.h": TWO}, ("-I{}/i",)
    ),
    "__has_include in a header": Case('#include "b.h"', {"i/b.h": MAYBE}, {"i/a.h": TWO}, ("-I{}/i",)),
    "a header that goes although it was only asked for": Case(
        '#if __has_include("a.h")\n#define ANSWER 1\n#else\n#define ANSWER 2\n#endif', {"i/a.h": ""}, {"i/a.h": None},
        ("-I{}/i",),
    ),
    "a header of the system's name": Case(
        "#include <cfloat>", {"i/x.h": ""}, {"i/cfloat": f"{TWO}#include_next <cfloat>"}, ("-I{}/i",)
    ),
    "a header of our name": Case(
        "", {"i/x.h": ""}, {"i/brainevent/check.h": f"{TWO}#include_next <brainevent/check.h>"}, includes=("{}/i",)
    ),
    "a precompiled header": Case(
        "",
        {"i/a.h": ONE, "o/a.h": TWO},
        lambda root: subprocess.run(
            [REAL_CXX, *PRECOMPILED, "-x", "c++-header", str(root / "o/a.h"), "-o", str(root / "i/a.h.gch")],
            check=True,
            timeout=60,
        ),
        ("-include", "{}/i/a.h"),
    ),
    # files that flags and sources name
    "@file": Case("", {"flags": "-DANSWER=1"}, {"flags": "-DANSWER=2"}, ("@{}/flags",)),
    "@file in @file": Case(
        "", {"flags": "@{}/more", "more": "-DANSWER=1"}, {"more": "-DANSWER=2"}, ("@{}/flags",)
    ),
    "-specs=": Case(
        "", {"my.specs": "*cpp:\n+ -DANSWER=1\n"}, {"my.specs": "*cpp:\n+ -DANSWER=2\n"}, ("-specs={}/my.specs",)
    ),
    ".incbin": Case(
        ASSEMBLED.replace("{}", '.incbin \\"{}/value.bin\\"'),
        lambda root: (root / "value.bin").write_bytes(b"\1\0\0\0"),
        lambda root: (root / "value.bin").write_bytes(b"\2\0\0\0"),
    ),
    "the assembler's .include": Case(
        ASSEMBLED.replace("{}", '.include \\"{}/value.s\\"'), {"value.s": ".long 1\n"}, {"value.s": ".long 2\n"}
    ),
    "the assembler's .include, looked for": Case(
        ASSEMBLED.replace("{}", '.include \\"value.s\\"'),
        {"b/value.s": ".long 1\n", "a/x": ""},
        {"a/value.s": ".long 2\n"},
        ("-Wa,-I,{}/a,-I,{}/b",),
    ),
    # programs
    "a compiler that is a script": Case("", wrapper("cxx", 1), wrapper("cxx", 2), environ={"CXX": "{}/cxx"}),
    "a file that the compiler's script reads": Case(
        "",
        both({"value": "1\n"}, lambda root: script(
            root / "cxx", f"read -r value < {root}/value", f'exec {REAL_CXX} "-DANSWER=$value" "$@"'
        )),
        {"value": "2\n"},
        environ={"CXX": "{}/cxx"},
    ),
    "a header of a compiler that runs without the library": Case(
        INCLUDES,
        both({"i/a.h": ONE, "e/x.h": ""}, lambda root: script(
            root / "cxx", "unset LD_PRELOAD", f'exec {REAL_CXX} "$@"'
        )),
        {"e/a.h": TWO},
        ("-I{}/e", "-I{}/i"),
        environ={"CXX": "{}/cxx"},
    ),
    "a header that the compiler's script makes": Case(
        "",
        both({"value": "1\n"}, lambda root: script(
            root / "cxx",
            f"read -r value < {root}/value",
            f'echo "#define ANSWER $value" > {root}/new.$$ && mv {root}/new.$$ {root}/made.h',
            f'exec {REAL_CXX} -include {root}/made.h "$@"',
        )),
        {"value": "2\n"},
        environ={"CXX": "{}/cxx"},
    ),
    "a library that is loaded into the compiler": Case(
        INCLUDES,
        both({"i/a.h": ONE, "j/a.h": TWO}, loaded("i"), lambda root: script(
            root / "cxx", f'LD_PRELOAD="$LD_PRELOAD:{root}/l.so" exec {REAL_CXX} "$@"'
        )),
        loaded("j"),
        environ={"CXX": "{}/cxx"},
    ),
    "an assembler first on PATH": Case(
        BY_DEFSYM, {"bin/x": ""}, assembler("bin/as"), environ={"PATH": f"{{}}/bin:{os.environ['PATH']}"}
    ),
    "an assembler that may be run now": Case(
        BY_DEFSYM,
        both({"bin/x": ""}, assembler("bin/as"), lambda root: (root / "bin/as").chmod(0o644)),
        lambda root: (root / "bin/as").chmod(0o755),
        environ={"PATH": f"{{}}/bin:{os.environ['PATH']}"},
    ),
    "an assembler in -B": Case(BY_DEFSYM, {"bin/x": ""}, assembler("bin/as"), ("-B{}/bin",)),
    "a linker first on PATH": Case(
        LINKED,
        both({"bin/x": ""}, *objects("one.o", "two.o")),
        linker("bin"),
        ldflags=("{}/one.o",),
        environ={"PATH": f"{{}}/bin:{os.environ['PATH']}"},
    ),
    "a linker in -B": Case(
        LINKED, both({"bin/x": ""}, *objects("one.o", "two.o")), linker("bin"), ldflags=("{}/one.o", "-B{}/bin")
    ),
    # what is linked
    "x.o": Case(LINKED, *objects("x.o"), ldflags=("{}/x.o",)),
    "x.obj": Case(LINKED, *objects("x.obj"), ldflags=("{}/x.obj",)),
    "x.lo": Case(LINKED, *objects("x.lo"), ldflags=("{}/x.lo",)),
    "an object without a suffix": Case(LINKED, *objects("d/object"), ldflags=("{}/d/object",)),
    "-l": Case(LINKED, *archives("lib/libx.a"), ldflags=("-L{}/lib", "-lx")),
    "-l:": Case(LINKED, *archives("lib/libx.a"), ldflags=("-L{}/lib", "-l:libx.a")),
    "an archive in @file": Case(
        LINKED,
        both({"libs": "-L{}/lib -lx"}, archives("lib/libx.a")[0]),
        archives("lib/libx.a")[1],
        ldflags=("@{}/libs",),
    ),
    "an archive in an earlier folder": Case(
        LINKED,
        both({"e/x": ""}, archives("lib/libx.a")[0]),
        archives("e/libx.a")[1],
        ldflags=("-L{}/e", "-L{}/lib", "-lx"),
    ),
    "a shared library before an archive": Case(
        LINKED,
        archives("lib/libx.a")[0],
        lambda root: compile_value(root / "lib/libx.so", 2, "-shared"),
        ldflags=("-L{}/lib", "-lx", "-Wl,-rpath,{}/lib"),
    ),
    "a shared library that becomes an archive": Case(
        LINKED,
        both(archives("lib/libx.a")[1], lambda root: compile_value(root / "lib/libx.so", 1, "-shared")),
        {"lib/libx.so": None},
        ldflags=("-L{}/lib", "-lx", "-Wl,-rpath,{}/lib"),
    ),
    "an archive in LIBRARY_PATH": Case(
        LINKED,
        both({"e/x": ""}, archives("far/libx.a")[0]),
        archives("e/libx.a")[1],
        ldflags=("-lx",),
        environ={"LIBRARY_PATH": "{}/e:{}/far"},
    ),
    "a member of a thin archive": Case(
        LINKED, thin_archive("lib/libx.a"), objects("lib/member.o")[1], ldflags=("-L{}/lib", "-lx")
    ),
    "a later version of a library": Case(
        LINKED, *versions("lib/libx.so.1", "lib/libx.so.2"), ldflags=("-L{}/lib", "-lx")
    ),
    "a library that only linkers look for beside a versioned one": Case(
        LINKED, *versions("lib/libx.so.1", "lib/libx.so"), ldflags=("-L{}/lib", "-lx", "-Wl,-rpath,{}/lib")
    ),
    "a versioned library in an earlier folder": Case(
        LINKED,
        both({"e/x": ""}, versions("lib/libx.so.1", "e/libx.so.1")[0]),
        versions("lib/libx.so.1", "e/libx.so.1")[1],
        ldflags=("-L{}/e", "-L{}/lib", "-lx"),
    ),
    "a versioned library in an earlier folder that is not there yet": Case(
        LINKED, *versions("lib/libx.so.1", "e/libx.so.1"), ldflags=("-L{}/e", "-L{}/lib", "-lx")
    ),
    "a linker script": Case(
        LINKED,
        both(archives("lib/liby.a")[0], archives("lib/libz.a")[1], {"lib/libx.so": "INPUT(-ly)\n"}),
        {"lib/libx.so": "INPUT(-lz)\n"},
        ldflags=("-L{}/lib", "-lx"),
    ),
}  # fmt: skip


def answer(case: Case, root: Path, *, force_rebuild: bool = False) -> tuple[int, Path]:
    """The answer of the module as a load gives it now, and its library."""
    time.sleep(TICK_S)
    module = be_runtime.load_cpp_inline(
        "looked_at",
        KERNEL.format(text=filled(case.text, root)),
        extra_cflags=[filled(flag, root) for flag in case.cflags],
        extra_include_paths=[filled(path, root) for path in case.includes],
        extra_ldflags=[filled(flag, root) for flag in case.ldflags],
        auto_register=False,
        force_rebuild=force_rebuild,
    )
    # In a process of its own: libraries of one name that modules are linked with would be taken for one another.
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).answer())"
    done = subprocess.run([sys.executable, "-SE", "-c", code, module.path], capture_output=True, check=True, timeout=60)
    return int(done.stdout), module.path


def clang() -> str | None:
    return shutil.which("clang++")


COMPILERS = ["g++", pytest.param("clang++", marks=pytest.mark.needs("clang++"))]


@pytest.mark.needs("ar")
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", CASES)
def test_what_a_build_looked_at_decides_it(name: str, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    case, root = CASES[name], tmp_path / "project"
    root.mkdir()
    if compiler == "clang++" and name == "a precompiled header":
        pytest.skip(f"{OPTIONAL}a compiler that reads gcc's")
    if compiler == "clang++":
        monkeypatch.setenv("CXX", "clang++")
    for variable, value in case.environ.items():
        monkeypatch.setenv(variable, filled(value, root))
    apply(case.before, root)
    first = answer(case, root)
    assert first[0] == 1
    assert answer(case, root) == first, "nothing has changed"
    apply(case.after, root)
    second = answer(case, root)
    if second[0] == 1 and answer(case, root, force_rebuild=True)[0] == 1:
        pytest.skip(f"{OPTIONAL}a compiler that looks there")
    assert second[0] == 2
    assert answer(case, root) == second


def test_a_file_of_a_folder_that_asks_is_compiled_again(tmp_path: Path):
    folder = tmp_path / "kernels"
    folder.mkdir()
    kernel = '#include "brainevent/common.h"\n{}\n// @BE {}\nvoid {}(BE::Tensor out) {{ (void)out; }}\n'
    (folder / "asks.cc").write_text(kernel.format('#include "shared.h"', "f", "f"))
    (folder / "shared.h").write_text(MAYBE.replace("a.h", "answer.h"))
    (folder / "other.cc").write_text(kernel.format("", "g", "g"))
    load = partial(be_runtime.load_cpp_dir, folder, auto_register=False)
    assert compiled(load()) == {"asks.cc", "other.cc"}
    (folder / "answer.h").write_text(TWO)
    assert compiled(load()) == {"asks.cc"}


def test_another_process_sees_it_too(tmp_path: Path):
    header = tmp_path / "answer.h"
    code = (
        "import be_runtime, sys; print(be_runtime.load_cpp_inline('looked_at', sys.argv[1], auto_register=False).path)"
    )
    source = KERNEL.format(text=MAYBE.replace("a.h", str(header)))
    first = run_python(code, source).stdout
    assert run_python(code, source).stdout == first
    header.write_text(TWO)
    assert run_python(code, source).stdout != first


@pytest.mark.needs("ar")
def test_a_project_inside_of_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    case = CASES["-l"]
    apply(case.before, tmp_path)
    tmp_path.chmod(0o700)
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path))
    assert answer(case, tmp_path)[0] == 1
    apply(case.after, tmp_path)
    assert answer(case, tmp_path)[0] == 2


@pytest.mark.needs("ar", "ccache")
def test_a_library_that_is_linked_by_a_compiler_behind_ccache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    case = CASES["-l"]
    apply(case.before, tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/g++").symlink_to(str(shutil.which("ccache")))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("CXX", f"{tmp_path}/bin/g++")
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    first = answer(case, tmp_path)
    assert first[0] == 1
    assert answer(case, tmp_path) == first
    apply(case.after, tmp_path)
    assert answer(case, tmp_path)[0] == 2


def test_a_preloaded_sanitizer_stays_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = subprocess.run([REAL_CXX, "-print-file-name=libasan.so"], stdout=subprocess.PIPE, text=True, check=True)
    library = Path(found.stdout.strip())
    if not library.is_absolute():
        pytest.skip("no AddressSanitizer")
    monkeypatch.setenv("LD_PRELOAD", str(library.resolve()))
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    header = tmp_path / "i/a.h"
    apply(CASES["a header"].before, tmp_path)
    source, flags = KERNEL.format(text=INCLUDES), [f"-I{header.parent}"]
    module = be_runtime.load_cpp_inline("looked_at", source, extra_cflags=flags, auto_register=False)
    assert str(header) in (module.path.parent / "manifest.json").read_text()
