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
void f(BE::Tensor y) { check(true); }
"""
OUTPUTS = ("module.so", "module.json")


def project(folder: Path) -> Path:
    """Write a kernel and its headers."""
    (folder / "include").mkdir(parents=True)
    (folder / "near.h").write_text("#include <cassert>\n")
    (folder / "include/far.h").write_text("inline void check(bool is_good) { assert(is_good); }\n")
    (folder / "k.cc").write_text(SOURCE)
    return folder


def share(entry: Entry, change: Callable[[str], str] = str) -> Shareable:
    """What can be shared of an entry, as a machine sees it whose paths differ by `change`."""
    key = CacheKey.from_json(change((entry.path / KEY).read_text()))
    roots = key_roots(key, machine_roots(LocalSystem()))
    return Shareable(movable_key(key, roots), roots, OUTPUTS)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Entry:
    """An entry whose code has names for folders, built once."""
    folder = project(tmp_path_factory.mktemp("first") / "project")
    be_runtime.set_cache_dir(folder.parent / "cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BE_CLUSTER", "1")
        include = [folder / "include"]
        module = be_runtime.load_cpp_file(folder / "k.cc", extra_include_paths=include, auto_register=False)
    be_runtime.set_cache_dir(None)
    path = module.path.parent
    manifest = read_manifest(str(path), path.parent.name)
    assert manifest is not None
    return Entry(path, manifest, built=True)


class Second:
    """Another folder of the same sources, and the archive that it is offered."""

    def __init__(self, first: Entry, tmp_path: Path) -> None:
        self.folder = project(tmp_path / "elsewhere/second")
        self.staging = tmp_path / "staging"
        self.staging.mkdir()
        self.data = pack_entry(first.path, first.manifest, share(first))
        here = str(first.path.parents[4] / "project")
        self.share = share(first, lambda text: text.replace(here, str(self.folder)))

    def take(self) -> list[str]:
        """Take the archive, and return what it depends on."""
        output = unpack_entry(self.data, self.share, self.staging, "the archive")
        assert output.outputs == OUTPUTS
        return list(map(str, output.dependencies))


@pytest.fixture
def second(first: Entry, tmp_path: Path) -> Second:
    return Second(first, tmp_path)


def test_it_is_taken(second: Second):
    for name in ("far.h", "include/near.h"):  # <far.h> is not searched there, and "near.h" is found before
        (second.folder / name).write_text("")
    assert {f"{second.folder}/near.h", f"{second.folder}/include/far.h"} <= set(second.take())
    assert (second.staging / "module.so").read_bytes().startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("near.h", "#include <cassert>\n\n", "another .*second/near.h than the one here"),
        ("include/far.h", "inline void check(bool) {}\n", "another .*second/include/far.h than the one here"),
        ("include/far.h", None, r"another .*far.h than the one here"),
        ("include/cassert", "", r"where there is no .*include/cassert"),
    ],
)
def test_what_a_build_would_read_otherwise_is_named(second: Second, name: str, text: str | None, message: str):
    if text is None:
        (second.folder / name).unlink()
    else:
        (second.folder / name).write_text(text)
    with pytest.raises(ArchiveError, match=message):
        second.take()
    assert not list(second.staging.iterdir())


def test_an_archive_under_another_name_is_refused(second: Second):
    second.share = second.share._replace(key=CacheKey("other", second.share.key.fields))
    with pytest.raises(ArchiveError, match="of another entry"):
        second.take()
