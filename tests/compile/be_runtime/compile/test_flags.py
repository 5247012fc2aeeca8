"""Flags reach the compiler and the linker as they were given, in folders and under options of every kind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest

import be_runtime
from tests.support.runtime import call, forwarding_compiler, libraries, real_compiler

WARNED = """
#include "brainevent/common.h"
// @BE f arg[n] ret[n]
void f(const BE::Tensor x, BE::Tensor y) { int unused = 3; }
"""


def test_warnings_are_printed_once_a_build_and_reported_from_the_cache_too(capsys: pytest.CaptureFixture[str]):
    for force, printed in ((True, 1), (False, 0)):
        module = be_runtime.load_cpp_inline("warned", WARNED, extra_cflags=["-Wall"], force_rebuild=force)
        assert capsys.readouterr().err.count("be_runtime: warned: the compiler warns\n  warned:4:") == printed
        (warning,) = module.report().compiler_warnings
        assert "unused variable 'unused'" in warning
        assert warning in str(module.report())
        assert module.report().to_json()["compiler_warnings"] == [warning]
    be_runtime.load_cpp_inline("warned", WARNED, extra_cflags=["-Wall"], force_rebuild=True, verbose=True)
    assert capsys.readouterr().err.count("warning: ") == 1  # the log has it


SEEN = r"""
#include "brainevent/common.h"
#include <string.h>
// What the compiler was asked for.
// @BE seen
void seen(BE::Tensor out) {
  int32_t* to = out.data_ptr<int32_t>();
#ifdef __OPTIMIZE__
  to[0] = 1;
#else
  to[0] = 0;
#endif
#ifdef __FAST_MATH__
  to[1] = 1;
#else
  to[1] = 0;
#endif
  to[2] = __cplusplus / 100;
#ifdef LEVEL
  to[3] = LEVEL;
#else
  to[3] = -1;
#endif
}
"""


def seen(name: str, **options: object) -> list[int]:
    be_runtime.load_cpp_inline(name, SEEN, **options)  # type: ignore[arg-type]
    return [int(value) for value in call(f"{name}.seen", jax.ShapeDtypeStruct((4,), np.int32))]


def test_defaults():
    assert seen("flags_default") == [1, 0, 2017, -1]


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_optimization_level(level: int):
    assert seen(f"flags_o{level}", optimization_level=level)[0] == int(level > 0)
    command = be_runtime.load_cpp_inline(f"flags_o{level}", SEEN, optimization_level=level).path.parent / "build.log"
    assert f" -O{level} " in command.read_text()


def test_fast_math():
    assert seen("flags_fast", use_fast_math=True)[1] == 1


NATIVE = r"""
#include "brainevent/common.h"
// @BE instructions
void instructions(BE::Tensor out) {
  out.data_ptr<int32_t>()[0] = 0
#ifdef __AVX2__
    + 1
#endif
#ifdef BE_INTERNAL_CPU
    + 2
#endif
  ;
}
"""


def test_native_uses_what_this_cpu_has(tmp_path: Path):
    predefined = [real_compiler(), "-march=native", "-dM", "-E", "-x", "c++", "/dev/null"]
    macros = subprocess.run(predefined, capture_output=True, text=True, check=True).stdout
    out = jax.ShapeDtypeStruct((1,), np.int32)
    modules = [
        be_runtime.load_cpp_inline("native", NATIVE, native=native, target_prefix=f"native_{native}")
        for native in (False, True)
    ]
    assert [int(call(f"native_{native}.instructions", out)[0]) for native in (False, True)] == [
        0,
        2 + ("__AVX2__" in macros),
    ]
    assert modules[0].path != modules[1].path
    with pytest.raises(be_runtime.CacheError, match="native: compiled with native=True"):
        be_runtime.export_prebuilt(tmp_path)


def test_an_author_s_flag_wins():
    assert seen("flags_std", extra_cflags=["-std=c++20", "-O0", "-DLEVEL=7"]) == [0, 0, 2020, 7]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file to which the compiler appends its arguments, each ended by a null character."""
    record = tmp_path / "argv"
    compiler = forwarding_compiler(tmp_path / "g++", f'printf "%s\\0" "$@" >> \'{record}\'')
    monkeypatch.setenv("BE_CXX", str(compiler))
    return record


