"""Whatever happens to a header, the entry that is used was made from what the header holds now."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from be_runtime.store.cache import BuildOutput, Recorded, is_unchanged
from be_runtime.store.examine import examine, record_file
from be_runtime.store.manifest import RACY_MARGIN_NS, FileRecord, Files, Manifest, group_absent, shadowing_paths
from be_runtime.store.publish import build_began, record_files
from tests.unit.be_runtime.store.cache.conftest import Bench


@pytest.mark.parametrize("kept", ["nothing", "size", "size and time", "all but the inode"])
def test_an_edited_header_rebuilds(bench: Bench, kept: str):
    before = bench.header.stat()
    bench.make()
    content = b"longer content" if kept == "nothing" else b"two"
    if kept == "all but the inode":
        other = bench.folder / "new.h"
        other.write_bytes(content)
        shutil.copystat(bench.header, other)
        other.rename(bench.header)
    else:
        bench.edit(content)
    if kept == "size and time":
        os.utime(bench.header, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert bench.is_missing()
    entry = bench.make()
    assert (entry.reason, entry.output("m.so").read_bytes()) == (f"{bench.header} changed", content)


def test_a_touch_does_not_rebuild_and_is_remembered(bench: Bench):
    entry = bench.make()
    os.utime(bench.header, (1e9, 1e9))
    hit = bench.hit()
    assert (hit.path, hit.manifest.dependencies.mtimes_ns[0]) == (entry.path, 10**18)
    assert bench.hit().manifest.dependencies == hit.manifest.dependencies


def test_a_header_switched_back_and_forth_hits(bench: Bench):
    contents = [b"one", b"two", b"333", b"4444"]
    for number, content in enumerate(contents * 3):
        bench.edit(content)
        entry = bench.make()
        assert (entry.built, entry.output("m.so").read_bytes()) == (number < len(contents), content)


def test_a_header_that_is_gone_rebuilds(bench: Bench):
    def lose(staging: Path) -> BuildOutput:
        output = bench.build(staging)
        bench.header.unlink()
        return output

    bench.make()
    bench.header = bench.header.rename(bench.folder / "moved.h")
    assert bench.is_missing()
    assert bench.make().reason == f"{bench.folder / 'x.h'} is gone"
    assert bench.make(lose, force=True).manifest.uncertain == (str(bench.header),)
    assert bench.is_missing()


def test_a_header_edited_while_it_was_compiled_is_compiled_again(bench: Bench):
    def build(staging: Path) -> BuildOutput:
        output = bench.build(staging)
        if bench.header.read_bytes() == b"one":
            bench.edit(b"two")
        return output

    first = bench.make(build)
    assert (first.output("m.so").read_bytes(), first.manifest.uncertain) == (b"one", (str(bench.header),))
    assert bench.is_missing()
    second = bench.make(build)
    assert second.reason == f"{bench.header} may have changed during the build"
    assert bench.hit().output("m.so").read_bytes() == b"two"


@pytest.mark.parametrize("was_a_folder", [False, True])
def test_a_new_header_that_comes_first_rebuilds(bench: Bench, was_a_folder: bool):
    """A compiler passes over a folder called x.h. A load while it is gone writes the manifest anew."""
    first = bench.folder / "first"
    first.mkdir()
    absent = shadowing_paths([bench.header], [first, bench.folder])
    assert absent == (first / "x.h",)
    if was_a_folder:
        absent[0].mkdir()
    bench.make(lambda staging: bench.build(staging, absent=absent))
    if was_a_folder:
        shutil.rmtree(first)
        bench.header.touch()
    assert bench.hit()
    first.mkdir(exist_ok=True)
    absent[0].write_text("shadow")
    assert bench.is_missing()
    assert f"{absent[0]} is new" in bench.make().reason


def test_shadowing_paths_skip_what_exists_and_what_is_elsewhere(tmp_path: Path):
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "x.h").touch()
    (folders[2] / "x.h").touch()
    dependencies = [folders[2] / "x.h", Path("/usr/include/stdio.h"), folders[0] / "y.h"]
    assert shadowing_paths(dependencies, folders) == (folders[1] / "x.h",)


def manifest(record: FileRecord) -> Manifest:
    """A manifest of one file, recorded long after the file's last change."""
    recorded_ns, files = record.ctime_ns + RACY_MARGIN_NS + 1, Files.of([record])
    return Manifest("d", "k", "n", created_ns=0, recorded_ns=recorded_ns, outputs=Files(), dependencies=files)


