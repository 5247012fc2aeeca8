"""Whatever happens to a header, the entry that is used was made from what the header holds now."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput, CacheKey, FileRecord, Files, Manifest, Recorded, Store, shadowing_paths
from be_runtime.cache.publish import build_began, record_files
from be_runtime.cache.validity.absent import group_absent
from be_runtime.cache.validity.examine import examine, record_file
from be_runtime.cache.validity.manifest import RACY_MARGIN_NS
from be_runtime.cache.validity.verify import is_unchanged

Edit = Callable[[Path, bytes], None]


def _restore_times(path: Path, like: os.stat_result) -> None:
    os.utime(path, ns=(like.st_atime_ns, like.st_mtime_ns))


def test_an_edited_header_rebuilds(
    store: Store, key: CacheKey, header: Path, build: Callable[[Path], BuildOutput], edit: Edit
):
    store.get_or_build(key, build)
    edit(header, b"longer content")
    assert store.get(key) is None
    entry = store.get_or_build(key, build)
    assert entry.reason == f"{header} changed"
    assert entry.output("m.so").read_bytes() == b"longer content"


@pytest.mark.parametrize("restore", ["size", "size and mtime"])
def test_an_edit_of_the_same_size_and_time_rebuilds(
    store: Store, key: CacheKey, header: Path, build: Callable[[Path], BuildOutput], restore: str
):
    before = header.stat()
    store.get_or_build(key, build)
    header.write_bytes(b"two")
    if restore == "size and mtime":
        _restore_times(header, before)
        assert (header.stat().st_mtime_ns, header.stat().st_size) == (before.st_mtime_ns, before.st_size)
    assert store.get(key) is None
    assert store.get_or_build(key, build).output("m.so").read_bytes() == b"two"


def test_a_header_replaced_by_rename_with_its_times_kept_rebuilds(
    store: Store, key: CacheKey, header: Path, build: Callable[[Path], BuildOutput]
):
    store.get_or_build(key, build)
    other = header.with_name("new.h")
    other.write_bytes(b"two")
    shutil.copystat(header, other)
    other.rename(header)
    assert store.get(key) is None


def test_a_touch_does_not_rebuild_and_is_remembered(
    store: Store, key: CacheKey, header: Path, build: Callable[[Path], BuildOutput]
):
    entry = store.get_or_build(key, build)
    os.utime(header, (1e9, 1e9))
    hit = store.get(key)
    assert hit is not None
    assert hit.path == entry.path
    assert hit.manifest.dependencies.mtimes_ns[0] == 10**18
    again = store.get(key)
    assert again is not None
    assert again.manifest.dependencies == hit.manifest.dependencies


def test_a_header_switched_back_and_forth_hits(
    store: Store, key: CacheKey, header: Path, build: Callable[[Path], BuildOutput], edit: Edit
):
    contents = [b"one", b"two", b"333", b"4444"]
    for content in contents:
        edit(header, content)
        assert store.get_or_build(key, build).built
    for content in contents * 2:
        edit(header, content)
        hit = store.get(key)
        assert hit is not None
        assert hit.output("m.so").read_bytes() == content


def test_a_missing_header_invalidates(store: Store, key: CacheKey, header: Path, build: Callable[[Path], BuildOutput]):
    store.get_or_build(key, build)
    header.unlink()
    assert store.get(key) is None

    def without(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(b"none")
        return BuildOutput(outputs=("m.so",))

    assert store.get_or_build(key, without).reason == f"{header} is gone"


def test_a_header_edited_while_it_was_compiled_is_compiled_again(store: Store, key: CacheKey, header: Path, edit: Edit):
    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(header.read_bytes())
        if header.read_bytes() == b"one":
            edit(header, b"two")
        return BuildOutput(outputs=("m.so",), dependencies=(header,))

    first = store.get_or_build(key, build)
    assert first.output("m.so").read_bytes() == b"one"
    assert first.manifest.uncertain == (str(header),)
    assert store.get(key) is None
    second = store.get_or_build(key, build)
    assert second.reason == f"{header} may have changed during the build"
    assert second.output("m.so").read_bytes() == b"two"
    assert store.get(key) is not None


def test_a_header_deleted_while_it_was_compiled_is_in_doubt(store: Store, key: CacheKey, header: Path):
    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(b"x")
        header.unlink(missing_ok=True)
        return BuildOutput(outputs=("m.so",), dependencies=(header,))

    assert store.get_or_build(key, build).manifest.uncertain == (str(header),)
    assert store.get(key) is None


def test_a_new_header_that_comes_first_rebuilds(store: Store, key: CacheKey, header: Path, tmp_path: Path):
    first = tmp_path / "first"
    first.mkdir()
    absent = shadowing_paths([header], [first, header.parent])
    assert absent == (first / "x.h",)

    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(b"x")
        return BuildOutput(outputs=("m.so",), dependencies=(header,), absent=absent)

    store.get_or_build(key, build)
    assert store.get(key) is not None
    (first / "x.h").write_text("shadow")
    assert store.get(key) is None
    assert f"{first / 'x.h'} is new" in store.get_or_build(key, build).reason


def test_a_file_in_the_place_of_a_folder_that_was_gone_meanwhile_rebuilds(
    store: Store, key: CacheKey, header: Path, tmp_path: Path
):
    """A compiler passes over a folder called x.h. A load while it is gone writes the manifest anew."""
    folder = tmp_path / "first" / "x.h"
    folder.mkdir(parents=True)

    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(b"x")
        return BuildOutput(outputs=("m.so",), dependencies=(header,), absent=(folder,))

    store.get_or_build(key, build)
    shutil.rmtree(folder.parent)
    header.touch()
    assert store.get(key) is not None
    folder.parent.mkdir()
    folder.write_text("shadow")
    assert store.get(key) is None


def test_shadowing_paths_skip_what_exists_and_what_is_elsewhere(tmp_path: Path):
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "x.h").write_text("")
    (folders[2] / "x.h").write_text("")
    dependencies = [folders[2] / "x.h", Path("/usr/include/stdio.h"), folders[0] / "y.h"]
    assert shadowing_paths(dependencies, folders) == (folders[1] / "x.h",)


@pytest.fixture
def recorded(header: Path) -> Manifest:
    """A manifest of one header, recorded long after the header's last change."""
    record = record_file(str(header), str(header))
    return Manifest(
        digest="d",
        kind="k",
        name="n",
        created_ns=0,
        recorded_ns=record.ctime_ns + RACY_MARGIN_NS + 1,
        outputs=Files(),
        dependencies=Files.of([record]),
    )


