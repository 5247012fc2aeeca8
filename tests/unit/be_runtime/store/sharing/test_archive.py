"""What moves between machines: artifacts, of which nothing is read before the signature, and names for folders."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from be_runtime.errors import ArgumentError, LoadError
from be_runtime.store import artifact, cache, index, places, sharing, signing
from be_runtime.store.keys import CacheKey, make_key
from tests.support.artifacts import CODE, packed, table
from tests.support.artifacts import artifact as came
from tests.support.hostile_files import KINDS, full_disk, plant, refused_at_once


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def seal(data: bytes) -> bytes:
    return hashlib.sha512(b"secret" + data).digest()


def trusts(data: bytes, signature: bytes) -> bool:
    return seal(data) == signature


TRUSTED = signing.Verifier(trusts, "SETTING")
KEY = make_key("module", ("name", "k"))
FILES: dict[str, Any] = {
    "dependencies": (("<site>/a.h", "00"),),
    "others": (("/usr/bin/g++", "11"),),
    "absent": (("/usr/include", 0, ("b.h",)),),
    "host": "here",
    "seconds": 0.5,
}
TABLE = table(KEY, **FILES)
PACKED, SIGNED = packed(KEY, **FILES), packed(KEY, sign=seal, **FILES)


def read(data: bytes, verify: signing.Verifier | None = None) -> tuple[index.Index, bytes]:
    found = artifact.unpack(data, "here", verify)
    return found.table, found.image(found.table.image)


def flipped(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def test_what_is_packed_is_unpacked():
    assert (
        read(PACKED) == read(SIGNED, TRUSTED) == read(artifact.resigned(PACKED, "here", seal), TRUSTED) == (TABLE, CODE)
    )


def test_each_flipped_byte_and_each_other_length_is_noticed():
    shorter = (PACKED[:end] for end in range(len(PACKED)))
    for data in (*(flipped(SIGNED, at, 1 << at % 8) for at in range(len(SIGNED))), *shorter, PACKED + b"\0"):
        with pytest.raises(LoadError):
            artifact.unpack(data, "here", TRUSTED if len(data) == len(SIGNED) else None)
    for at in range(len(PACKED)):
        with pytest.raises(LoadError):
            artifact.unpack(flipped(PACKED, at, 1 << at % 8), "here")


def test_an_untrusted_artifact_is_refused_before_its_index_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(artifact, "parse_index", pytest.fail)
    other = packed(KEY, sign=lambda _: b"x" * 64)
    for data, words in ((PACKED, "here is not signed\n"), (other, "not signed by a trusted key")):
        with pytest.raises(LoadError, match=words):
            artifact.unpack(data, "here", TRUSTED)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("dependencies", [(("a", 1),), (("a", "b", "c"),), "a path and a hash", (("/a/" * 340, ""),) * 1000]),
        ("absent", [((1, 0, ()),), (("/", 0, (1,)),), (("/", 0, "names"),), (("/", 0, ("a",) * 40_000),)]),
        ("absent", [(("/", -1, ()),)]),
        ("others", [{"ab": "cd"}]),
        ("seconds", ["x", float("nan")]),
        ("host", [None]),
        ("name", ["k" * 2000]),
    ],
)
def test_inputs_of_other_types_or_sizes_are_refused(field: str, values: list[Any]):
    for value in values:
        with pytest.raises(LoadError, match="here has a damaged index"):
            artifact.unpack(packed(KEY, **{field: value}), "here")


def sealed(text: bytes) -> bytes:
    framed = len(text).to_bytes(8, "little") + text
    return artifact.MAGIC + b"h" + hashlib.sha512(framed).digest() + framed


def test_an_index_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch):
    """To read 64 MB of brackets took 12 s."""
    texts: list[bytes] = []
    monkeypatch.setattr(artifact, "parse_index", lambda text, _where: texts.append(text))
    text = zlib.compress(b'{"outputs":[[]' + b",[]" * (1 << 23) + b"]}")
    with pytest.raises(LoadError, match="can't be read: its end is missing, or it is too large"):
        artifact.unpack(sealed(text), "here")
    assert texts == []


def test_another_format_is_told_from_another_file():
    for data, words in (
        (b"be-entry-1\n" + bytes(100), "here has the format of another release"),
        (b"be-artifact-2\n" + bytes(100), "here has the format of another release"),
        (b"<html>not found</html>", "here is not a complete exported program or artifact"),
    ):
        with pytest.raises(LoadError, match=words):
            artifact.unpack(data, "here")


def export(path: Path, *archives: bytes) -> bytes:
    with places.ExportWriter(path) as file:
        for data in archives:
            file.add(KEY.digest, data)
    return path.read_bytes()


def require_refused(path: Path, words: str | None = None, verify: signing.Verifier | None = None) -> None:
    with pytest.raises(ArgumentError, match=words):
        list(places.read_export(path, verify))


def test_what_is_exported_is_read_and_every_damage_noticed(tmp_path: Path):
    path = tmp_path / "kernels.be"
    whole = export(path, SIGNED, b"another of the same entry")
    assert [(each.table, each.packed) for each in places.read_export(path, TRUSTED)] == [(TABLE, SIGNED)]
    begin = whole.index(SIGNED)
    damaged = [flipped(whole, at, 1) for at in range(begin, begin + len(SIGNED), 97)]
    for data in (*damaged, *(whole[:size] for size in range(0, len(whole), 41))):
        path.write_bytes(data)
        require_refused(path)
    export(path, PACKED)
    assert len(list(places.read_export(path))) == 1
    require_refused(path, "is not signed", TRUSTED)


@pytest.mark.parametrize(
    ("files", "method", "words"),
    [
        ({"be-export": "1\n", "../../etc/passwd": PACKED}, zipfile.ZIP_STORED, "which is not an artifact"),
        ({"be-export": "1\n", "ab" * 32: PACKED}, zipfile.ZIP_DEFLATED, "which is not an artifact"),
        ({"be-export": "1\n", "ab" * 32: PACKED}, zipfile.ZIP_STORED, "does not belong to the entry in its name"),
        ({"be-export": "2\n"}, zipfile.ZIP_STORED, "the format of another release"),
        ({"x": ""}, zipfile.ZIP_STORED, "not an export of the cache"),
    ],
)
def test_a_zip_of_other_things_is_refused(tmp_path: Path, files: dict[str, str | bytes], method: int, words: str):
    with zipfile.ZipFile(tmp_path / "other.zip", "w", method) as file:
        for name, content in files.items():
            file.writestr(name, content, zipfile.ZIP_STORED if name == "be-export" else method)
    require_refused(tmp_path / "other.zip", words)


def test_an_export_appears_when_it_is_whole_and_is_written_through_no_link(tmp_path: Path):
    path = tmp_path / "kernels.be"
    path.write_bytes(b"older")
    with pytest.raises(ZeroDivisionError), places.ExportWriter(path):
        raise ZeroDivisionError
    with full_disk(), pytest.raises(ArgumentError, match="can't be written: File too large"):
        export(path)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"older", ["kernels.be"])
    with pytest.raises(ArgumentError, match="can't be written"):
        export(tmp_path / "none" / "x")
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "kernels.be.partial").symlink_to("mine")
    export(path, PACKED)
    assert (tmp_path / "mine").read_bytes() == b"mine"


NO_ROOTS = sharing.Roots(())


def take(folder: Path, share: sharing.Shareable, **fields: Any) -> list[str]:
    """Unpack an artifact with such inputs, and return the paths that it depends on."""
    shutil.rmtree(folder / "staging", ignore_errors=True)
    (folder / "staging").mkdir()
    output = sharing.unpack_entry(came(KEY, **fields), share, folder / "staging", "elsewhere")
    return [*map(str, output.dependencies), *map(str, output.absent)]


NO_FILES = ("{}", "{}/file/a.h", "{}/file/", "/a\0.h", "/a\udfff.h", "/" + "a" * 300)
HUGE = ("/proc/version", "/dev/../proc/version", "{}/large")


@pytest.mark.parametrize(
    ("field", "row", "words", "names"),
    [
        ("dependencies", (digest(b""),), "can't be used here|was built with another", NO_FILES),
        ("others", (digest(Path("/proc/version").read_bytes()),), "was built with another", HUGE),
    ],
)
def test_files_that_no_build_here_reads_are_refused(
    tmp_path: Path, field: str, row: tuple[Any, ...], words: str, names: tuple[str, ...]
):
    (tmp_path / "file").touch()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    for name in names:
        with pytest.raises(LoadError, match=f"^the artifact ({words})"):
            take(tmp_path, sharing.Shareable(KEY, NO_ROOTS), **{field: ((name.format(tmp_path), *row),)})


def test_a_list_of_functions_that_a_build_here_would_not_write_is_refused(tmp_path: Path):
    with pytest.raises(LoadError, match="its list of functions differs from a build here"):
        take(tmp_path, sharing.Shareable(KEY, NO_ROOTS, '{"functions": {}}'))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_image_any_more_is_not_packed(tmp_path: Path, kind: str):
    def make(staging: Path) -> cache.BuildOutput:
        (staging / "module.so").write_bytes(b"code")
        return cache.BuildOutput(artifact.keep_library(staging, "module.so", index.CodeImage("library", "cpu", 0), {}))

    entry = cache.Cache(tmp_path / "cache").get_or_build(KEY, make)
    library = plant(entry.path / f"images/{digest(b'code')}.so", kind)
    with refused_at_once(), pytest.raises(LoadError, match=rf"{library.name} can't be read: "):
        sharing.pack_entry(entry.path, entry.manifest, sharing.Shareable(KEY, NO_ROOTS))


def test_a_header_in_any_folder_of_packages_counts_also_one_that_appears(tmp_path: Path):
    """Two folders of packages, and a link to the second one."""
    for name in ("a", "b"):
        (tmp_path / name / "pkg").mkdir(parents=True)
    (tmp_path / "link").symlink_to("b")
    roots = sharing.Roots(tuple((str(tmp_path / name), "<site>") for name in ("a", "b", "link")))
    share, header = sharing.Shareable(KEY, roots), ("<site>/pkg/a.h", digest(b"1"))
    (tmp_path / "b/pkg/a.h").write_text("1")
    assert take(tmp_path, share, dependencies=(header,)) == [str(tmp_path / "b/pkg/a.h")]
    with pytest.raises(LoadError, match=r"where there is no .*/b/pkg/a.h"):
        take(tmp_path, share, absent=(("<site>/pkg", 0, ("a.h",)),))
    (tmp_path / "a/pkg/a.h").write_text("1")
    (tmp_path / "b/pkg/a.h").write_text("2")
    with pytest.raises(LoadError, match=r"was built with another .*/b/pkg/a.h than the one here"):
        take(tmp_path, share, dependencies=(header,))


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


def roots(key: CacheKey, home: str) -> sharing.Roots:
    return sharing.key_roots(key, [(f"{home}/env", "<python>")])


def moved(home: str, *cflags: str, **more: str) -> CacheKey:
    key = module(home, *cflags, **more)
    return sharing.movable_key(key, roots(key, home))


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_the_flags_that_name_folders_are_no_part_of_it(language: str):
    """Neither of this environment nor of another one."""
    flags = sharing.naming_flags(roots(module("/home/ada", language=language), "/home/ada"), is_cuda=language == "cuda")
    assert flags
    assert moved("/home/ada", *flags, "-O1", language=language) == moved("/home/bob", "-O1", language=language)
    there = sharing.Roots((("/mnt/o'hara/env", "<python>"), ("/mnt/x/src", "<source 0>")))
    flags = sharing.naming_flags(there, is_cuda=language == "cuda")
    own = ("-Xcompiler", "-O1") if language == "cuda" else ("-O1", "-ffile-prefix-map=/x=<python>")
    assert moved("/home/ada", *flags, *own, language=language).texts("cflags") == own
    assert moved("/home/ada", "-ffile-prefix-map=/x=y").texts("cflags")


def test_nvcc_gets_no_flag_that_it_would_split_at_a_comma():
    both = sharing.Roots((("/home/a,b", "<source 0>"), ("/home/env", "<python>")))
    assert sharing.naming_flags(both, is_cuda=True) == ("-Xcompiler", "'-ffile-prefix-map=/home/env=<python>'")
    assert len(sharing.naming_flags(both, is_cuda=False)) == 2
    assert moved("/home/a,b", language="cuda") == moved("/home/ada", language="cuda"), "what names no folder is shared"


@pytest.mark.parametrize("flag", ["-DHOME={}", "-Wl,-rpath,{}/env", "-include{}/src/a.h"])
def test_two_homes_have_one_key_unless_a_flag_gets_a_path_into_the_code(flag: str):
    assert moved("/home/ada") == moved("/mnt/b b")
    assert sharing.unnamed_paths(moved("/home/ada")) == ()
    assert moved("/home/ada", flag) != moved("/home/bob", flag)
    assert any("/home/ada" in line for line in sharing.unnamed_paths(moved("/home/ada", flag)))


def test_the_text_of_a_source_keeps_its_paths_and_is_part_of_the_key_also_if_it_is_no_unicode():
    a, b = (moved(home, source=f'#include "{home}/src/a.h"') for home in ("/home/ada", "/home/bob"))
    assert a != b
    keys = {
        sharing.movable_key(make_key("module", ("sources", ["k", "", "k.cc", text])), sharing.Roots(()))
        for text in "\udc80\udc81"
    }
    assert len(keys) == 2


@pytest.mark.parametrize("flag", ["-g", "-g3", "-ggdb", "-lineinfo", "-G", "--coverage"])
def test_debugging_information_names_folders_so_they_stay(flag: str):
    assert roots(module("/home/ada", flag), "/home/ada") == sharing.Roots(())
    assert "sources: /home/ada/src/k.cc" in sharing.unnamed_paths(moved("/home/ada", flag))


def test_a_folder_in_another_that_is_searched_has_no_name_of_its_own():
    # "in/a.h" and "a.h" are one file here, and may be two where the folders lie apart
    for label, texts, name in (
        ("include_paths", ["/home/ada/p"], "<include 0>/in"),
        ("sources", ["k", "/home/ada/p/k.cc", "k.cc", ""], "<source 0>/in"),
        *(("cflags", flags, "/home/ada/p/in") for flags in (["-I", "/home/ada/p/"], ["-isystem/home/ada/p"])),
        ("toolchain", ["env.CPATH", "/opt/x:/home/ada/p"], "/home/ada/p/in"),
        ("toolchain", ["cxx.path", "/home/ada/p/bin/g++"], "<compiler>/in"),
    ):
        found = sharing.key_roots(make_key("kernel", (label, texts)), (), [Path("/home/ada/p/in")])
        assert found.name("/home/ada/p/in") == name


def test_folders_that_all_machines_have_get_no_name_and_a_package_with_sources_one_of_its_own():
    key = make_key("module", ("toolchain", ["cuda.root", "/usr/local/cuda", "cxx.path", "/usr/bin/g++"]))
    assert sharing.key_roots(key, [("/usr", "<python>")]).folders == (("/usr/local/cuda", "<toolkit>"),)
    found = sharing.key_roots(make_key("kernel"), (), [Path("/usr/include/eigen3"), Path("/usr/share/h")])
    assert found.folders == (("/usr/share/h", "<include 1>"),)
    assert (found.name("/usr/share/h/a.h"), found.name("/usr/share/hh/a.h")) == ("<include 1>/a.h", "/usr/share/hh/a.h")
    key = make_key("module", ("sources", ["k", "/env/site/pkg/k.cc", "k.cc", ""]))
    assert sharing.key_roots(key, [("/env", "<python>")]).name("/env/site/pkg/k.cc") == "<source 0>/k.cc"


def test_a_folder_is_found_in_compiled_code_and_an_unknown_root_is_nowhere():
    found = sharing.Roots((("/home/ada", "<source 0>"),))
    assert found.named_in(b"\0/home/ada/k.cc\0") == found.named_in(b"assert\0/home/ada\0") == "/home/ada"
    assert not found.named_in(b"\0/home/adalbert/k.cc\0")
    assert not sharing.Roots(()).named_in(b"/home/ada")
    assert sharing.Roots(()).paths("<include 3>/a.h") == ()
