"""Names for folders: what moves from machine to machine, and what stays in the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.cache import CacheKey, make_key
from be_runtime.sharing.roots import Roots, key_roots, movable_key, naming_flags, unnamed_paths


def module(home: str, *, source: str = "void f();", cflags: tuple[str, ...] = (), language: str = "cpp") -> CacheKey:
    return make_key(
        "module",
        ("name", "k"),
        ("language", language),
        ("sources", ["k", f"{home}/src/k.cc", f"{home}/src/k.cc", source]),
        ("include_paths", [f"{home}/more"]),
        ("cflags", cflags),
        ("tools", ["/usr/bin/g++", f"{home}/env/bin/ld"]),
        ("toolchain", ["cuda.root", f"{home}/env/cu13", "cuda.component.cicc", f"13.0.1 {home}/env/cu13/bin/cicc"]),
    )


def moved(key: CacheKey, home: str) -> CacheKey:
    return movable_key(key, key_roots(key, [(f"{home}/env", "<python>")]))


def test_two_homes_have_one_key():
    assert moved(module("/home/ada"), "/home/ada") == moved(module("/mnt/b b"), "/mnt/b b")


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_the_flags_that_name_folders_are_no_part_of_it(language: str):
    plain = module("/home/ada", language=language)
    flags = naming_flags(key_roots(plain, [("/home/ada/env", "<python>")]), is_cuda=language == "cuda")
    named = module("/home/ada", cflags=(*flags, "-O1"), language=language)
    assert flags
    assert moved(named, "/home/ada") == moved(module("/home/bob", cflags=("-O1",), language=language), "/home/bob")


def test_nvcc_gets_no_flag_that_it_would_split_at_a_comma():
    roots = Roots((("/home/a,b", "<source 0>"), ("/home/env", "<python>")))
    assert naming_flags(roots, is_cuda=True) == ("-Xcompiler", "'-ffile-prefix-map=/home/env=<python>'")
    assert len(naming_flags(roots, is_cuda=False)) == 2
    two = (moved(module(home, language="cuda"), home) for home in ("/home/a,b", "/home/ada"))
    assert len(set(two)) == 1, "what names no folder is shared nevertheless"


@pytest.mark.parametrize("flag", ["-DHOME={}", "-Wl,-rpath,{}/env", "-include{}/src/a.h"])
def test_a_flag_that_gets_a_path_into_the_code_keeps_it(flag: str):
    a, b = (moved(module(home, cflags=(flag.format(home),)), home) for home in ("/home/ada", "/home/bob"))
    assert a != b
    assert any("/home/ada" in line for line in unnamed_paths(a))


def test_the_text_of_a_source_keeps_its_paths():
    a, b = (moved(module(home, source=f'#include "{home}/src/a.h"'), home) for home in ("/home/ada", "/home/bob"))
    assert a != b


@pytest.mark.parametrize("flag", ["-g", "-g3", "-ggdb", "-lineinfo", "-G", "--coverage"])
def test_debugging_information_names_folders_so_they_stay(flag: str):
    key = module("/home/ada", cflags=(flag,))
    assert key_roots(key, [("/home/ada/env", "<python>")]) == Roots(())
    assert unnamed_paths(moved(key, "/home/ada"))


def test_nothing_is_left_to_say_of_a_key_that_moves():
    assert unnamed_paths(moved(module("/home/ada"), "/home/ada")) == ()


def test_an_author_text_that_is_no_unicode_is_part_of_the_key():
    keys = {movable_key(make_key("module", ("sources", ["k", "", "k.cc", text])), Roots(())) for text in "\udc80\udc81"}
    assert len(keys) == 2


def test_folders_that_all_machines_have_get_no_name():
    key = make_key("module", ("toolchain", ["cuda.root", "/usr/local/cuda", "cxx.path", "/usr/bin/g++"]))
    assert key_roots(key, [("/usr", "<python>")]).folders == (("/usr/local/cuda", "<toolkit>"),)


def test_headers_are_named_by_their_place():
    roots = key_roots(make_key("kernel"), (), [Path("/home/ada/h"), Path("/home/ada/g")])
    assert roots.name("/home/ada/g/a.h") == "<include 1>/a.h"
    assert roots.name("/home/ada/hh/a.h") == "/home/ada/hh/a.h"


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


def test_a_folder_that_compilers_search_unasked_has_no_name():
    roots = key_roots(make_key("kernel"), (), [Path("/usr/include/eigen3"), Path("/usr/share/h")])
    assert roots.folders == (("/usr/share/h", "<include 1>"),)


def test_a_package_with_sources_has_a_name_of_its_own():
    roots = key_roots(make_key("module", ("sources", ["k", "/env/site/pkg/k.cc", "k.cc", ""])), [("/env", "<python>")])
    assert roots.name("/env/site/pkg/k.cc") == "<source 0>/k.cc"


def test_a_folder_is_found_in_compiled_code():
    roots = Roots((("/home/ada", "<source 0>"),))
    assert roots.named_in(b"\0/home/ada/k.cc\0") == "/home/ada"
    assert roots.named_in(b"assert\0/home/ada\0") == "/home/ada"
    assert not roots.named_in(b"\0/home/adalbert/k.cc\0")
    assert not Roots(()).named_in(b"/home/ada")


def test_an_unknown_root_is_nowhere():
    assert Roots(()).paths("<include 3>/a.h") == ()
    assert Roots((("/a", "<site>"), ("/b", "<site>"))).paths("<site>/c") == ("/a/c", "/b/c")


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_flags_that_name_folders_of_another_environment_are_no_part_of_it(language: str):
    there = Roots((("/mnt/o'hara/env", "<python>"), ("/mnt/x/src", "<source 0>")))
    flags = naming_flags(there, is_cuda=language == "cuda")
    own = ("-Xcompiler", "-O1") if language == "cuda" else ("-O1", "-ffile-prefix-map=/x=<python>")
    key = moved(module("/home/ada", cflags=(*flags, *own), language=language), "/home/ada")
    assert key.texts("cflags") == own
    assert moved(module("/home/ada", cflags=("-ffile-prefix-map=/x=y",)), "/home/ada").texts("cflags")
