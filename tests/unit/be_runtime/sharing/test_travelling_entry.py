"""What an archive may ask of this machine: files in places that differ, and names that are none here."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from be_runtime.cache import BuildOutput, Store, make_key
from be_runtime.sharing.archive import ArchiveError, Head, pack
from be_runtime.sharing.roots import Roots
from be_runtime.sharing.travelling_entry import Shareable, pack_entry, unpack_entry
from tests.support.hostile_files import KINDS, plant, refused_at_once

KEY = make_key("module", ("name", "k"))
NO_ROOTS = Roots(())


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def take(folder: Path, roots: Roots = NO_ROOTS, **fields: Any) -> tuple[str, ...]:
    """Unpack an archive with such fields, and return the paths that it depends on."""
    head = Head(KEY.digest, "module", "k", (("module.so", 1, digest(b"x")),), (), (), (), "there", 1.0)
    head = head._replace(**fields)
    (folder / "staging").mkdir()
    data = pack(head, {name: b"x" for name, *_ in head.outputs})
    output = unpack_entry(data, Shareable(KEY, roots, ("module.*",)), folder / "staging", "elsewhere")
    return (*map(str, output.dependencies), *map(str, output.absent))


@pytest.mark.parametrize("path", ["{}", "{}/file/a.h", "{}/file/", "/a\0.h", "/a\udfff.h", "/" + "a" * 300])
def test_a_path_that_is_no_file_here_is_a_build_here(tmp_path: Path, path: str):
    (tmp_path / "file").touch()
    with pytest.raises(ArchiveError, match=r"can't be used here|is of another"):
        take(tmp_path, dependencies=((path.format(tmp_path), digest(b"")),))


@pytest.mark.parametrize("name", ["a", "module", "d/" * 400 + "module.so", "image0.cubin", "module.so/module.so"])
def test_outputs_of_other_names_are_refused(tmp_path: Path, name: str):
    with pytest.raises(ArchiveError, match=r"it has .*, which no module has|it has no module|can't be used here"):
        take(tmp_path, outputs=((name, 1, digest(b"x")),))


def test_an_output_that_a_build_here_would_write_otherwise_is_refused(tmp_path: Path):
    (tmp_path / "staging").mkdir()
    head = Head(KEY.digest, "module", "k", (("module.so", 1, digest(b"x")),), (), (), (), "there", 1.0)
    share = Shareable(KEY, NO_ROOTS, ("module.so",), known=(("module.so", b"y"),))
    with pytest.raises(ArchiveError, match=r"its module.so is not what a build here would write"):
        unpack_entry(pack(head, {"module.so": b"x"}), share, tmp_path / "staging", "elsewhere")


@pytest.mark.parametrize("path", ["/proc/version", "/dev/../proc/version", "{}/large"])
def test_what_no_build_reads_is_not_read(tmp_path: Path, path: str):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    content = digest(Path("/proc/version").read_bytes())
    with pytest.raises(ArchiveError, match="is of another"):
        take(tmp_path, others=((path.format(tmp_path), content),))


@pytest.mark.parametrize("name", ["manifest.json", "manifest.json/a", "key.json/a"])
def test_the_names_of_the_cache_are_no_outputs(tmp_path: Path, name: str):
    with pytest.raises(ArchiveError, match="a name the cache keeps for itself"):
        take(tmp_path, outputs=((name, 1, digest(b"x")),))


def make(staging: Path) -> BuildOutput:
    (staging / "module.so").write_bytes(b"code")
    return BuildOutput(("module.so",))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_output_any_more_is_not_packed(tmp_path: Path, kind: str):
    entry = Store(tmp_path / "cache").get_or_build(KEY, make)
    library = plant(entry.path / "module.so", kind)
    with refused_at_once(), pytest.raises(ArchiveError, match=rf"can't be read: .*: {library}"):
        pack_entry(entry.path, entry.manifest, Shareable(KEY, NO_ROOTS, ("module.so",)))


def sites(folder: Path) -> Roots:
    """Two folders of packages, and a link to the second one."""
    (folder / "a").mkdir()
    (folder / "b/pkg").mkdir(parents=True)
    (folder / "link").symlink_to(folder / "b")
    return Roots(tuple((str(folder / name), "<site>") for name in ("a", "b", "link")))


def test_a_header_in_either_folder_of_packages_counts(tmp_path: Path):
    roots = sites(tmp_path)
    header = ("<site>/pkg/a.h", digest(b"1"))
    (tmp_path / "b/pkg/a.h").write_text("1")
    assert take(tmp_path, roots, dependencies=(header,)) == (str(tmp_path / "b/pkg/a.h"),)
    (tmp_path / "staging").rename(tmp_path / "taken")
    (tmp_path / "a/pkg").mkdir()
    (tmp_path / "a/pkg/a.h").write_text("1")
    (tmp_path / "b/pkg/a.h").write_text("2")
    with pytest.raises(ArchiveError, match=r"is of another .*/b/pkg/a.h than the one here"):
        take(tmp_path, roots, dependencies=(header,))


def test_a_header_that_appears_in_either_folder_of_packages_counts(tmp_path: Path):
    roots = sites(tmp_path)
    (tmp_path / "b/pkg/new.h").touch()
    with pytest.raises(ArchiveError, match=r"where there is no .*/b/pkg/new.h"):
        take(tmp_path, roots, absent=(("<site>/pkg", 0, ("new.h",)),))