@pytest.fixture
def new(bench: Bench) -> Manifest:
    """A manifest of a header that was written a moment ago."""
    return manifest(record_file(str(bench.header), str(bench.header)))


def changed(whole: Manifest, **fields: Any) -> Manifest:
    """The same with other fields in the record of its file."""
    return whole._replace(dependencies=Files.of([whole.dependencies.records[0]._replace(**fields)]))


def test_stat_is_trusted_only_past_the_margin_and_each_part_of_it_counts(new: Manifest):
    assert is_unchanged("/", new)
    assert not is_unchanged("/", new._replace(recorded_ns=new.recorded_ns - 1))
    for field in ("size", "mtime_ns", "ctime_ns", "inode"):
        assert not is_unchanged("/", changed(new, **{field: getattr(new.dependencies.records[0], field) - 1}))
    broken = changed(new, path="a\0b")
    assert not is_unchanged("/", broken)
    assert examine("/", broken).problem, "no file can have this path"


def test_a_racy_record_with_equal_stat_is_hashed(new: Manifest):
    """An edit within one tick of the clock: the stat is equal, the content is not.

    The header was made a moment ago: hashing it again does not make its stat proof, so that nothing is written.
    """
    racy = new._replace(recorded_ns=new.recorded_ns - RACY_MARGIN_NS)
    verdict = examine("/", racy)
    assert (verdict.problem, verdict.refreshed) == ("", None)
    assert examine("/", changed(racy, sha256="0" * 64)).problem.endswith("changed")


@pytest.mark.parametrize("doubt", ["a racy record", "another inode"])
def test_a_file_hashed_in_doubt_is_trusted_by_stat_from_then_on(doubt: str):
    """An image with fixed times, mounted anew elsewhere, may number its files otherwise; their content decides."""
    record = record_file(pytest.__file__, pytest.__file__)
    old = manifest(record)
    doubted = changed(old, inode=record.inode + 1) if "inode" in doubt else old._replace(recorded_ns=record.ctime_ns)
    assert not is_unchanged("/", doubted)
    refreshed = examine("/", doubted).refreshed
    assert refreshed is not None
    assert is_unchanged("/", refreshed)
    assert examine("/", changed(doubted, inode=record.inode + 1, sha256="0" * 64)).problem.endswith("changed")


def test_a_folder_that_becomes_a_circle_of_links_is_seen_by_stat_alone(new: Manifest, tmp_path: Path):
    """A compiler that looks for a header there stops, where it passed over the folder."""
    folder, link = tmp_path / "none.h", tmp_path / "link.h"
    folder.mkdir()
    guarded = new._replace(absent=group_absent([str(folder)])[0])
    assert is_unchanged("/", guarded)
    folder.rmdir()
    assert is_unchanged("/", guarded)
    folder.symlink_to(link)
    link.symlink_to(folder)
    assert not is_unchanged("/", guarded)


def test_what_changes_between_two_outputs_of_a_build_is_in_doubt(bench: Bench):
    """The second output may be made from either content, and so may all that is made from both."""
    other = bench.folder / "other.h"
    other.write_text("other")
    both = [bench.header, other]
    bench.edit(b"one")
    first = record_files(both, Recorded(bench.header.stat().st_ctime_ns + 1, time.time_ns(), {}))
    assert record_files(both, first) == first
    bench.edit(b"edited")
    second = record_files([bench.header], first)
    assert second.records[str(other)] == first.records[str(other)]
    assert second.records[str(bench.header)] != first.records[str(bench.header)]
    entry = bench.make(lambda staging: bench.build(staging, dependencies=(*both,), recorded=second))
    assert entry.manifest.uncertain == (str(bench.header),)
    bench.header.unlink()
    assert str(bench.header) not in record_files(both, second).records


