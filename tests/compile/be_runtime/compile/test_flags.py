"""What compilers and linkers are given: flags and folders as an author wrote them, a launcher, and so many at once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import be_runtime
from be_runtime import ArgumentError
from tests.compile.be_runtime.load.sources import source, value, write
from tests.support.jobs import free_port
from tests.support.requirements import in_full
from tests.support.runtime import forwarding_compiler, real_compiler, script


def test_warnings_are_printed_once_a_build_and_reported_from_the_cache_too(capsys: pytest.CaptureFixture[str]):
    text = '#include "brainevent/common.h"\n// @BE f\nvoid f(BE::Tensor y) { int unused = 3; }\n'
    for force, printed in ((True, 1), (False, 0)):
        module = be_runtime.load_cpp_inline("warned", text, extra_cflags=["-Wall"], force_rebuild=force)
        assert capsys.readouterr().err.count("be_runtime: warned: the compiler warns\n  warned:3:") == printed
        (warning,) = module.report().compiler_warnings
        assert "unused variable 'unused'" in warning
        assert warning in str(module.report())
        assert module.report().to_json()["compiler_warnings"] == [warning]
    be_runtime.load_cpp_inline("warned", text, extra_cflags=["-Wall"], force_rebuild=True, verbose=True)
    assert capsys.readouterr().err.count("warning: ") == 1  # the log has it


MACROS = """
#define TEXT(x) #x
#define SHOW(x) TEXT(x)
#define IS(x) (SHOW(x)[0] != #x[0])
"""


def test_native_uses_what_this_cpu_has(tmp_path: Path):
    predefined = [real_compiler(), "-march=native", "-dM", "-E", "-x", "c++", "/dev/null"]
    macros = subprocess.run(predefined, capture_output=True, text=True, check=True).stdout
    text = source(MACROS, f="IS(__AVX2__) + 2 * IS(BE_INTERNAL_CPU)")
    for native, expected in ((False, 0), (True, 2 + ("__AVX2__" in macros))):
        be_runtime.load_cpp_inline("native", text, native=native, target_prefix=f"native_{native}")
        assert value(f"native_{native}.f") == expected
    with pytest.raises(be_runtime.CacheError, match="native: compiled with native=True"):
        be_runtime.export_prebuilt(tmp_path)


ODD = [
    "a b", " a", "a ", "", 'a"b', "a'b", "'", '"', "a\nb", "\n", "a\n\nb\n", "a\r\nb", "\r", "a\tb", "\v\f\x1b\x7f",
    "$HOME", "${HOME}", "$$", "$", "$(echo x)", "`echo x`", "a\\b", "\\", "\\n", "a\\\nb", "*", "?", "~", "a;b", "a&b",
    "a|b", "a>b", "#a", "a:b", "%s", "!", "ä€😀", "\udcff", "-", "@", "^", "$\n", "$ ", "$:",
]  # fmt: skip


def test_every_argument_arrives_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The real compiler takes any -D; the record says what it was given, also to link."""
    compiler = forwarding_compiler(tmp_path / "g++", f"printf '%s\\0' \"$@\" >> '{tmp_path}/argv'")
    monkeypatch.setenv("BE_CXX", str(compiler))
    odd = [f"-DODD{index}={text}" for index, text in enumerate(ODD)]
    folder = tmp_path / "a, b"
    flags = ["-lm", str(shared_library(folder, "libplain.so", "plain", 5)), "-Wl,-z,now", "-pthread"]
    separate = ["-Wl,-rpath,/a b/$ORIGIN", f"-L{folder}", "-lversioned", f"-rpath={folder}"]
    for version in (9, 10):
        shared_library(folder, f"libversioned.so.{version}", "versioned", version)
    text = source('extern "C" int plain();\nextern "C" int versioned();\n', value="plain() + versioned()")
    module = be_runtime.load_cpp_inline("flags_linked", text, extra_cflags=odd, extra_ldflags=[*flags, *separate])
    given = (tmp_path / "argv").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    assert [flag for flag in given if flag.startswith("-DODD")] == odd
    link = given[given.index("-shared") :]
    assert [flag for flag in link if flag in flags] == flags
    done = subprocess.run(["readelf", "-d", module.path], capture_output=True, text=True, check=True, timeout=60)
    path = "".join(line for line in done.stdout.splitlines() if "RUNPATH" in line or "RPATH" in line)
    assert str(folder) in path
    assert "/a b/$ORIGIN" in path
    assert value("flags_linked.value") == 15


