"""Flipped bits in every file of a cache: the next load notices, and gives what was meant.

A flip is a write: it changes a file's times, of which the modification time may be set back. Damage below the file
system changes no time; a load that is to be quick can't notice that, and the pages say so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from be_runtime.store.cache import BuildOutput, Cache, Entry
from be_runtime.store.keys import make_key
from tests.support.faults import Tallies, chance, effort, longer, seeds
from tests.support.runtime import environment

pytestmark = pytest.mark.timeout(7200)
CONTENT = bytes(range(256)) * 4


def flip(path: Path, at: int, bit: int, *, keeps_time: bool) -> None:
    """Flip a bit of a file in place."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
    if keeps_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


KEY, OTHER = (
    make_key("module", ("name", "ops"), ("flags", (level, "-g")), ("source", "int a;\nint b;\n"))
    for level in ("-O2", "-O3")
)


def load(store: Cache, header: Path) -> Entry:
    """Build or find an entry that has two outputs, a dependency and names that must not exist."""

    def build(staging: Path) -> BuildOutput:
        (staging / "src").mkdir()
        (staging / "m.so").write_bytes(CONTENT)
        (staging / "src" / "a.cc").write_text("int a;\n")
        absent = (header.parent / "b.h", header.parent / "none" / "c.h")
        return BuildOutput(outputs=("m.so", "src/a.cc"), dependencies=(header,), absent=absent)

    return store.get_or_build(KEY, build)


def problem_of(store: Cache, header: Path, name: str) -> str:
    """What is wrong with a load after a flip in that file of the entry, and with all else that reads the entry."""
    shown, listed, entry = store.explain(OTHER), len(list(store.entries())), load(store, header)
    if entry.output("m.so").read_bytes() != CONTENT or entry.output("src/a.cc").read_text() != "int a;\n":
        return "a wrong output"
    if not entry.built and name != "key.json":
        return "not noticed"
    if shown not in ((), ("flags: removed '-O2'; added '-O3'",)):
        return f"a wrong reason: {shown}"
    return "" if listed == 1 else f"{listed} entries are listed"


EVERY = effort(97, 7, 1)
"""Of the bytes of each file, one in so many is flipped; in the full form each bit of each byte."""


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("name", ["m.so", "src/a.cc", "manifest.json", "key.json"])
def test_every_byte_of_an_entry(name: str, seed: int, tally: Tallies, tmp_path: Path):
    rng, flips = chance(seed), tally("flips in an entry's files", seed)
    store, header = Cache(tmp_path / "cache"), tmp_path / "a.h"
    header.write_text("int a;\n")
    size = (load(store, header).path / name).stat().st_size
    for at in range(rng.randrange(EVERY), size, EVERY):
        for bit in range(8) if EVERY == 1 else (rng.randrange(8),):
            path = load(store, header).path / name
            flip(path, min(at, path.stat().st_size - 1), bit, keeps_time=rng.random() < 0.5)
            problem = problem_of(store, header, name)
            flips.tried += 1
            flips.wrong += [f"{name}, bit {bit} of byte {at}: {problem}"] if problem else []
            if name == "key.json":
                store.clear()
    flips.check()


FLIPS = effort(6, 80, 600)


def loads(cache: Path, *numbers: int) -> str:
    """What is wrong with the answers of some modules, in a process of its own."""
    wanted = [*map(str, numbers)]
    argv = (sys.executable, "-m", "tests.faults.answering", "flipped", *wanted)
    env = environment(BE_CACHE_DIR=str(cache))
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode == 0 and done.stdout.split() == wanted:
        return ""
    return f"exit status {done.returncode}: {done.stdout} {done.stderr[-1000:]}"


@longer
@pytest.mark.parametrize("seed", seeds(1))
def test_any_file_of_a_whole_cache(seed: int, tally: Tallies, tmp_path: Path):
    """The toolchain's record and what all builds share are among them: the next module is built with them."""
    rng, flips = chance(seed), tally("flips in any file of a cache", seed)
    assert loads(tmp_path, 0) == ""
    while flips.tried < FLIPS:
        files = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]
        name = rng.choice(sorted({path.name for path in files}))  # since most files are sources and logs
        path = max((path for path in files if path.name == name), key=lambda path: path.stat().st_mtime_ns)
        at = rng.randrange(path.stat().st_size)
        flip(path, at, rng.randrange(8), keeps_time=rng.random() < 0.5)
        flips.tried += 1
        problem = loads(tmp_path, flips.tried - 1, flips.tried)
        flips.wrong += [f"{path.relative_to(tmp_path)}, byte {at}: {problem}"] if problem else []
    flips.check()
