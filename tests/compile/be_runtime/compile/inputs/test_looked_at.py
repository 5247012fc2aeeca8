"""Whatever compilers and linkers look at decides whether a module is built again: no depfile lists most of these."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import be_runtime
from tests.support.looked_at import (
    ANSWERING,
    INCLUDES,
    LINKED,
    MAYBE,
    ONE,
    REAL_CXX,
    TWO,
    Case,
    apply,
    archives,
    both,
    compile_value,
    filled,
)
from tests.support.rebuilds import TICK_S
from tests.support.requirements import OPTIONAL, in_full
from tests.support.runtime import script

ASSEMBLED = (
    'extern "C" int assembled; asm(".data\\n.globl assembled\\n.hidden assembled\\nassembled:\\n{}\\n.text");\n'
    "#define ANSWER assembled"
)
BY_DEFSYM = ASSEMBLED.replace("{}", ".ifdef OTHER\\n.long 2\\n.else\\n.long 1\\n.endif")
KERNEL = ANSWERING + "// @BE f\nvoid f(BE::Tensor out) {{ (void)out; }}\n"
IN_I, IN_E_I = ("-I{}/i",), ("-I{}/e", "-I{}/i")
LINK_X, LINK_E_X = ("-L{}/lib", "-lx"), ("-L{}/e", "-L{}/lib", "-lx")
AT_RUN_TIME = ("-Wl,-rpath,{}/lib",)
OWN_CXX, OWN_PATH = {"CXX": "{}/cxx"}, {"PATH": f"{{}}/bin:{os.environ['PATH']}"}
ONE_HEADER: dict[str, str | None] = {"i/a.h": ONE}
VALUE_FILE: dict[str, str | None] = {"value": "1\n"}
OWN_BIN: dict[str, str | None] = {"bin/x": ""}


def versions(one: str, two: str) -> tuple[Callable[[Path], object], Callable[[Path], object]]:
    return (
        (lambda root: compile_value(root / one, 1, "-shared")),
        (lambda root: compile_value(root / two, 2, "-shared")),
    )


def objects(one: str, two: str = "") -> tuple[Callable[[Path], object], Callable[[Path], object]]:
    return (lambda root: compile_value(root / one, 1)), (lambda root: compile_value(root / (two or one), 2))


def thin_archive(name: str) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        member = (root / name).with_name("member.o")
        compile_value(member, 1)
        subprocess.run(["ar", "rcsT", str(root / name), str(member)], check=True, timeout=60)

    return make


def wrapper(name: str, value: int) -> Callable[[Path], object]:
    """A compiler that defines what the answer is."""
    return lambda root: script(root / name, f'exec {REAL_CXX} "-DANSWER={value}" "$@"')


def assembler(name: str) -> Callable[[Path], object]:
    return lambda root: script(root / name, f'exec {shutil.which("as")} --defsym OTHER=1 "$@"')


def linker(folder: str) -> Callable[[Path], object]:
    """Linkers of all names that link another object than they are told to."""

    def make(root: Path) -> None:
        (root / folder).mkdir(exist_ok=True)
        for name in ("ld", "ld.gold", "ld.bfd", "ld.lld"):
            real = shutil.which(name)
            if real is not None:
                line = f'for each; do shift; case $each in *one.o) each={root}/two.o;; esac; set -- "$@" "$each"; done'
                script(root / folder / name, line, f'exec {real} "$@"')

    return make


def loaded(folder: str) -> Callable[[Path], object]:
    """A library that is loaded into the compiler and has it look for headers in a folder."""

    def make(root: Path) -> None:
        text = f'setenv("CPATH", "{root}/{folder}", 1);'
        (root / "l.c").write_text(f"#include <stdlib.h>\n__attribute__((constructor)) void f(void) {{ {text} }}\n")
        command = ["cc", "-fPIC", "-shared", str(root / "l.c"), "-o", str(root / "l.so")]
        subprocess.run(command, check=True, timeout=60)

    return make


def swap(first: str, second: str) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        (root / first).rename(root / "aside")
        (root / second).rename(root / first)
        (root / "aside").rename(root / second)

    return change


def link(name: str, target: str) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)

    return change


def cxx(*lines: str) -> Callable[[Path], object]:
    """A script that stands for the compiler."""
    return lambda root: script(root / "cxx", *(filled(line, root) for line in lines))


X1, X2 = archives("lib/libx.a")
E2 = archives("e/libx.a")[1]
V1, VE = versions("lib/libx.so.1", "e/libx.so.1")
CASES = {
    # headers
    "a header": Case(INCLUDES, ONE_HEADER, {"i/a.h": TWO}, IN_I),
    "an earlier folder that is not there yet": Case(INCLUDES, ONE_HEADER, {"e/a.h": TWO}, IN_E_I),
    "a link to nothing that is filled": Case(MAYBE, link("i/a.h", "../r/a.h"), {"r/a.h": TWO}, IN_I),
    "a link that leads elsewhere": Case(
        INCLUDES, both({**ONE_HEADER, "j/a.h": TWO}, link("l", "i")), link("l", "j"), ("-I{}/l",)
    ),
    "a folder in a header's place": Case(
        INCLUDES, both(ONE_HEADER, lambda root: (root / "e/a.h").mkdir(parents=True)),
        both(lambda root: (root / "e/a.h").rmdir(), {"e/a.h": TWO}), IN_E_I
    ),
    "folders that change places": Case(INCLUDES, {**ONE_HEADER, "j/a.h": TWO}, swap("i", "j"), IN_I),
    "a header that was only asked for goes": Case(
        '#if !__has_include("a.h")\n#define ANSWER 2\n#endif', {"i/a.h": ""}, {"i/a.h": None}, IN_I
    ),
    "__has_include by a macro": Case(
        '#define NAME "a.h"\n#if __has_include(NAME)\n#include NAME\n#endif', {"i/x.h": ""}, {"i/a.h": TWO}, IN_I
    ),
    "a header of our name": Case(
        "", {"i/x.h": ""}, {"i/brainevent/check.h": f"{TWO}#include_next <brainevent/check.h>"}, includes=("{}/i",)
    ),
    # files that flags and sources name
    "@file in @file": Case("", {"f": "@{}/more", "more": "-DANSWER=1"}, {"more": "-DANSWER=2"}, ("@{}/f",)),
    "-specs=": Case("", {"s": "*cpp:\n+ -DANSWER=1\n"}, {"s": "*cpp:\n+ -DANSWER=2\n"}, ("-specs={}/s",)),
    ".incbin": Case(ASSEMBLED.replace("{}", '.incbin \\"{}/v\\"'), {"v": "\1\0\0\0"}, {"v": "\2\0\0\0"}),
    "the assembler's .include": Case(
        ASSEMBLED.replace("{}", '.include \\"v.s\\"'), {"b/v.s": ".long 1\n"}, {"a/v.s": ".long 2\n"},
        ("-Wa,-I,{}/a,-I,{}/b",)
    ),
    # programs
    "a script that is called by a link": Case(
        "", both(wrapper("real", 1), link("cxx", "real")), wrapper("real", 2), environ=OWN_CXX
    ),
    "a file that the compiler's script reads": Case(
        "", both(VALUE_FILE, cxx("read -r value < {}/value", f'exec {REAL_CXX} "-DANSWER=$value" "$@"')),
        {"value": "2\n"}, environ=OWN_CXX
    ),
    "a header of a compiler that runs without the library": Case(
        INCLUDES, both({**ONE_HEADER, "e/x.h": ""}, cxx("unset LD_PRELOAD", f'exec {REAL_CXX} "$@"')),
        {"e/a.h": TWO}, IN_E_I, environ=OWN_CXX
    ),
    "a library that is loaded into the compiler": Case(
        INCLUDES, both({**ONE_HEADER, "j/a.h": TWO}, loaded("i"), cxx(
            f'LD_PRELOAD="$LD_PRELOAD:{{}}/l.so" exec {REAL_CXX} "$@"'
        )), loaded("j"), environ=OWN_CXX
    ),
    "an assembler first on PATH": Case(BY_DEFSYM, OWN_BIN, assembler("bin/as"), environ=OWN_PATH),
    "a linker in -B": Case(
        LINKED, both(OWN_BIN, *objects("one.o", "two.o")), linker("bin"), ldflags=("{}/one.o", "-B{}/bin")
    ),
    # what is linked
    "an object without a suffix": Case(LINKED, *objects("object"), ldflags=("{}/object",)),
    "-l": Case(LINKED, X1, X2, ldflags=LINK_X),
    "an archive in @file": Case(LINKED, both({"libs": "-L{}/lib -lx"}, X1), X2, ldflags=("@{}/libs",)),
    "an archive in an earlier folder": Case(LINKED, both({"e/x": ""}, X1), E2, ldflags=LINK_E_X),
    "a shared library before an archive": Case(
        LINKED, X1, lambda root: compile_value(root / "lib/libx.so", 2, "-shared"), ldflags=(*LINK_X, *AT_RUN_TIME)
    ),
    "a shared library that becomes an archive": Case(
        LINKED, both(X2, lambda root: compile_value(root / "lib/libx.so", 1, "-shared")), {"lib/libx.so": None},
        ldflags=(*LINK_X, *AT_RUN_TIME)
    ),
    "an archive in LIBRARY_PATH": Case(
        LINKED, both({"e/x": ""}, X1), E2, ldflags=("-lx",), environ={"LIBRARY_PATH": "{}/e:{}/lib"}
    ),
    "a member of a thin archive": Case(LINKED, thin_archive("lib/libx.a"), objects("lib/member.o")[1], ldflags=LINK_X),
    "a later version of a library": Case(LINKED, *versions("lib/libx.so.1", "lib/libx.so.2"), ldflags=LINK_X),
    "a versioned library in an earlier folder": Case(LINKED, both({"e/x": ""}, V1), VE, ldflags=LINK_E_X),
    "a versioned library in an earlier folder that is not there yet": Case(LINKED, V1, VE, ldflags=LINK_E_X),
    "a linker script": Case(
        LINKED, both(archives("lib/liby.a")[0], archives("lib/libz.a")[1], {"lib/libx.so": "INPUT(-ly)\n"}),
        {"lib/libx.so": "INPUT(-lz)\n"}, ldflags=LINK_X
    ),
}  # fmt: skip
SHORT = (
    *("an earlier folder that is not there yet", "a folder in a header's place", "__has_include by a macro", ".incbin"),
    *("a header that was only asked for goes", "a script that is called by a link", "-l"),
    *("a header of a compiler that runs without the library", "an assembler first on PATH"),
    *(
        "a shared library before an archive",
        "a later version of a library",
        "a versioned library in an earlier folder that is not there yet",
    ),
)
CLANG = [pytest.param("clang++", name, marks=(pytest.mark.full, pytest.mark.needs("clang++"))) for name in CASES]
TRIED = [*(("g++", name) if name in SHORT else in_full("g++", name) for name in CASES), *CLANG]


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


def try_case(case: Case, root: Path) -> None:
    """Build, find it again, edit, and find that it is built again."""
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


@pytest.mark.needs("ar")
@pytest.mark.parametrize(("compiler", "name"), TRIED)
def test_what_a_build_looked_at_decides_it(compiler: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The cache is the session's: each case has a folder of its own, and so inputs of its own."""
    case = CASES[name]
    for variable, text in {**({} if compiler == "g++" else {"CXX": compiler}), **case.environ}.items():
        monkeypatch.setenv(variable, filled(text, tmp_path))
    try_case(case, tmp_path)


