"""An artifact: its index, its images, which are mapped if they are what their hash says, and that it is whole."""

from __future__ import annotations

import _ctypes
import hashlib
import io
import itertools
import json
import multiprocessing
import os
import platform
import signal
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from be_runtime.errors import ArgumentError, LoadError
from be_runtime.own_files import ABI
from be_runtime.store import index as index_module
from be_runtime.store.artifact import Artifact, open_folder, open_trusted, write_folder
from be_runtime.store.images import KEPT, check_baseline, is_whole, library_problem, map_bytes, require_baseline
from be_runtime.store.index import (
    CodeImage,
    Handlers,
    ImageTarget,
    Index,
    ModuleRecord,
    parse_index,
    render_contents,
    render_index,
    target_name,
)
from tests.support.accounts import STRANGER, needs_root, open_place

__all__ = ["open_place"]  # a fixture

DATA = b"not a library"
DIGEST = hashlib.sha256(DATA).hexdigest()
OTHERS = "can be written by other users"
FORKS = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning", "ignore:This process .* is multi-threaded")
"""JAX may be there, by other tests; the children do not use it."""


def write(folder: Path, *images: bytes, machine: str = platform.machine()) -> None:
    named = {hashlib.sha256(data).hexdigest(): data for data in images}
    rows = {digest: CodeImage("library", "cpu", len(data)) for digest, data in named.items()}
    write_folder(folder, Index(machine, rows), named)


def opened(folder: Path) -> Artifact:
    artifact = open_folder(folder)
    assert artifact is not None
    return artifact


def written(folder: Path, machine: str = platform.machine()) -> Artifact:
    """An artifact of one image, which no loader would take."""
    write(folder, DATA, machine=machine)
    return opened(folder)


def require_refused(artifact: Artifact, words: str) -> None:
    with pytest.raises(LoadError, match=words):
        artifact.library(DIGEST)


@pytest.mark.parametrize("other", [b"not a lib\0ary", DATA[:-1], DATA[::-1]])
def test_another_file_is_refused_also_in_a_package_that_is_imported_anyway(tmp_path: Path, other: bytes):
    artifact = written(tmp_path / "package" / "b")
    artifact.path(DIGEST).write_bytes(other)
    for each in (artifact, artifact._replace(vouched=tmp_path / "package")):
        require_refused(each, "other bytes than when it was built")
    artifact.path(DIGEST).unlink()
    require_refused(artifact, f"images/{DIGEST}.so can't be read")


def test_code_that_this_machine_cannot_run_names_what_it_lacks(tmp_path: Path):
    require_refused(written(tmp_path, "s390x"), f"was built for s390x, and this machine is {platform.machine()}")
    info = tmp_path / "cpuinfo"
    info.write_text("flags\t\t: fpu sse2 cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 avx\n")
    require_baseline("x86-64-v2", "it", info)
    with pytest.raises(LoadError, match="level x86-64-v3, and this one lacks abm, avx2, bmi1"):
        require_baseline("x86-64-v3", "it", info)
    with pytest.raises(LoadError, match="a CPU of level 'x86-64-v9', which this release does not support"):
        require_baseline("x86-64-v9", "it", info)


def test_a_level_that_does_not_exist_is_refused():
    assert check_baseline("x86-64-v4", "x86_64") == "x86-64-v4"
    for value, machine in (("x86-64-v5", "x86_64"), ("x86-64-v2", "aarch64"), (3, "x86_64")):
        with pytest.raises(ArgumentError, match="is not a level"):
            check_baseline(value, machine)


@pytest.mark.parametrize("level", ["", "images", f"images/{DIGEST}.so", "index.json", ".."])
def test_what_others_may_write_is_neither_believed_nor_mapped(tmp_path: Path, level: str):
    folder = tmp_path / "packages" / "b"
    assert open_folder(tmp_path) is open_folder(folder) is open_trusted(folder) is None, "it has no index"
    artifact = written(folder)
    assert open_trusted(folder) is not None
    (folder / level).chmod(0o777)
    if level not in ("index.json", ".."):
        require_refused(artifact, rf"{OTHERS} \(mode 777\)")
    if "images" not in level:
        with pytest.raises(LoadError, match=OTHERS):
            open_trusted(folder)
    if level == "..":  # which is as safe as the package that is imported anyway
        assert open_trusted(folder, vouched=tmp_path / "packages") is not None


@needs_root
def test_what_another_user_owns_is_not_mapped_unless_their_package_is_run_anyway(tmp_path: Path):
    folder = tmp_path / "package" / "_kernels"
    folder.parent.mkdir()
    artifact = written(folder)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    require_refused(artifact, "belongs to another user")
    os.chown(folder.parent, STRANGER, STRANGER)
    require_refused(artifact._replace(vouched=folder.parent), "can't be loaded: ")


