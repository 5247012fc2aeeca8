"""Disks that get full at any stage of a build, read-only folders and folders mounted noexec.

A load gives what its header says, or an error that says what to do. What it left is used by nobody: as soon as there is
room, a load is right. ``make test-faults`` tries more amounts of free space.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.faults import LEVEL, effort, longer
from tests.support.mounts import run_in_mounts

STEP = effort(4, 1, 1)
"""Step of the free space, in pages."""

_DISK = "mkdir disk\nmount -t tmpfs -o size=16m,nr_inodes=2000 none disk\n"
_BEGIN = """
import os, shutil, sys
sys.path[:0] = eval(sys.argv[1])
from pathlib import Path
import be_runtime
from tests.faults import answering
from be_runtime.store.cache import BuildOutput, Cache; from be_runtime.store.keys import make_key
from be_runtime.errors import BuildError, CacheError, LoadError
disk, header = Path("disk").absolute(), Path("x.h").absolute()

def quick(store):
    def build(staging):
        (staging / "copy").write_text(header.read_text() * 3000)
        return BuildOutput(outputs=("copy",), dependencies=(header,))
    entry = store.get_or_build(make_key("test", ("name", "quick")), build)
    return int(entry.output("copy").read_text().removesuffix(header.read_text()).split()[-1]), entry.built

def real(**options):
    flags = [f"-I{header.parent}", "-O0"]
    return answering.load("real", "VALUE", '#include "x.h"', extra_cflags=flags, **options)[0]

def write(value):
    header.write_text(f"#define VALUE {value}\\n")

def empty():
    for item in disk.iterdir():
        shutil.rmtree(item) if item.is_dir() else item.unlink()

def fill(pages, files):
    for number in range(os.statvfs(disk).f_favail - files - 1):
        (disk / f"empty{number}").touch()
    found = os.statvfs(disk)
    (disk / "rest").write_bytes(bytes((found.f_bavail - pages) * found.f_frsize))

def free():
    for item in disk.glob("empty*"):
        item.unlink()
    (disk / "rest").unlink()
"""
_QUICK = """
failed = worked = 0
for pages, files in [*((pages, 500) for pages in range(0, 40, STEP)), *((500, files) for files in range(0, 16))]:
    empty()
    store = Cache(disk / "cache")
    for has_entry in (False, True):  # once into an empty folder, once beside an entry that is out of date
        value = 100 * pages + 10 * has_entry + 1000000 * files
        write(value)
        fill(pages, files)
        try:
            assert quick(store) == (value, True), (pages, files)
            worked += 1
        except CacheError as error:
            assert "No space left on device" in error.message and "clear_cache()" in error.hints[0], error
            failed += 1
        assert not list(disk.glob("**/staging/*")), "nothing is left behind"
        free()
        assert quick(store)[0] == value and quick(store) == (value, False), (pages, files)
print(failed, worked)
"""
_REAL = """
be_runtime.set_cache_dir(disk / "cache")
failed, worked, loaded = 0, 0, set()
for pages in LEVELS:
    for keeps in (False, True):  # of the toolchain's own entries
        shutil.rmtree(disk / "cache/kernels-v1" if keeps else disk / "cache", ignore_errors=True)
        value = 2 * pages + keeps
        write(value)
        fill(pages, 1500)
        try:
            assert real() == value, pages
            worked += 1
            loaded.add(keeps)
        except (BuildError, CacheError) as error:
            assert "clear_cache()" in str(error.hints) and "TMPDIR" in str(error.hints), (pages, str(error))
            assert keeps not in loaded, "what is optional fails nothing"
            failed += 1
        assert not list(disk.glob("**/staging/*")), "nothing is left behind"
        free()
        assert real() == value, pages
print(failed, worked)
"""
_CLOSED = """
import subprocess
def remount(options):
    subprocess.run(["mount", "-o", f"remount,bind,{options}", "disk"], check=True)

def error_of(load):
    try:
        return f"loaded {load()}"
    except (BuildError, CacheError, LoadError) as error:
        return f"{type(error).__name__}: {error}"

be_runtime.set_cache_dir(disk / "cache")
write(1)
remount("ro")
print(error_of(real))
remount("rw")
assert real() == 1
remount("ro")
assert real() == 1, "an entry serves"
write(2)
print(error_of(real))
store = be_runtime.load.process.PROCESS.session().cache
print(error_of(store.clear))
remount("rw,noexec")
print(error_of(real))
print(error_of(lambda: real(build_directory=disk / "other")))
remount("rw,exec")
assert real() == 2
assert real(build_directory=disk / "other") == 2
assert not list(disk.glob("**/staging/*"))
"""


def _counts(tmp_path: Path, script: str) -> list[int]:
    return list(map(int, run_in_mounts(tmp_path, _DISK, _BEGIN + script).split()))


def test_at_every_stage_of_a_publication(tmp_path: Path):
    failed, worked = _counts(tmp_path, f"STEP = {STEP}\n{_QUICK}")
    assert min(failed, worked) > 5


def test_at_every_stage_of_a_build(tmp_path: Path):
    levels = [*range(0, 40, 2), *range(40, 120, 4)] if LEVEL else [2, 60]
    failed, worked = _counts(tmp_path, f"LEVELS = {levels}\n{_REAL}")
    assert failed > 0
    assert worked > 0


@longer
def test_folders_that_are_read_only_or_noexec(tmp_path: Path):
    said = run_in_mounts(tmp_path, "mkdir disk real\nmount --bind real disk\n", _BEGIN + _CLOSED)
    errors = [line for line in said.splitlines() if line.partition(":")[0].endswith("Error")]
    assert len(errors) == 5, said
    assert all("CacheError" in error and "Read-only file system" in error for error in errors[:3]), said
    assert all("LoadError" in error for error in errors[3:]), said
    assert said.count("noexec; set BE_CACHE_DIR") == 2, said
    assert "loaded " not in said.replace("be loaded: ", "")