@pytest.mark.needs("ar")
def test_a_project_inside_of_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tmp_path.chmod(0o700)
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path))
    try_case(CASES["-l"], tmp_path)


@pytest.mark.needs("ar", "ccache")
def test_a_library_that_is_linked_by_a_compiler_behind_ccache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/g++").symlink_to(str(shutil.which("ccache")))
    for name, text in {**OWN_PATH, "CXX": "{}/bin/g++", "CCACHE_DIR": "{}/ccache"}.items():
        monkeypatch.setenv(name, filled(text, tmp_path))
    try_case(CASES["-l"], tmp_path)


def test_a_preloaded_sanitizer_stays_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = subprocess.run([REAL_CXX, "-print-file-name=libasan.so"], stdout=subprocess.PIPE, text=True, check=True)
    library = Path(found.stdout.strip())
    if not library.is_absolute():
        pytest.skip("no AddressSanitizer")
    monkeypatch.setenv("LD_PRELOAD", str(library.resolve()))
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    apply(ONE_HEADER, tmp_path)
    source, flags = KERNEL.format(text=INCLUDES), [f"-I{tmp_path}/i"]
    module = be_runtime.load_cpp_inline("looked_at", source, extra_cflags=flags, auto_register=False)
    assert str(tmp_path / "i/a.h") in (module.path.parents[1] / "manifest.json").read_text()
