"""When a followed module is made anew, with files and a maker of the test's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from be_runtime.errors import BuildError
from be_runtime.live.followed import FollowedModule, MadeModule, Stamp, stamp_of
from be_runtime.request.arguments import cpp_request, dir_again, load_options
from be_runtime.request.options import BuildRequest, LoadOptions, Unit
from be_runtime.source_text import SourceText


class Module(NamedTuple):
    """Stands for a compiled module."""

    content_hash: str

    @property
    def __info__(self) -> Module:
        return self


@dataclass
class Files:
    """Files by path, each with the number of its edits; 0 is no file."""

    edits: dict[str, int]
    writing: list[str] = field(default_factory=list)
    pauses: int = 0

    def stamp(self, path: str) -> Stamp:
        count = self.edits.get(path, 0)
        return (count, count, count, 1) if count else None

    def pause(self, _seconds: float) -> None:
        """Let an editor that writes in several steps do the next."""
        self.pauses += 1
        if self.writing:
            path = self.writing.pop(0)
            self.edits[path] = self.edits.get(path, 0) + 1


@dataclass
class Maker:
    """Makes modules of what the files are, or fails."""

    files: Files
    headers: tuple[str, ...] = ()
    on: bool = True
    output: str = ""
    fails: bool = False
    made: list[str] = field(default_factory=list)
    forced: list[bool] = field(default_factory=list)
    news: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def is_on(self) -> bool:
        return self.on

    def make(self, request: BuildRequest, options: LoadOptions, _followed: FollowedModule) -> MadeModule:
        if self.fails:
            raise BuildError("compiling k.cc failed", output=self.output)
        self.forced.append(options.force_rebuild)
        content = " ".join(str(self.files.edits.get(path, 0)) for path in ("/a/k.cc", *self.headers))
        self.made.append(content)
        module: Any = Module(content)
        return MadeModule(module, self.headers)

    def changed(self, module: Any) -> None:
        self.news.append(module.content_hash)

    def failed(self, name: str, error: Exception) -> None:
        self.failures.append(f"{name}: {error}")


UNIT = Unit("k", (SourceText("/a/k.cc", "text"),), Path("/a/k.cc"))
REQUEST = cpp_request("k", (UNIT,), None)


def follow(maker: Maker, **options: Any) -> FollowedModule:
    load = load_options("k", force_rebuild=True)
    reread = options.pop("reread", lambda request: request.units)
    return FollowedModule(REQUEST, load, reread, maker, stamp=maker.files.stamp, pause=maker.files.pause)


def content(followed: FollowedModule) -> str:
    return followed.current().content_hash


def test_it_is_made_anew_when_a_file_changes_and_not_else():
    maker = Maker(Files({"/a/k.cc": 1, "/a/k.h": 1}), ("/a/k.h",))
    followed = follow(maker)
    assert [content(followed) for _ in range(3)] == ["1 1"] * 3
    maker.files.edits["/a/k.h"] = 2
    assert [content(followed) for _ in range(3)] == ["1 2"] * 3
    assert maker.made == ["1 1", "1 2"]
    assert maker.news == ["1 2"], "the first is told by who loads it"
    assert maker.forced == [True, False], "a forced rebuild is one"


def test_a_file_that_is_being_written_is_waited_for():
    maker = Maker(Files({"/a/k.cc": 1}))
    followed = follow(maker)
    maker.files.edits["/a/k.cc"] = 2
    maker.files.writing = ["/a/k.cc"] * 3
    assert content(followed) == "5"
    assert maker.made == ["1", "5"]


def test_a_file_that_is_gone_is_waited_for_and_then_made_without():
    maker = Maker(Files({"/a/k.cc": 1}))
    followed = follow(maker)
    maker.files.edits["/a/k.cc"] = 0
    assert content(followed) == "0"
    assert 10 < maker.files.pauses < 100
    content(followed)
    assert len(maker.made) == 2


def test_what_fails_is_tried_again_when_a_file_that_matters_changes():
    maker = Maker(Files({"/a/k.cc": 1, "/b/new.h": 1, "/a": 1}))
    followed = follow(maker)
    maker.files.edits["/a/k.cc"], maker.fails = 2, True
    maker.output = "/b/new.h:3:1: error: no"
    for _ in range(3):
        with pytest.warns(UserWarning, match=r"k can't be used as it is saved, so the code before runs: comp"):
            assert content(followed) == "1"
    assert len(maker.failures) == 1
    maker.files.edits["/b/new.h"] = 2
    with pytest.warns(UserWarning, match="the code before runs"):
        content(followed)
    assert len(maker.failures) == 2, "a header that it names"
    maker.fails, maker.files.edits["/a"] = False, 2
    assert content(followed) == "2", "the folder of the source: the missing header may be there"
    assert maker.news == ["2"]


def test_the_same_content_is_the_same_module():
    maker = Maker(Files({"/a/k.cc": 1, "/a/k.h": 1}), ("/a/k.h",))
    followed = follow(maker)
    first = followed.current()
    maker.files.edits["/a/k.h"] = 2

    def same(request: BuildRequest, options: LoadOptions, _followed: FollowedModule) -> MadeModule:
        return MadeModule(Module(first.content_hash), ("/a/k.h",))  # type: ignore[arg-type]

    maker.make = same  # type: ignore[method-assign]
    assert followed.current() is first
    assert maker.news == []


def test_nothing_is_looked_at_while_no_watch_is_on():
    maker = Maker(Files({"/a/k.cc": 1}))
    followed = follow(maker)
    maker.on = False
    maker.files.edits["/a/k.cc"] = 2
    assert content(followed) == "1"
    maker.on = True
    assert content(followed) == "2"


def test_a_folder_is_looked_at_itself(tmp_path: Path):
    (tmp_path / "k.cc").write_text("1")
    unit = UNIT._replace(path=tmp_path / "k.cc")
    maker = Maker(Files({}))
    made = FollowedModule(cpp_request("k", (unit,), None), load_options("k"), dir_again, maker, pause=lambda _: None)
    made.current()
    (tmp_path / "l.cc").write_text("2")
    made.current()
    assert len(maker.made) == 2


def test_a_stamp_tells_contents_apart_and_a_missing_file(tmp_path: Path):
    path = tmp_path / "x"
    assert stamp_of(str(path)) is None
    path.write_text("a")
    first = stamp_of(str(path))
    fresh = tmp_path / "y"
    fresh.write_text("a")
    fresh.rename(path)
    assert stamp_of(str(path)) != first