def test_stat_is_trusted_only_past_the_margin(recorded: Manifest):
    assert is_unchanged("/", recorded)
    assert not is_unchanged("/", recorded._replace(recorded_ns=recorded.recorded_ns - 1))


def test_a_racy_record_with_equal_stat_is_hashed(recorded: Manifest):
    """An edit within one tick of the clock: the stat is equal, the content is not."""
    racy = recorded._replace(recorded_ns=recorded.recorded_ns - RACY_MARGIN_NS)
    assert examine("/", racy).problem == ""
    (record,) = racy.dependencies.records
    edited = racy._replace(dependencies=Files.of([record._replace(sha256="0" * 64)]))
    assert examine("/", edited).problem.endswith("changed")


def test_a_file_hashed_in_doubt_is_trusted_by_stat_from_then_on(recorded: Manifest):
    old = record_file(pytest.__file__, pytest.__file__)
    racy = recorded._replace(recorded_ns=old.ctime_ns, dependencies=Files.of([old]))
    assert not is_unchanged("/", racy)
    refreshed = examine("/", racy).refreshed
    assert refreshed is not None
    assert is_unchanged("/", refreshed)


def test_a_doubt_that_remains_writes_nothing(recorded: Manifest):
    """The header was made a moment ago: hashing it again does not make its stat proof."""
    racy = recorded._replace(recorded_ns=recorded.recorded_ns - RACY_MARGIN_NS)
    verdict = examine("/", racy)
    assert (verdict.problem, verdict.refreshed) == ("", None)