HOUR_NS = 3_600_000_000_000


def recording(bench: Bench, ahead_ns: int, act: Callable[[], object]) -> Callable[[Path], BuildOutput]:
    """A build beside which something happens, where the file system's clock is ahead of this machine's."""

    def build(staging: Path) -> BuildOutput:
        output, began_ns = bench.build(staging), time.time_ns() - ahead_ns
        act()
        recorded = record_files([bench.header], Recorded(began_ns, time.time_ns() - ahead_ns, {}))
        return output._replace(recorded=recorded)

    return build


@pytest.mark.parametrize("ahead_ns", [HOUR_NS // 3600, HOUR_NS, 9000 * HOUR_NS], ids=["second", "hour", "year"])
def test_an_edit_during_a_build_is_seen_where_the_file_systems_clock_is_ahead(bench: Bench, ahead_ns: int):
    build = recording(bench, ahead_ns, lambda: bench.edit(b"two") if bench.header.read_bytes() == b"one" else None)
    assert [bench.make(build).output("m.so").read_bytes() for _ in range(2)] == [b"one", b"two"]
    assert bench.hit().output("m.so").read_bytes() == b"two", "the same file in between: it did not change"


def test_an_edit_during_a_build_is_not_seen_where_the_file_systems_clock_is_behind(bench: Bench):
    """A limit that docs/caching.md states."""
    bench.make(recording(bench, -HOUR_NS, lambda: bench.edit(b"two")))
    assert bench.hit().output("m.so").read_bytes() == b"one"


def test_a_file_that_another_process_records_during_a_build_proves_nothing(bench: Bench):
    """Where there are no locks, two build at once: the other's record may be of what came after the edit."""
    unlocked = bench.store._replace(flock=lambda fd, how: None)
    other = recording(bench, HOUR_NS, lambda: None)
    build = recording(bench, HOUR_NS, lambda: unlocked.get_or_build(bench.key, other, force=True))
    assert bench.make(build).manifest.uncertain == (str(bench.header),)


def test_a_build_begins_at_the_earlier_of_two_clocks(tmp_path: Path):
    """The cache's folder on a server whose clock is ahead says nothing of sources on this machine's disk."""
    of_the_folder = tmp_path.stat().st_ctime_ns
    assert build_began(str(tmp_path), of_the_folder + 1) == of_the_folder
    assert build_began(str(tmp_path), of_the_folder - HOUR_NS) == of_the_folder - HOUR_NS


def test_a_folder_closed_to_this_user_has_no_file(new: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It is another user's, such as /root/.cargo/bin in PATH; a network file system that fails tells nothing."""
    closed, real = str(tmp_path / "closed"), os.stat
    os.mkdir(closed)
    guarded = new._replace(absent=group_absent([f"{closed}/g++"])[0])

    def stat(path: str, **options: bool) -> os.stat_result:
        if str(path).startswith(closed):
            raise OSError(code, os.strerror(code), path)
        return real(path, **options)

    assert not examine("", guarded).problem
    monkeypatch.setattr(os, "stat", stat)
    for code, counts in ((errno.EACCES, False), (errno.EIO, True), (errno.ESTALE, True)):  # noqa: B007
        assert bool(examine("", guarded).problem) is counts
        assert is_unchanged("", guarded) is not counts


@pytest.mark.parametrize(
    ("listed", "name", "counts"), [("/", "x.txt", True), ("/.", "x.txt", False), ("/.", "libq.so.3", True)]
)
def test_a_listed_folder_counts_by_its_names(bench: Bench, listed: str, name: str, counts: bool):
    folder = bench.folder / "listed"
    folder.mkdir()
    (folder / "libq.so.2").touch()
    bench.make(lambda staging: bench.build(staging, others=(f"{folder}{listed}",)))
    (folder / name).touch()
    assert bench.is_missing() == counts


def test_an_absent_path_may_have_any_number_of_folders(tmp_path: Path):
    assert group_absent([f"{tmp_path}{'/a' * 3000}"])[0][0].folder == str(tmp_path)