def require_unmapped(words: str) -> None:
    with pytest.raises(LoadError, match=words):
        map_bytes(DATA, DIGEST, "here")


def test_bytes_that_are_no_library_leave_nothing_open():
    before = os.listdir("/proc/self/fd")
    require_unmapped("can't be loaded")
    assert len(os.listdir("/proc/self/fd")) == len(before)


@needs_root
def test_no_code_is_written_where_others_could_replace_it(
    tmp_path: Path, open_place: Path, monkeypatch: pytest.MonkeyPatch
):
    """Where there are no files in memory."""
    monkeypatch.setattr(os, "memfd_create", Mock(side_effect=PermissionError))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    require_unmapped("can't be loaded")
    os.chown(tmp_path, STRANGER, STRANGER)
    require_unmapped(r"code is not written to .* belongs to another user")
    assert os.listdir(tmp_path) == []
    (open_place / "mine").mkdir()
    open_place.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", f"{open_place}/mine")
    require_unmapped(f"which can't be trusted: {open_place} {OTHERS}")


class Checks:
    """Checks of a file that was written long ago, as far as its change time tells, and where they are remembered."""

    def __init__(self, folder: Path) -> None:
        self.image, self.memory = folder / "image.so", folder / "cache" / "images"
        self.image.write_bytes(DATA)
        self.hash = Mock(wraps=hashlib.file_digest)

    def check(self, digest: str = DIGEST, size: int = len(DATA)) -> bool:
        return is_whole(self.image, digest, size, str(self.memory))

    def hashes(self) -> bool:
        """Return whether a check, which finds the file whole, reads it."""
        self.hash.reset_mock()
        assert self.check()
        return self.hash.called


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checks:
    found, later = Checks(tmp_path), time.time_ns() + 10**10
    monkeypatch.setattr(hashlib, "file_digest", found.hash)
    monkeypatch.setattr(time, "time_ns", lambda: later)
    return found


def test_a_file_is_hashed_once(checks: Checks):
    assert [checks.hashes() for _ in range(3)] == [True, False, False]
    places = (checks.memory.parent, checks.memory)
    assert [oct(place.stat().st_mode & 0o777) for place in places] == ["0o700", "0o700"]


def test_whatever_may_have_changed_is_hashed_again(checks: Checks, tmp_path: Path):
    """Another path, another file of the same bytes, and other bytes of the same size and time."""
    assert checks.check()
    checks.image = checks.image.rename(tmp_path / "other.so")
    assert checks.hashes()
    (tmp_path / "new").write_bytes(DATA)
    before = (tmp_path / "new").replace(checks.image).stat()
    assert checks.hashes()
    checks.image.write_bytes(DATA.upper())
    os.utime(checks.image, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not checks.check()


def test_what_is_refused_or_was_just_written_is_not_remembered(checks: Checks, monkeypatch: pytest.MonkeyPatch):
    assert not checks.check(digest="0" * 64) | checks.check(size=1)
    monkeypatch.setattr(time, "time_ns", lambda: checks.image.stat().st_ctime_ns)
    assert checks.check()
    assert not checks.memory.exists()


def test_without_a_folder_that_can_be_written_each_process_hashes(checks: Checks):
    checks.memory = Path("/proc/nowhere")
    assert [checks.hashes() for _ in range(2)] == [True, True]
    assert is_whole(checks.image, DIGEST, len(DATA), "")


@pytest.mark.parametrize("change", ["open", "link", pytest.param("owner", marks=needs_root)])
def test_what_others_could_have_remembered_is_not_believed(checks: Checks, tmp_path: Path, change: str):
    assert checks.check()
    if change == "open":
        checks.memory.chmod(0o777)
    elif change == "link":
        checks.memory.rename(tmp_path / "real")
        checks.memory.symlink_to(tmp_path / "real")
    else:
        os.chown(checks.memory, STRANGER, STRANGER)
    assert checks.hashes()


def test_the_oldest_checks_are_forgotten(checks: Checks):
    checks.memory.mkdir(mode=0o700, parents=True)
    for number in range(KEPT + 5):
        (checks.memory / str(number)).touch()
        os.utime(checks.memory / str(number), (number, number))
    assert checks.check()
    assert len(os.listdir(checks.memory)) == KEPT
    assert not checks.hashes()


def write_two(folder: Path, number: int) -> None:
    write(folder, b"shared", b"%d" % number * 200_000)


def write_slowly(folder: Path, number: int) -> None:
    """Write again and again, with a pause at each step that others can meet."""
    # time.sleep is an event too.
    sys.addaudithook(lambda event, _args: time.sleep(0.002) if event == "os.rename" else None)
    for _ in range(20):
        write_two(folder, number)


def write_until(folder: Path, last: int) -> None:
    """Write, and be killed before a call of the system."""
    calls = itertools.count(1)
    sys.addaudithook(lambda _event, _args: os.kill(os.getpid(), signal.SIGKILL) if next(calls) == last else None)
    write_two(folder, last)


def exit_codes(function: Callable[[Path, int], None], folder: Path, numbers: range) -> list[int | None]:
    """Run a function in processes at once, one a number, and return how they ended; the artifact is whole then."""
    fork = multiprocessing.get_context("fork")
    running = [fork.Process(target=function, args=(folder, number)) for number in numbers]
    for each in running:
        each.start()
    for each in running:
        each.join()
    artifact = opened(folder)
    for digest in artifact.table.images:
        artifact.image(digest)
    return [each.exitcode for each in running]


@FORKS
def test_processes_that_write_one_artifact_wait_for_each_other(tmp_path: Path):
    assert exit_codes(write_slowly, tmp_path / "_kernels", range(3)) == [0, 0, 0]
    assert len(os.listdir(tmp_path / "_kernels" / "images")) == 2


@FORKS
def test_a_killed_build_leaves_the_artifact_whole_and_nothing_that_the_next_one_does_not_remove(tmp_path: Path):
    folder = tmp_path / "_kernels"
    write_two(folder, 0)
    number = 1
    while exit_codes(write_until, folder, range(number, number + 1)) != [0]:
        number += 1
    assert number > 10
    assert os.listdir(tmp_path) == ["_kernels"]
    assert len(os.listdir(folder / "images")) == 2


def test_every_user_can_read_it_and_files_of_another_build_go(tmp_path: Path):
    folder = tmp_path / "_kernels"
    before = os.umask(0o077)
    try:
        write_folder(folder, Index("x86_64", {}), {})
        (folder / "__init__.py").write_text("x = 1\n")  # as earlier releases wrote it
        write_two(folder, 1)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))} == {0o755, 0o644}
    assert sorted(os.listdir(folder)) == ["images", "index.json"]