def test_stat_alone_sees_a_path_that_should_be_absent(recorded: Manifest, tmp_path: Path):
    absent, _ = group_absent([str(tmp_path / "none.h")])
    assert is_unchanged("/", recorded._replace(absent=absent))
    (tmp_path / "none.h").touch()
    assert not is_unchanged("/", recorded._replace(absent=absent))


def test_a_folder_that_becomes_a_circle_of_links_is_seen(recorded: Manifest, tmp_path: Path):
    """A compiler that looks for a header there stops, where it passed over the folder."""
    folder = tmp_path / "none.h"
    folder.mkdir()
    absent, _ = group_absent([str(folder)])
    assert is_unchanged("/", recorded._replace(absent=absent))
    folder.rmdir()
    assert is_unchanged("/", recorded._replace(absent=absent))
    folder.symlink_to(tmp_path / "b.h")
    (tmp_path / "b.h").symlink_to(folder)
    assert not is_unchanged("/", recorded._replace(absent=absent))


@pytest.mark.parametrize("field", ["size", "mtime_ns", "ctime_ns", "inode"])
def test_each_part_of_a_stat_counts(recorded: Manifest, field: str):
    (record,) = recorded.dependencies.records
    other = record._replace(**{field: getattr(record, field) - 1})
    assert not is_unchanged("/", recorded._replace(dependencies=Files.of([other])))


def test_a_path_no_file_can_have_is_no_crash(recorded: Manifest):
    broken = recorded._replace(dependencies=Files.of([FileRecord("a\0b", 1, 1, 1, 1, "")]))
    assert not is_unchanged("/", broken)
    assert examine("/", broken).problem


def test_what_changes_between_two_outputs_of_a_build_is_in_doubt(
    store: Store, key: CacheKey, header: Path, tmp_path: Path, edit: Edit
):
    """The second output may be made from either content, and so may all that is made from both."""
    other = tmp_path / "other.h"
    other.write_text("other")
    tick = tmp_path / "tick"
    tick.touch()
    first = record_files([header, other], Recorded(tick.stat().st_ctime_ns + 1, time.time_ns(), {}))
    assert record_files([header, other], first) == first
    edit(header, b"edited")
    second = record_files([header], first)
    assert second.records[str(other)] == first.records[str(other)]
    assert second.records[str(header)] != first.records[str(header)]

    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(b"")
        return BuildOutput(outputs=("m.so",), dependencies=(header, other), recorded=second)

    assert store.get_or_build(key, build).manifest.uncertain == (str(header),)
    header.unlink()
    assert str(header) not in record_files([header, other], second).records


HOUR_NS = 3_600_000_000_000


def _recorded_by(clock_ns: Callable[[], int], header: Path) -> Callable[[Callable[[], object]], Recorded]:
    """What a build knows of a header where this machine's clock is the given one, and the file system's is right."""

    def record(build: Callable[[], object]) -> Recorded:
        began_ns = clock_ns()
        build()
        return record_files([header], Recorded(began_ns, clock_ns(), {}))

    return record


