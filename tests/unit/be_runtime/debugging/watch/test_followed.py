"""When a followed module is made anew, with files and a maker of the test's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from be_runtime.debugging.watch import FollowedModule, MadeModule, Stamp, stamp_of
from be_runtime.errors import BuildError
from be_runtime.request.arguments import cpp_request, load_options
from be_runtime.request.options import BuildRequest, LoadOptions, Unit
from be_runtime.signature import SourceText

SOURCE, HEADER = "/a/k.cc", "/a/k.h"
UNIT = Unit("k", (SourceText(SOURCE, "text"),), Path(SOURCE))


@dataclass
class Maker:
    """Makes modules of what files are, by the number of their edits (0 is no file), or fails."""

    edits: dict[str, int] = field(default_factory=lambda: {SOURCE: 1, HEADER: 1})
    writing: list[str] = field(default_factory=list)
    pauses: int = 0
    on: bool = True
    output: str = ""
    is_same: bool = False
    made: list[str] = field(default_factory=list)
    forced: list[bool] = field(default_factory=list)
    news: list[str] = field(default_factory=list)
    failed: Mock = field(default_factory=Mock)

    def stamp(self, path: str) -> Stamp:
        count = self.edits.get(path, 0)
        return (count, count, count, 1) if count else None

    def pause(self, _seconds: float) -> None:
        """Let an editor that writes in several steps do the next."""
        self.pauses += 1
        if self.writing:
            self.edits[self.writing.pop(0)] += 1

    def is_on(self) -> bool:
        return self.on

    def make(self, request: BuildRequest, options: LoadOptions) -> MadeModule:
        if self.output:
            raise BuildError("compiling k.cc failed", output=self.output)
        self.forced.append(options.force_rebuild)
        self.made.append(f"{self.edits[SOURCE]} {self.edits[HEADER]}")
        module: Any = SimpleNamespace(content_hash=self.made[0 if self.is_same else -1])
        module.__info__ = module
        return MadeModule(module, (HEADER,))

    def changed(self, module: Any) -> None:
        self.news.append(module.content_hash)


@pytest.fixture
def maker() -> Maker:
    return Maker()


@pytest.fixture
def followed(maker: Maker) -> FollowedModule:
    request, options = cpp_request("k", (UNIT,), None), load_options("k", force_rebuild=True)
    return FollowedModule(request, options, lambda each: each.units, maker, stamp=maker.stamp, pause=maker.pause)


def content(followed: FollowedModule) -> str:
    return followed.current().content_hash


def test_it_is_made_anew_when_a_file_changes_and_a_watch_is_on_and_not_else(maker: Maker, followed: FollowedModule):
    assert [content(followed) for _ in range(3)] == ["1 1"] * 3
    maker.on, maker.edits[HEADER] = False, 2
    assert content(followed) == "1 1"
    maker.on = True
    assert [content(followed) for _ in range(3)] == ["1 2"] * 3
    assert maker.made == ["1 1", "1 2"]
    assert maker.news == ["1 2"], "the first is told by who loads it"
    assert maker.forced == [True, False], "a forced rebuild is one"


def test_a_file_that_is_being_written_is_waited_for(maker: Maker, followed: FollowedModule):
    maker.edits[SOURCE] = 2
    maker.writing = [SOURCE] * 3
    assert content(followed) == "5 1"
    assert maker.made == ["1 1", "5 1"]


def test_a_file_that_is_gone_is_waited_for_and_then_made_without(maker: Maker, followed: FollowedModule):
    maker.edits[SOURCE] = 0
    assert content(followed) == "0 1"
    assert 10 < maker.pauses < 100
    content(followed)
    assert len(maker.made) == 2


def test_what_fails_is_tried_again_when_a_file_that_matters_changes(maker: Maker, followed: FollowedModule):
    maker.edits |= {"/b/new.h": 1, "/a": 1, SOURCE: 2}
    maker.output = "/b/new.h:3:1: error: no"
    for _ in range(3):
        with pytest.warns(UserWarning, match=r"k was saved, but fails to load, so the previous code runs: comp"):
            assert content(followed) == "1 1"
    assert maker.failed.call_count == 1
    maker.edits["/b/new.h"] = 2
    with pytest.warns(UserWarning, match="the previous code runs"):
        content(followed)
    assert maker.failed.call_count == 2, "a header that it names"
    maker.output, maker.edits["/a"] = "", 2
    assert content(followed) == "2 1", "the folder of the source: the missing header may be there"
    assert maker.news == ["2 1"]


def test_the_same_content_is_the_same_module(maker: Maker, followed: FollowedModule):
    first = followed.current()
    maker.edits[HEADER], maker.is_same = 2, True
    assert followed.current() is first
    assert (len(maker.made), maker.news) == (2, [])


def test_a_stamp_tells_contents_apart_and_a_missing_file(tmp_path: Path):
    path = tmp_path / "x"
    assert stamp_of(str(path)) is None
    path.write_text("a")
    first = stamp_of(str(path))
    fresh = tmp_path / "y"
    fresh.write_text("a")
    fresh.rename(path)
    assert stamp_of(str(path)) != first