@pytest.mark.parametrize("name", ["notes.txt", "index.html"])
def test_a_folder_or_a_file_of_somebody_else_is_kept(tmp_path: Path, name: str):
    (tmp_path / name).write_text("mine")
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(ArgumentError, match="that this command did not write"):
        write_folder(tmp_path, Index("x86_64", {}), {})
    assert sorted(os.listdir(tmp_path)) == sorted([name, "index.json"])
    with pytest.raises(ArgumentError, match="can't be written: Not a directory"):
        write_folder(tmp_path / name, Index("x86_64", {}), {})


KNOWN, OTHER = "ab" * 32, "00" * 32
IMAGE = CodeImage("library", "CUDA", 12, ("8.0", "9.0"), "x86-64-v3")
INDEX = Index(
    machine="x86_64",
    images={KNOWN: IMAGE},
    targets={target_name(KNOWN, "f"): ImageTarget(KNOWN, "CUDA", {"execute": "f", "instantiate": "g"})},
    modules={"ops": {"language": "cuda"}},
)
ROW = ModuleRecord("cpp", OTHER, render_contents({"f": Handlers("be_f", "be_g", spec=("ret",))}), {"a.cc": "ff"})


def test_what_was_written_is_read():
    assert parse_index(render_index(INDEX), "here") == INDEX
    assert ModuleRecord.read(json.loads(json.dumps(ROW._asdict())), "here") == ROW
    assert list(ROW.contents()) == ["f"]


def image(**changes: Any) -> dict[str, Any]:
    return {"images": {KNOWN: IMAGE._asdict() | changes}}