ODD = [
    "a b", " a", "a ", "", 'a"b', "a'b", "'", '"', "a\nb", "\n", "a\n\nb\n", "a\r\nb", "\r", "a\tb", "\v\f\x1b\x7f",
    "$HOME", "${HOME}", "$$", "$", "$(echo x)", "`echo x`", "a\\b", "\\", "\\n", "a\\\nb", "*", "?", "~", "a;b", "a&b",
    "a|b", "a>b", "#a", "a:b", "%s", "!", "ä€😀", "\udcff", "-", "@", "^", "$\n", "$ ", "$:",
]  # fmt: skip


def test_every_argument_arrives_as_one(tmp_cache: Path, recorded: Path):
    """The real compiler takes any -D; the record says what it was given."""
    flags = [f"-DODD{index}={text}" for index, text in enumerate(ODD)]
    be_runtime.load_cpp_inline("flags_recorded", SEEN, extra_cflags=flags, extra_ldflags=["-Wl,-rpath,/a b/$ORIGIN"])
    given = recorded.read_bytes().decode("utf-8", "surrogateescape").split("\0")
    assert [flag for flag in given if flag.startswith("-DODD")] == flags
    assert "-Wl,-rpath,/a b/$ORIGIN" in given


STRINGIFIED = r"""
#include "brainevent/common.h"
#include <string.h>
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
// @BE text
void text(BE::Tensor out) {
  const char* parts[] = {SPACES, QUOTES, DOLLAR, BACKSLASH, TEXT(BARE)};
  char* to = out.data_ptr<char>();
  for (const char* part : parts) {
    memcpy(to, part, strlen(part) + 1);
    to += strlen(part) + 1;
  }
  *to = 1;
}
// @BE newline
void newline(BE::Tensor out) { out.data_ptr<int32_t>()[0] = sizeof(NEWLINE
) + 40; }
"""


def test_the_real_compiler_sees_spaces_quotes_dollars_backslashes_and_newlines():
    flags = [
        '-DSPACES="a  b c"',
        '-DQUOTES="\'a\' \\"b\\""',
        '-DDOLLAR="$HOME $$ ${x} $(y) `z`"',
        '-DBACKSLASH="a\\\\b"',
        "-DBARE=x y",
        "-DNEWLINE=char\n+ 0",
    ]
    be_runtime.load_cpp_inline("flags_text", STRINGIFIED, ["text"], extra_cflags=[*flags[:-1], "-DNEWLINE=char"])
    out = call("flags_text.text", jax.ShapeDtypeStruct((100,), np.uint8))
    parts = np.asarray(out).tobytes().split(b"\0")[:5]
    assert parts == [b"a  b c", b"'a' \"b\"", b"$HOME $$ ${x} $(y) `z`", b"a\\b", b"x y"]


def test_linker_forms(tmp_path: Path, tmp_cache: Path, recorded: Path):
    library = shared_library(tmp_path / "libs", "libplain.so", "plain", 5)
    flags = ["-lm", str(library), "-rpath=/run/here", "-Wl,-rpath,/and/there", "-Wl,-z,now", "-pthread"]
    module = be_runtime.load_cpp_inline("flags_linked", user_of("plain"), extra_ldflags=flags)
    given = recorded.read_text().split("\0")
    link = given[given.index("-shared") :]
    assert [flag for flag in link if flag in flags] == [flag for flag in flags if flag != "-rpath=/run/here"]
    path = runpath(module.path)
    assert "/run/here" in path
    assert "/and/there" in path
    assert value_of("flags_linked") == 5