def shared_library(folder: Path, file: str, function: str, number: int) -> Path:
    """A library with one function; its own name is the file's."""
    text = f'extern "C" int {function}() {{ return {number}; }}\n'
    made = write(folder, **{file: text})
    command = [real_compiler(), "-shared", "-fPIC", f"-Wl,-soname,{file}", f"{made}/{file}.cc", "-o", f"{made}/{file}"]
    subprocess.run(command, check=True, timeout=60)
    return made / file


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_library_by_its_path_is_found_when_the_module_is_loaded(
    is_relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """By its own name, here libpath.so.1, in the folder of the path, and after the folders of the author."""
    monkeypatch.chdir(tmp_path)
    name, folder = f"path{is_relative}", tmp_path / "own, lib"
    shared_library(folder, f"lib{name}.so.1", name, 7)
    (folder / f"lib{name}.so").symlink_to(f"lib{name}.so.1")
    path = folder / f"lib{name}.so"
    text = source(f'extern "C" int {name}();\n', f=f"{name}()")
    flags = [str(path.relative_to(tmp_path) if is_relative else path), f"-rpath={tmp_path}/first"]
    module = be_runtime.load_cpp_inline(f"flags_{name}", text, extra_ldflags=flags)
    assert value(f"flags_{name}.f") == 7
    done = subprocess.run(["readelf", "-d", module.path], capture_output=True, text=True, check=True, timeout=60)
    assert f"[{tmp_path}/first:{folder}]" in done.stdout


def test_a_library_without_a_file_of_its_own_name_is_named(tmp_path: Path):
    shared_library(tmp_path, "librenamed.so.1", "renamed", 7).rename(tmp_path / "other.so")
    text = source('extern "C" int renamed();\n', f="renamed()")
    with pytest.raises(be_runtime.LoadError, match=r"librenamed\.so\.1: cannot open(.|\n)*a file of exactly this name"):
        be_runtime.load_cpp_inline("flags_renamed", text, extra_ldflags=[str(tmp_path / "other.so")])


@pytest.mark.parametrize("workers", [in_full(1), 3])
def test_ninja_workers(workers: int, tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    """The most compilers that ran at once: each waits until as many as may run have begun."""
    monkeypatch.delenv("BE_MAX_JOBS", raising=False)
    running, begun = write(tmp_path / "running"), write(tmp_path / "begun")
    await_others = f"while [ $(ls {begun} | wc -l) -lt {workers} ]; do sleep 0.02; done"
    lines = f"touch {running}/$$ {begun}/$$; {await_others}; ls {running} | wc -l >> {tmp_path}/counts; rm {running}/$$"
    monkeypatch.setenv("BE_CXX", str(forwarding_compiler(tmp_path / "g++", lines)))
    folder = write(tmp_path / "sources", **{name: source(**{name: 1}) for name in "abcd"})
    be_runtime.load_cpp_dir(folder, name=f"flags_workers{workers}", ninja_workers=workers)
    assert max(map(int, (tmp_path / "counts").read_text().split())) == workers


def test_the_launcher_stands_before_the_compilers(tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    launcher = script(tmp_path / "launcher", f'echo "$2" >> "{tmp_path}/launched"', "shift", 'exec "$@"')
    monkeypatch.setenv("BE_COMPILER_LAUNCHER", f"{launcher} --quiet")
    be_runtime.load_cpp_inline("launched", source(f=1), auto_register=False)
    compilers = (tmp_path / "launched").read_text().splitlines()
    assert compilers
    assert all(Path(compiler).is_file() for compiler in compilers)


def test_a_launcher_that_is_no_program_is_refused_by_its_variable(tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_COMPILER_LAUNCHER", "no-such-launcher --quiet")
    with pytest.raises(ArgumentError, match="BE_COMPILER_LAUNCHER names 'no-such-launcher', a program that was"):
        be_runtime.load_cpp_inline("launched", source(f=1), auto_register=False)


def printed(*command: str) -> str:
    """What a command prints; a server that it leaves behind has no pipe of ours to keep open."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return done.stdout


def ccache_hits() -> int:
    counts = dict(line.split("\t") for line in printed("ccache", "--print-stats").splitlines())
    return int(counts["direct_cache_hit"]) + int(counts["preprocessed_cache_hit"])


def sccache_hits() -> int:
    told = json.loads(printed("sccache", "--show-stats", "--stats-format", "json"))
    return sum(told["stats"]["cache_hits"]["counts"].values())


@pytest.mark.parametrize(
    ("launcher", "hits"),
    [
        pytest.param("ccache", ccache_hits, marks=pytest.mark.needs("ccache")),
        pytest.param("sccache", sccache_hits, marks=pytest.mark.needs("sccache")),
    ],
)
def test_a_compiler_cache_answers(
    launcher: str, hits: Callable[[], int], tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    """Where ours is empty."""
    monkeypatch.setenv("BE_COMPILER_LAUNCHER", launcher)
    monkeypatch.setenv(f"{launcher.upper()}_DIR", str(tmp_path / launcher))
    monkeypatch.setenv("SCCACHE_SERVER_PORT", str(free_port(20_000, 60_000)))
    monkeypatch.delenv("CCACHE_DISABLE", raising=False)
    if launcher == "sccache":
        printed("sccache", "--start-server")
    try:
        first = be_runtime.load_cpp_inline("launched", source(f=1), auto_register=False)
        assert hits() == 0
        be_runtime.set_cache_dir(tmp_path / "empty")
        again = be_runtime.load_cpp_inline("launched", source(f=1), auto_register=False)
        assert hits() == 2, "the source and the handler"
        be_runtime.load_cpp_inline("launched", source(f=2), auto_register=False)
        assert hits() == 2, "another source is compiled"
    finally:
        if launcher == "sccache":
            printed("sccache", "--stop-server")
    assert again.path != first.path
    assert again.path.read_bytes() == first.path.read_bytes()