def target(name: str, digest: str = KNOWN, **stages: str) -> dict[str, Any]:
    return {"targets": {name: {"image": digest, "platform": "cpu", "stages": stages}}}


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("update brainevent-toolchain here", [{"format": index_module.FORMAT + 1}, {"abi": ABI + 1}]),
        ("build it again with this release", [{"format": index_module.FORMAT - 1}]),
        ("build here again with this", [{"abi": 0}]),
        ("damaged", [{"abi": "1"}, {"images": []}, {"targets": {"f": {}}}, {"modules": None}, {"machine": 64}]),
        ("damaged", [{"images": {KNOWN: {"kind": "script", "platform": "cpu", "size": 1}}}]),
        ("damaged", [{"images": {"../../elsewhere": IMAGE._asdict()}, "targets": {}}]),
        ("damaged", [image(archs=[9]), image(size=None), image(kind="cubin")]),
        ("damaged", [target("lapack_sgetrf_ffi", execute="f"), target(target_name(KNOWN, "f"))]),
        ("damaged", [target(target_name(OTHER, "f"), OTHER)]),
    ],
)
def test_another_format_or_abi_says_which_side_to_update(message: str, changes: list[dict[str, Any]]):
    for change in changes:
        text = json.dumps(json.loads(render_index(INDEX)) | change)
        with pytest.raises(LoadError) as caught:
            parse_index(text, "here")
        assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", render_index(INDEX)[:-20], "[" * 10_000])
def test_a_damaged_index_is_named_and_errors_of_ours_pass(text: str):
    with pytest.raises(LoadError, match="some/place has a damaged index"):
        parse_index(text, "some/place")
    with (
        pytest.raises(LoadError, match="some/place has a damaged index: KeyError: 'x'"),
        index_module.reading("some/place"),
    ):
        INDEX.modules["x"]
    with pytest.raises(LoadError) as caught, index_module.reading("some/place"):
        raise ValueError("x" * 10_000)
    assert len(str(caught.value)) < 1000
    with pytest.raises(ArgumentError, match="ours"), index_module.reading("some/place"):
        raise ArgumentError("ours")


WRONG = [ROW._asdict() | {field: value} for field in ROW._fields for value in (7, None, ["a"], {"a": 1})]


@pytest.mark.parametrize("row", [*WRONG, {"language": "cpp"}, ROW._asdict() | {"more": 1}, 7])
def test_a_row_with_values_of_other_types_or_other_fields_is_damage(row: Any):
    with pytest.raises(LoadError, match="here has a damaged index"):
        ModuleRecord.read(row, "here")


@pytest.mark.parametrize("number", range(len(Handlers._fields)))
def test_a_function_of_other_values_is_damage(number: int):
    values: list[Any] = [*Handlers("be_f", "be_g")]
    values[number] = 7
    with pytest.raises(TypeError, match="7 is not of the type str"):
        ROW._replace(functions=json.dumps({"functions": {"f": values}})).contents()


LIBRARY = Path(_ctypes.__file__).read_bytes()
HERE = platform.machine()
COUNT = struct.unpack_from("<H", LIBRARY, 0x38)[0]
PLACES = {struct.unpack_from("<I", LIBRARY, at)[0]: at for at in range(64 + 56 * (COUNT - 1), 63, -56)}
"""Where the first program header of each kind is."""
LOAD, DYNAMIC, RELRO = PLACES[1], PLACES[2], PLACES[0x6474E552]


def changed(offset: int, form: str, value: int) -> bytes:
    data = bytearray(LIBRARY)
    struct.pack_into(form, data, offset, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("problem", "files"),
    [
        ("", [LIBRARY]),
        (
            "it is not a 64-bit ELF file",
            [b"", b"code", LIBRARY[:63], b"\x7fELF\x01" + LIBRARY[5:], b"\x7fElf" + LIBRARY[4:]],
        ),
        (f"it is not a shared library for {HERE}", [changed(16, "<H", 2), changed(18, "<H", 243)]),
        ("its ELF header is damaged", [changed(32, "<Q", 1 << 40), changed(52, "<H", 65), changed(54, "<H", 55)]),
        ("its ELF header is damaged", [changed(56, "<H", 0), changed(56, "<H", 65535)]),
        ("its program headers are damaged", [LIBRARY[:4096]]),
    ],
)
def test_what_is_no_library_here_is_told_from_one(problem: str, files: list[bytes]):
    assert [library_problem(io.BytesIO(data), HERE) for data in files] == [problem] * len(files)


@pytest.mark.parametrize(
    ("header", "field", "form", "value"),
    [
        *((LOAD, 0, "<I", 4), (LOAD, 4, "<I", 0), (LOAD, 8, "<Q", 1 << 12), (LOAD, 16, "<Q", 1 << 40)),
        *((LOAD, 32, "<Q", 1 << 62), (LOAD, 40, "<Q", 1), (LOAD, 48, "<Q", 3), (RELRO, 40, "<Q", 1 << 40)),
        *((DYNAMIC, 0, "<I", 4), (DYNAMIC, 8, "<Q", 1 << 40), (DYNAMIC, 16, "<Q", 0)),
    ],
)
def test_headers_that_would_end_the_process_in_the_loader_are_refused(header: int, field: int, form: str, value: int):
    """Such as of segments that are not mapped, and of no table for the loader."""
    file = io.BytesIO(changed(header + field, form, value))
    assert library_problem(file, HERE) == "its program headers are damaged"
