"""Names for folders: what moves from machine to machine, and what stays in the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.cache import CacheKey, make_key
from be_runtime.sharing.roots import Roots, key_roots, movable_key, naming_flags, unnamed_paths


def module(home: str, *cflags: str, source: str = "void f();", language: str = "cpp") -> CacheKey:
    """The key of a module in a home folder; flags may name the folder as `{}`."""
    return make_key(
        "module",
        ("name", "k"),
        ("language", language),
        ("sources", ["k", f"{home}/src/k.cc", f"{home}/src/k.cc", source]),
        ("include_paths", [f"{home}/more"]),
        ("cflags", [flag.format(home) for flag in cflags]),
        ("tools", ["/usr/bin/g++", f"{home}/env/bin/ld"]),
        ("toolchain", ["cuda.root", f"{home}/env/cu13", "cuda.component.cicc", f"13.0.1 {home}/env/cu13/bin/cicc"]),
    )


def roots(key: CacheKey, home: str) -> Roots:
    return key_roots(key, [(f"{home}/env", "<python>")])


def moved(home: str, *cflags: str, **more: str) -> CacheKey:
    key = module(home, *cflags, **more)
    return movable_key(key, roots(key, home))


def test_two_homes_have_one_key_which_has_nothing_to_say():
    assert moved("/home/ada") == moved("/mnt/b b")
    assert unnamed_paths(moved("/home/ada")) == ()


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_the_flags_that_name_folders_are_no_part_of_it(language: str):
    """Neither of this environment nor of another one."""
    flags = naming_flags(roots(module("/home/ada", language=language), "/home/ada"), is_cuda=language == "cuda")
    assert flags
    assert moved("/home/ada", *flags, "-O1", language=language) == moved("/home/bob", "-O1", language=language)
    there = Roots((("/mnt/o'hara/env", "<python>"), ("/mnt/x/src", "<source 0>")))
    flags = naming_flags(there, is_cuda=language == "cuda")
    own = ("-Xcompiler", "-O1") if language == "cuda" else ("-O1", "-ffile-prefix-map=/x=<python>")
    assert moved("/home/ada", *flags, *own, language=language).texts("cflags") == own
    assert moved("/home/ada", "-ffile-prefix-map=/x=y").texts("cflags")


def test_nvcc_gets_no_flag_that_it_would_split_at_a_comma():
    both = Roots((("/home/a,b", "<source 0>"), ("/home/env", "<python>")))
    assert naming_flags(both, is_cuda=True) == ("-Xcompiler", "'-ffile-prefix-map=/home/env=<python>'")
    assert len(naming_flags(both, is_cuda=False)) == 2
    assert moved("/home/a,b", language="cuda") == moved("/home/ada", language="cuda"), "what names no folder is shared"


@pytest.mark.parametrize("flag", ["-DHOME={}", "-Wl,-rpath,{}/env", "-include{}/src/a.h"])
def test_a_flag_that_gets_a_path_into_the_code_keeps_it(flag: str):
    assert moved("/home/ada", flag) != moved("/home/bob", flag)
    assert any("/home/ada" in line for line in unnamed_paths(moved("/home/ada", flag)))


def test_the_text_of_a_source_keeps_its_paths_and_is_part_of_the_key_also_if_it_is_no_unicode():
    a, b = (moved(home, source=f'#include "{home}/src/a.h"') for home in ("/home/ada", "/home/bob"))
    assert a != b
    keys = {movable_key(make_key("module", ("sources", ["k", "", "k.cc", text])), Roots(())) for text in "\udc80\udc81"}
    assert len(keys) == 2


@pytest.mark.parametrize("flag", ["-g", "-g3", "-ggdb", "-lineinfo", "-G", "--coverage"])
def test_debugging_information_names_folders_so_they_stay(flag: str):
    assert roots(module("/home/ada", flag), "/home/ada") == Roots(())
    assert unnamed_paths(moved("/home/ada", flag))


def test_headers_are_named_by_their_place():
    found = key_roots(make_key("kernel"), (), [Path("/home/ada/h"), Path("/home/ada/g")])
    assert found.name("/home/ada/g/a.h") == "<include 1>/a.h"
    assert found.name("/home/ada/hh/a.h") == "/home/ada/hh/a.h"


@pytest.mark.parametrize(
    ("around", "name"),
    [
        (("include_paths", ["/home/ada/p"]), "<include 0>/in"),
        (("sources", ["k", "/home/ada/p/k.cc", "k.cc", ""]), "<source 0>/in"),
        (("cflags", ["-I", "/home/ada/p/"]), "/home/ada/p/in"),
        (("cflags", ["-isystem/home/ada/p"]), "/home/ada/p/in"),
        (("toolchain", ["env.CPATH", "/opt/x:/home/ada/p"]), "/home/ada/p/in"),
        (("toolchain", ["cxx.path", "/home/ada/p/bin/g++"]), "<compiler>/in"),
    ],
)
def test_a_folder_in_another_that_is_searched_has_no_name_of_its_own(around: tuple[str, list[str]], name: str):
    # "in/a.h" and "a.h" are one file here, and may be two where the folders lie apart
    assert key_roots(make_key("kernel", around), (), [Path("/home/ada/p/in")]).name("/home/ada/p/in") == name


def test_folders_that_all_machines_have_get_no_name_and_a_package_with_sources_one_of_its_own():
    key = make_key("module", ("toolchain", ["cuda.root", "/usr/local/cuda", "cxx.path", "/usr/bin/g++"]))
    assert key_roots(key, [("/usr", "<python>")]).folders == (("/usr/local/cuda", "<toolkit>"),)
    found = key_roots(make_key("kernel"), (), [Path("/usr/include/eigen3"), Path("/usr/share/h")])
    assert found.folders == (("/usr/share/h", "<include 1>"),)
    key = make_key("module", ("sources", ["k", "/env/site/pkg/k.cc", "k.cc", ""]))
    assert key_roots(key, [("/env", "<python>")]).name("/env/site/pkg/k.cc") == "<source 0>/k.cc"


def test_a_folder_is_found_in_compiled_code_and_an_unknown_root_is_nowhere():
    found = Roots((("/home/ada", "<source 0>"),))
    assert found.named_in(b"\0/home/ada/k.cc\0") == found.named_in(b"assert\0/home/ada\0") == "/home/ada"
    assert not found.named_in(b"\0/home/adalbert/k.cc\0")
    assert not Roots(()).named_in(b"/home/ada")
    assert Roots(()).paths("<include 3>/a.h") == ()
    assert Roots((("/a", "<site>"), ("/b", "<site>"))).paths("<site>/c") == ("/a/c", "/b/c")