def test_a_runpath_with_a_comma_and_spaces(tmp_path: Path):
    folder = tmp_path / "a, b"
    shared_library(folder, "libcomma.so", "comma", 6)
    module = be_runtime.load_cpp_inline(
        "flags_comma", user_of("comma"), extra_ldflags=[f"-L{folder}", "-lcomma", f"-rpath={folder}"]
    )
    assert str(folder) in runpath(module.path)
    assert value_of("flags_comma") == 6


def shared_library(folder: Path, file: str, function: str, value: int, soname: str | None = None) -> Path:
    """A library with one function."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{file}.cc"
    source.write_text(f'extern "C" int {function}() {{ return {value}; }}\n')
    named = [] if soname is None else [f"-Wl,-soname,{soname}"]
    command = [real_compiler(), "-shared", "-fPIC", *named, str(source), "-o", str(folder / file)]
    subprocess.run(command, check=True, timeout=60)
    return folder / file


def user_of(function: str) -> str:
    return (
        f'#include "brainevent/common.h"\nextern "C" int {function}();\n'
        f"// @BE value\nvoid value(BE::Tensor out) {{ out.data_ptr<int32_t>()[0] = {function}(); }}\n"
    )


def value_of(module: str) -> int:
    return int(call(f"{module}.value", jax.ShapeDtypeStruct((), np.int32)))


def runpath(library: Path) -> str:
    done = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True, timeout=60)
    return "".join(line for line in done.stdout.splitlines() if "RUNPATH" in line or "RPATH" in line)


@pytest.mark.parametrize("form", ["joined", "separate"])
def test_a_library_of_which_only_a_version_is_there(tmp_path: Path, form: str):
    """As in wheels, which hold libcublas.so.13 and no libcublas.so."""
    folder = tmp_path / "libs"
    name = f"versioned_{form}"
    for version in (9, 10):
        shared_library(folder, f"lib{name}.so.{version}", name, version, soname=f"lib{name}.so.{version}")
    (folder / f"lib{name}.so.99-gdb.py").write_text("not a library")
    flags = [f"-L{folder}", f"-l{name}"] if form == "joined" else ["-L", str(folder), "-l", name]
    be_runtime.load_cpp_inline(f"flags_{name}", user_of(name), extra_ldflags=flags)
    assert value_of(f"flags_{name}") == 10


def test_a_static_library_comes_before_a_version(tmp_path: Path):
    folder = tmp_path / "libs"
    shared_library(folder, "libeither.so.1", "either", 1)
    source = folder / "either.cc"
    source.write_text('extern "C" int either() { return 2; }\n')
    subprocess.run([real_compiler(), "-fPIC", "-c", source, "-o", folder / "either.o"], check=True, timeout=60)
    subprocess.run(["ar", "rcs", folder / "libeither.a", folder / "either.o"], check=True, timeout=60)
    be_runtime.load_cpp_inline("flags_either", user_of("either"), extra_ldflags=[f"-L{folder}", "-leither"])
    assert value_of("flags_either") == 2


@pytest.mark.parametrize("kind", ["object", "archive"])
def test_an_object_that_is_linked_in_and_changes_is_linked_again(tmp_path: Path, tmp_cache: Path, kind: str):
    file = tmp_path / {"object": "part.o", "archive": "libpart.a"}[kind]
    for value in (1, 2):
        source = tmp_path / "part.cc"
        source.write_text(f'extern "C" int part() {{ return {value}; }}\n')
        subprocess.run([real_compiler(), "-fPIC", "-c", source, "-o", tmp_path / "part.o"], check=True, timeout=60)
        if kind == "archive":
            file.unlink(missing_ok=True)
            subprocess.run(["ar", "rcs", file, tmp_path / "part.o"], check=True, timeout=60)
        prefix = f"flags_{kind}{value}"
        be_runtime.load_cpp_inline("flags_part", user_of("part"), extra_ldflags=[str(file)], target_prefix=prefix)
        assert value_of(prefix) == value


def test_relative_folders_are_the_caller_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for folder, name in (("one", "one.h"), ("two", "two.h"), ("three", "three.h"), ("four", "four.h"), (".", "five.h")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(f"#define {name[:-2].upper()} 1\n")
    (tmp_path / "six").mkdir()
    (tmp_path / "six" / "six.h").write_text("#define SIX 1\n")
    shared_library(tmp_path / "libs", "librelative.so", "relative", 7)
    monkeypatch.chdir(tmp_path)
    headers = "".join(f'#include "{name}.h"\n' for name in ("one", "two", "three", "four", "six"))
    source = headers + user_of("relative").replace(
        "relative()", "relative() + ONE + TWO + THREE + FOUR + FIVE + SIX", 2
    )
    source = source.replace(
        'extern "C" int relative() + ONE + TWO + THREE + FOUR + FIVE + SIX', 'extern "C" int relative()'
    )
    flags = ["-Ione", "-isystem", "two", "-iquotethree", "-idirafter", "four", "-include", "five.h"]
    be_runtime.load_cpp_inline(
        "flags_relative",
        source,
        extra_cflags=flags,
        extra_include_paths=["six"],
        extra_ldflags=["-L", "libs", "-lrelative", "-rpath=libs"],
    )
    assert value_of("flags_relative") == 13
    be_runtime.load_cpp_inline(
        "flags_relative_file", user_of("relative"), extra_ldflags=["libs/librelative.so", "-rpath=./libs"]
    )
    assert value_of("flags_relative_file") == 7


def test_the_same_relative_folder_elsewhere_is_another_build(
    tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    source = '#include "n.h"\n#include "brainevent/common.h"\n'
    source += "// @BE value\nvoid value(BE::Tensor out) { out.data_ptr<int32_t>()[0] = ORDER_N; }\n"
    for number, place in enumerate(("here", "there")):
        (tmp_path / place / "include").mkdir(parents=True)
        (tmp_path / place / "include" / "n.h").write_text(f"#define ORDER_N {number}\n")
        monkeypatch.chdir(tmp_path / place)
        be_runtime.load_cpp_inline("flags_place", source, extra_cflags=["-Iinclude"], target_prefix=f"flags_{place}")
        assert value_of(f"flags_{place}") == number
    assert len(libraries(tmp_cache)) == 2


def test_include_folders_are_searched_in_order(tmp_path: Path):
    for number, place in enumerate(("first", "second")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "order.h").write_text(f"#define ORDER_N {number}\n")
    source = '#include "order.h"\n' + user_of("order").replace('extern "C" int order();\n', "").replace(
        "order()", "ORDER_N"
    )
    for order in (("first", "second"), ("second", "first")):
        name = f"flags_order_{order[0]}"
        be_runtime.load_cpp_inline(name, source, extra_include_paths=[tmp_path / place for place in order])
        assert value_of(name) == ("first", "second").index(order[0])


@pytest.mark.parametrize("workers", [1, 3])
def test_ninja_workers(workers: int, tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    """The most compilers that ran at once."""
    running = tmp_path / "running"
    running.mkdir()
    compiler = forwarding_compiler(
        tmp_path / "g++",
        f"touch {running}/$$; ls {running} | wc -l >> {tmp_path}/counts; sleep 0.3; rm {running}/$$",
    )
    monkeypatch.setenv("BE_CXX", str(compiler))
    source = tmp_path / "sources"
    source.mkdir()
    for name in "abcd":
        (source / f"{name}.cc").write_text(SEEN.replace("seen", f"seen_{name}"))
    be_runtime.load_cpp_dir(source, name=f"flags_workers{workers}", ninja_workers=workers)
    assert max(map(int, (tmp_path / "counts").read_text().split())) == workers