@pytest.mark.parametrize("ahead_ns", [HOUR_NS // 3600, HOUR_NS, 9000 * HOUR_NS], ids=["second", "hour", "year"])
def test_an_edit_during_a_build_is_seen_where_the_file_systems_clock_is_ahead(
    store: Store, key: CacheKey, header: Path, edit: Edit, ahead_ns: int
):
    record = _recorded_by(lambda: time.time_ns() - ahead_ns, header)

    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(header.read_bytes())
        recorded = record(lambda: edit(header, b"two") if header.read_bytes() == b"one" else None)
        return BuildOutput(outputs=("m.so",), dependencies=(header,), recorded=recorded)

    assert store.get_or_build(key, build).output("m.so").read_bytes() == b"one"
    assert store.get_or_build(key, build).output("m.so").read_bytes() == b"two"
    found = store.get(key)
    assert found is not None, "two builds with the same file in between: it did not change"
    assert found.output("m.so").read_bytes() == b"two"


def test_a_file_that_another_process_records_during_a_build_proves_nothing(store: Store, key: CacheKey, header: Path):
    """Where there are no locks, two build at once: the other's record may be of what came after the edit."""
    record = _recorded_by(lambda: time.time_ns() - HOUR_NS, header)

    def other(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(b"")
        return BuildOutput(outputs=("m.so",), dependencies=(header,), recorded=record(lambda: None))

    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(header.read_bytes())
        recorded = record(lambda: store._replace(flock=lambda fd, how: None).get_or_build(key, other, force=True))
        return BuildOutput(outputs=("m.so",), dependencies=(header,), recorded=recorded)

    assert store.get_or_build(key, build).manifest.uncertain == (str(header),)


def test_a_build_begins_at_the_earlier_of_two_clocks(tmp_path: Path):
    """The cache's folder on a server whose clock is ahead says nothing of sources on this machine's disk."""
    of_the_folder = tmp_path.stat().st_ctime_ns
    assert build_began(str(tmp_path), of_the_folder + 1) == of_the_folder
    assert build_began(str(tmp_path), of_the_folder - HOUR_NS) == of_the_folder - HOUR_NS


def test_an_edit_during_a_build_is_not_seen_where_the_file_systems_clock_is_behind(
    store: Store, key: CacheKey, header: Path, edit: Edit
):
    """A limit that docs/caching.md states."""
    record = _recorded_by(lambda: time.time_ns() + HOUR_NS, header)

    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(header.read_bytes())
        return BuildOutput(outputs=("m.so",), dependencies=(header,), recorded=record(lambda: edit(header, b"two")))

    store.get_or_build(key, build)
    found = store.get(key)
    assert found is not None
    assert found.output("m.so").read_bytes() == b"one"


def test_a_file_of_an_image_with_fixed_times_is_told_by_its_inode_and_hashed_once(recorded: Manifest, tmp_path: Path):
    """The same image, mounted anew elsewhere, may number its files otherwise; its content decides."""
    old = record_file(pytest.__file__, pytest.__file__)
    other = recorded._replace(dependencies=Files.of([old._replace(inode=old.inode + 1)]))
    assert not is_unchanged("/", other)
    refreshed = examine("/", other).refreshed
    assert refreshed is not None
    assert is_unchanged("/", refreshed)
    edited = other._replace(dependencies=Files.of([old._replace(inode=old.inode + 1, sha256="0" * 64)]))
    assert examine("/", edited).problem.endswith("changed")


@pytest.mark.parametrize(("number", "counts"), [(errno.EACCES, False), (errno.EIO, True), (errno.ESTALE, True)])
def test_a_folder_that_this_user_may_not_look_at_has_no_file(
    recorded: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, *, counts: bool
):
    """It is another user's, such as /root/.cargo/bin in PATH; a network file system that fails tells nothing."""
    closed = tmp_path / "closed"
    closed.mkdir()
    absent, _ = group_absent([str(closed / "g++")])
    manifest = recorded._replace(absent=(*recorded.absent, *absent))
    real = os.stat

    def stat(path: str, **options: bool) -> os.stat_result:
        if str(path).startswith(str(closed)):
            raise OSError(number, os.strerror(number), path)
        return real(path, **options)

    assert not examine("", manifest).problem
    monkeypatch.setattr(os, "stat", stat)
    assert bool(examine("", manifest).problem) is counts
    assert is_unchanged("", manifest) is not counts


@pytest.mark.parametrize(
    ("listed", "name", "counts"), [("/", "x.txt", True), ("/.", "x.txt", False), ("/.", "libq.so.3", True)]
)
def test_a_listed_folder_counts_by_its_names(
    store: Store, key: CacheKey, tmp_path: Path, listed: str, name: str, counts: bool
):
    folder = tmp_path / "listed"
    folder.mkdir()
    (folder / "libq.so.2").touch()

    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").touch()
        return BuildOutput(("m.so",), others=(f"{folder}{listed}",))

    store.get_or_build(key, build)
    (folder / name).touch()
    assert (store.get(key) is None) == counts


def test_an_absent_path_may_have_any_number_of_folders(tmp_path: Path):
    assert group_absent([f"{tmp_path}{'/a' * 3000}"])[0][0].folder == str(tmp_path)
