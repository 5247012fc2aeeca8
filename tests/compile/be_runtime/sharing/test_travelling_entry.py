"""An entry that was built in one folder is taken in another, if a build there would read the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import be_runtime
from be_runtime.cache import CacheKey, Entry
from be_runtime.cache.folder.layout import KEY
from be_runtime.cache.validity.lookup import read_manifest
from be_runtime.load.find_or_build import machine_roots
from be_runtime.sharing.archive import ArchiveError
from be_runtime.sharing.roots import key_roots, movable_key
from be_runtime.sharing.travelling_entry import Shareable, pack_entry, unpack_entry
from be_toolchain.machine.local_system import LocalSystem

SOURCE = """#include "brainevent/common.h"
#include "near.h"
#include <far.h>
// @BE f
void f(BE::Tensor y) {{ {body} }}
"""
OUTPUTS = ("module.so", "module.json")


def project(folder: Path, body: str) -> Path:
    """Write a kernel and its headers."""
    (folder / "include").mkdir(parents=True)
    (folder / "near.h").write_text("#include <cassert>\n")
    (folder / "include/far.h").write_text("inline void check(bool is_good) { assert(is_good); }\n")
    (folder / "k.cc").write_text(SOURCE.format(body=body))
    return folder


def built(folder: Path) -> Entry:
    """Build the project, and return its entry."""
    module = be_runtime.load_cpp_file(folder / "k.cc", extra_include_paths=[folder / "include"], auto_register=False)
    path = module.path.parent
    manifest = read_manifest(str(path), path.parent.name)
    assert manifest is not None
    return Entry(path, manifest, built=True)


def share(entry: Entry, change: Callable[[str], str] = str) -> Shareable:
    """What can be shared of an entry, as a machine sees it whose paths differ by `change`."""
    key = CacheKey.from_json(change((entry.path / KEY).read_text()))
    roots = key_roots(key, machine_roots(LocalSystem()))
    return Shareable(movable_key(key, roots), roots, OUTPUTS)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Entry:
    """An entry whose code has names for folders, built once."""
    folder = tmp_path_factory.mktemp("first")
    be_runtime.set_cache_dir(folder / "cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BE_CLUSTER", "1")
        entry = built(project(folder / "project", "check(true);"))
    be_runtime.set_cache_dir(None)
    return entry


@pytest.fixture
def machines(first: Entry, tmp_path: Path) -> tuple[bytes, Shareable, Path]:
    """An archive of what one folder's build made, and the second folder that wants it."""
    second = project(tmp_path / "elsewhere/second", "check(true);")
    there = share(first, lambda text: text.replace(str(first.path.parents[4] / "project"), str(second)))
    return pack_entry(first.path, first.manifest, share(first)), there, second


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    (tmp_path / "staging").mkdir()
    return tmp_path / "staging"


def test_it_is_taken(machines: tuple[bytes, Shareable, Path], staging: Path):
    data, there, second = machines
    output = unpack_entry(data, there, staging, "the archive")
    assert output.outputs == OUTPUTS
    assert {f"{second}/near.h", f"{second}/include/far.h"} <= set(map(str, output.dependencies))
    assert (staging / "module.so").read_bytes().startswith(b"\x7fELF")


@pytest.mark.parametrize("name", ["near.h", "include/far.h"])
def test_another_header_is_named(machines: tuple[bytes, Shareable, Path], staging: Path, name: str):
    data, there, second = machines
    (second / name).write_text("#include <cassert>\ninline void check(bool) {}\n")
    with pytest.raises(ArchiveError, match=f"another .*second/{name} than the one here"):
        unpack_entry(data, there, staging, "the archive")
    assert not list(staging.iterdir())


def test_a_header_that_a_build_would_find_first_is_named(machines: tuple[bytes, Shareable, Path], staging: Path):
    data, there, second = machines
    (second / "far.h").write_text("")
    (second / "include/near.h").write_text("")
    unpack_entry(data, there, staging, "the archive")  # <far.h> is not searched there, and "near.h" is found before
    (second / "include/cassert").write_text("")
    with pytest.raises(ArchiveError, match=r"where there is no .*include/cassert"):
        unpack_entry(data, there, staging, "the archive")


def test_a_missing_header_is_named(machines: tuple[bytes, Shareable, Path], staging: Path):
    data, there, second = machines
    (second / "include/far.h").unlink()
    with pytest.raises(ArchiveError, match=r"another .*far.h than the one here"):
        unpack_entry(data, there, staging, "the archive")


def test_an_archive_under_another_name_is_refused(machines: tuple[bytes, Shareable, Path], staging: Path):
    data, there, _ = machines
    other = there._replace(key=CacheKey("other", there.key.fields))
    with pytest.raises(ArchiveError, match="of another entry"):
        unpack_entry(data, other, staging, "the archive")


def test_code_that_names_its_folder_is_not_packed(tmp_path: Path, tmp_cache: Path):
    entry = built(project(tmp_path / "first", "check(y.numel() > 0);"))
    with pytest.raises(ArchiveError, match=r"module.so names the folder .*first$"):
        pack_entry(entry.path, entry.manifest, share(entry))
