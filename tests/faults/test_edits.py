"""Random edits of a project, each judged by a build that uses nothing of the cache.

The short form runs with the other tests; ``make test-faults`` takes minutes, and with ``FULL=1`` hours. A failure names
the seed and every edit up to the wrong one.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from be_runtime.errors import BuildError
from tests.faults import answering
from tests.support.faults import Tallies, chance, effort, first_of, seeds
from tests.support.looked_at import archive

pytestmark = pytest.mark.usefixtures("tmp_cache")

EDITS = effort(12, 400, 10_000)
PROJECTS = max(2, EDITS // 100)
FOLDERS = ("e", "e/sub", "f", "g/h", "i", "i/sub")
NAMES = ("a.h", "b.h", "sub/a.h", "sub/b.h")
TEXT = """
#define B_H "b.h"
{asks}
#ifndef VALUE_A
#define VALUE_A 7
#endif
#ifndef VALUE_B
#define VALUE_B 0
#endif
extern "C" int linked(void);
"""
VALUE = "VALUE_A + 10 * VALUE_B + 100 * linked()"
ASKS = (
    '#include "a.h"\n#ifndef VALUE_B\n#define VALUE_B 0\n#endif',
    "#include <sub/a.h>\n#if __has_include(B_H)\n#include B_H\n#else\n#define VALUE_B 0\n#endif",
    '#if __has_include("a.h")\n#include "a.h"\n#elif __has_include(<sub/b.h>)\n#include <sub/b.h>\n#endif',
)


class Project:
    """A folder of headers and libraries, and the load that reads them."""

    def __init__(self, root: Path, objects: Path, rng: random.Random) -> None:
        self.root, self.objects, self.rng = root, objects, rng
        self.done: list[str] = []
        self.source = TEXT.format(asks=rng.choice(ASKS))
        places = rng.sample(FOLDERS, 4)
        self.cflags = [f"{rng.choice(('-I', '-iquote', '-isystem', '-idirafter'))}{root / place}" for place in places]
        self.ldflags = [f"-L{root / place}" for place in rng.sample(FOLDERS, 2)] + [f"-L{root}/i", "-lx"]
        root.mkdir()
        for name in ("i/a.h", "i/sub/a.h", "i/b.h"):
            self.write(root / name)
        self.library(root / "i/libx.a")

    def path(self) -> Path:
        return self.root / self.rng.choice(FOLDERS) / self.rng.choice(NAMES)

    def clear(self, path: Path) -> None:
        """Make room, whatever is there or stands in the way."""
        for each in (*reversed(path.relative_to(self.root).parents[:-1]), path.relative_to(self.root)):
            place = self.root / each
            if place.is_symlink() or place.is_file():
                place.unlink()
        if path.is_dir():
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path) -> None:
        value, other = (f"#undef VALUE_{name}\n#define VALUE_{name} {self.rng.randrange(1, 10)}\n" for name in "AB")
        nested = '#if __has_include("b.h") && !defined(ONCE)\n#define ONCE\n#include "b.h"\n#endif\n'
        self.clear(path)
        path.write_text(value + "".join(part for part in (other, nested) if self.rng.random() < 0.3))

    def library(self, path: Path) -> None:
        self.clear(path)
        shutil.copyfile(self.objects / f"lib{self.rng.randrange(1, 10)}.a", path)

    def some_file(self, pattern: str) -> list[Path]:
        """A file or a link, if there is one."""
        found = [path for path in self.root.rglob(pattern) if path.is_file() or path.is_symlink()]
        return [self.rng.choice(found)] if found else []

    # the edits

    def edit_header(self) -> None:
        self.write(self.path())

    def edit_in_place(self) -> None:
        """Another digit: the same size, and the modification time set back."""
        for path in filter(Path.is_file, self.some_file("*.h")):
            times = path.stat()
            path.write_text(path.read_text().translate(str.maketrans("123456789", "234567891")))
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def remove(self) -> None:
        for path in self.some_file("*"):
            path.unlink()

    def remove_folder(self) -> None:
        self.clear(self.root / self.rng.choice(FOLDERS))

    def make_folder(self) -> None:
        path = self.path()
        self.clear(path)
        path.mkdir()

    def link(self) -> None:
        path, target = self.path(), self.path()
        if path != target:
            self.clear(path)
            path.symlink_to(target)

    def link_folder(self) -> None:
        first, second = self.rng.sample(FOLDERS, 2)
        if not (first.startswith(second) or second.startswith(first)):
            self.clear(self.root / first)
            (self.root / first).symlink_to(self.root / second)

    def swap(self) -> None:
        first, second = (self.root / name for name in self.rng.sample(FOLDERS, 2))
        are_folders = all(path.is_dir() and path.resolve() == path for path in (first, second))
        if are_folders and not (first.is_relative_to(second) or second.is_relative_to(first)):
            first.rename(self.root / "aside")
            second.rename(first)
            (self.root / "aside").rename(second)

    def edit_library(self) -> None:
        self.library(self.root / self.rng.choice(FOLDERS) / "libx.a")

    def script(self) -> None:
        path = self.root / self.rng.choice(FOLDERS) / "libx.so"
        self.clear(path)
        path.write_text(f"INPUT({self.objects}/lib{self.rng.randrange(1, 10)}.a)\n")

    def touch(self) -> None:
        for path in filter(Path.is_file, self.some_file("*")):
            path.touch()

    def edit(self) -> None:
        edits = [self.edit_header, self.edit_header, self.edit_in_place, self.remove, self.remove_folder]
        edits += [self.make_folder, self.link, self.link_folder, self.swap, self.edit_library, self.script, self.touch]
        chosen = self.rng.choice(edits)
        self.done.append(chosen.__name__)
        chosen()

    def answer(self, *, anew: bool) -> int | str:
        """What the module gives, or that it does not build."""
        options: dict[str, Any] = {"extra_cflags": self.cflags, "extra_ldflags": self.ldflags, "force_rebuild": anew}
        try:
            return answering.load("edited", VALUE, self.source, **options)[0]
        except BuildError:
            return "fails"


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Archives whose function returns one of nine values."""
    folder = tmp_path_factory.mktemp("objects")
    for value in range(1, 10):
        archive(folder / f"lib{value}.a", value)
    return folder


@pytest.mark.needs("ar", "cc")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", first_of(seeds(PROJECTS)))
def test_a_load_gives_what_a_clean_build_gives(seed: int, tmp_path: Path, objects: Path, tally: Tallies):
    project, edits = Project(tmp_path / "project", objects, chance(seed)), tally("edits", seed)
    project.answer(anew=False)
    while edits.tried < EDITS // PROJECTS and not edits.wrong:
        project.edit()
        found, true = project.answer(anew=False), project.answer(anew=True)
        edits.tried += 1
        edits.wrong += [f"{found} instead of {true} after {project.done}"] if found != true else []
    edits.check()
