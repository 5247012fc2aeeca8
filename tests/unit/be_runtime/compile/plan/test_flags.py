"""Options as the arguments of compilers and linkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from be_runtime.compile.plan import flags
from be_runtime.compile.plan.libraries import link_flags
from be_runtime.request.options import CompileOptions
from be_toolchain.arch import parse_archs
from be_toolchain.model import HostCompiler

CXX = HostCompiler(
    path=Path("/usr/bin/g++"), family="gcc", version="12.2.0", target="x86_64-linux-gnu", found_via="PATH"
)


def host(**options: Any) -> list[str]:
    return list(flags.host_compile(CXX, CompileOptions(**options), ["-I", "/ours"]))


@pytest.mark.parametrize("level", range(4))
def test_the_level_reaches_the_host_compiler(level: int):
    assert [flag for flag in host(optimization_level=level) if flag.startswith("-O")] == [f"-O{level}"]


def test_an_author_s_flags_come_last():
    command = host(cflags=("-std=c++20", "-O0", "-fvisibility=default"), use_fast_math=True)
    assert command[0] == "/usr/bin/g++"
    assert command[-3:] == ["-std=c++20", "-O0", "-fvisibility=default"]
    assert command.index("-std=c++17") < command.index("-std=c++20")
    assert "-ffast-math" in command
    assert "-ffast-math" not in host()


def test_code_for_one_cpu_names_it():
    """The keys of objects and of kept headers are made of the command."""
    assert host(native="a1")[3:5] == ["-march=native", "-DBE_INTERNAL_CPU=0xa1"]
    assert not any("march" in flag for flag in host())


def test_lines_are_told_only_if_they_are_asked_for():
    assert [flag for flag in host(line_info=True) if flag not in host()] == ["-g1"]


def test_thread_sanitizer_goes_on_without_being_told():
    assert host(sanitize=("thread",))[6:9] == ["-fsanitize=thread", "-fno-omit-frame-pointer", "-g1"]


def test_sanitizers_go_on_after_an_error_and_name_lines():
    assert host(sanitize=("address", "undefined"))[6:10] == [
        "-fsanitize=address,undefined",
        "-fsanitize-recover=address,undefined",
        "-fno-omit-frame-pointer",
        "-g1",
    ]
    assert host() == ["/usr/bin/g++", "-std=c++17", "-O3", "-fPIC", "-pipe", "-fvisibility=hidden", "-I", "/ours"]


def test_folders_are_named_once_and_in_order():
    paths = [Path(path) for path in ("/a", "/b", "/a")]
    assert flags.include_flags(paths, [Path("/b"), Path("/c")]) == ("-I", "/a", "-I", "/b", "-isystem", "/c")


@pytest.mark.parametrize(
    ("given", "names", "expected"),
    [
        (["-std=c++20"], ["-std"], True),
        (["-std", "c++20"], ["-std"], True),
        (["-stdlib=libc++"], ["-std"], False),
        (["--std=c++20"], ["-std", "--std"], True),
        ([], ["-std"], False),
    ],
)
def test_has_flag(given: Sequence[str], names: Sequence[str], expected: bool):
    assert flags.has_flag(given, *names) is expected


def linked(ldflags: Sequence[str], folders: Mapping[str, Sequence[str]], library_dirs: Sequence[str] = ()) -> list[str]:
    return list(link_flags(ldflags, [Path(path) for path in library_dirs], lambda path: folders.get(str(path), ())))


def rpath(folder: str) -> list[str]:
    return ["-Xlinker", "-rpath", "-Xlinker", folder]


LINKS: list[tuple[Sequence[str], Mapping[str, Sequence[str]], Sequence[str], Sequence[str]]] = [
    (["-lm"], {}, [], ["-lm"]),
    (["-l", "m"], {}, [], ["-lm"]),
    (["-l:libm.so.6"], {}, [], ["-l:libm.so.6"]),
    (["-rpath=/a,b"], {}, [], rpath("/a,b")),
    (["-rpath", "$ORIGIN"], {}, [], rpath("$ORIGIN")),
    (["-Wl,-rpath,/a", "-Xlinker", "-lfoo", "/x/lib.so"], {}, [], ["-Wl,-rpath,/a", "-Xlinker", "-lfoo", "/x/lib.so"]),
    (["-L/own", "-lfoo"], {"/own": ["libfoo.so", "libfoo.so.2"]}, [], ["-L/own", "-lfoo"]),
    (["-L/own", "-lfoo"], {"/own": ["libfoo.a", "libfoo.so.2"]}, [], ["-L/own", "-lfoo"]),
    (["-L", "/own", "-l", "foo"], {"/own": ["libfoo.so.2"]}, [], ["-L/own", "/own/libfoo.so.2", *rpath("/own")]),
    (
        ["-lfoo", "-L/own"],
        {"/own": ["libfoo.so.9", "libfoo.so.10"]},
        [],
        ["/own/libfoo.so.10", *rpath("/own"), "-L/own"],
    ),
    (
        ["-lfoo"],
        {"/cuda": ["libfoo.so.13", "libfoo.so.13.0.1"]},
        ["/cuda"],
        ["/cuda/libfoo.so.13.0.1", *rpath("/cuda")],
    ),
    (["-lfoo"], {"/cuda": ["libfoo.so"]}, ["/cuda"], ["-lfoo", *rpath("/cuda")]),
    (["-lfoo"], {"/cuda": ["libfoo.so.1-gdb.py", "libfoobar.so.1", "libfoo.so.x"]}, ["/cuda"], ["-lfoo"]),
    (["-L/own", "-lfoo"], {"/own": ["libfoo.so"], "/cuda": ["libfoo.so.1"]}, ["/cuda"], ["-L/own", "-lfoo"]),
    (["-lc++"], {"/cuda": ["libc++.so.1"]}, ["/cuda"], ["/cuda/libc++.so.1", *rpath("/cuda")]),
    (["-l"], {}, [], ["-l"]),
    (["-Xlinker"], {}, [], ["-Xlinker"]),
]


@pytest.mark.parametrize(("ldflags", "folders", "library_dirs", "expected"), LINKS, ids=str)
def test_libraries(
    ldflags: Sequence[str], folders: Mapping[str, Sequence[str]], library_dirs: Sequence[str], expected: Sequence[str]
):
    assert linked(ldflags, folders, library_dirs) == list(expected)


def test_the_link_command_of_a_cpp_module():
    command = flags.link(CXX, None, ["-lm"], [], lambda path: ())
    assert command.head == ("/usr/bin/g++", "-shared", "-fPIC")
    assert command.tail[-1] == "-lm"
    assert "-Wl,-Bsymbolic" in command.tail


def test_archs_of_a_cpp_module_are_none():
    assert parse_archs("9.0")
    assert not any("arch" in flag for flag in host())
