"""The headers that a raw kernel may read: what NVRTC finds, and whatever it would find after a change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from be_runtime.kernels.cuda.raw_headers import Headers, Search, find_headers, named_paths


def find(source: str, *folders: Path, own: tuple[Path, ...] = (), built_in: tuple[str, ...] = ()) -> Headers:
    def read(path: Path) -> str | None:
        return path.read_text() if path.is_file() else None

    search = Search(folders, own, built_in, read, lambda path: Path(os.path.realpath(path)))
    return find_headers(source, "k.cu", search)


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_headers_are_followed_and_each_read_once(tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    write(first / "a.h", '#include "b.h"\n  #  include <sub/c.h>\n#include <missing.h>')
    write(first / "b.h", '#include "a.h"')
    write(second / "sub" / "c.h", '#include "d.h"')
    write(second / "sub" / "d.h")
    found = find('#include "a.h"\n', first, second)
    assert sorted(path.name for path in found.files) == ["a.h", "b.h", "c.h", "d.h"]
    assert found.unknown == ()
    assert {first / "missing.h", first / "sub" / "c.h"} <= set(found.absent)


@pytest.mark.parametrize(
    "spelling",
    [
        *(
            "#include <{}>",
            '#include_next "{}"',
            '%:include "{}"',
            '\f#\v include "{}"',
            '#if 0\n#include "{}"\n#endif',
        ),
        *('#inc\\\nlude "{}"', '#inc\\\r\nlude "{}"\r\n', '/* a\n b */ # /* c */ include /* d */ "{}" // e'),
        "#if defined(__has_include) && __has_include( <{}> )\n#endif",
    ],
)
def test_every_spelling_is_found(spelling: str, tmp_path: Path):
    header = write(tmp_path / "x.h")
    assert find(spelling.format("x.h"), tmp_path) == find(spelling.format(header)) == Headers((header,), ())


def test_a_header_in_any_folder_may_be_meant(tmp_path: Path):
    """`#include_next`, and `<>` beside `""`, pass over what a plain search would find first."""
    headers = [write(tmp_path / name / "x.h") for name in ("a", "b")]
    assert find("#include <x.h>", tmp_path / "a", tmp_path / "b").files == tuple(headers)


def test_paths_that_grow_end(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    write(tmp_path / "x.h", '#include "sub/../x.h"')
    write(tmp_path / "y.h")
    (tmp_path / "link").symlink_to(".")
    write(tmp_path / "z.h", '#include "link/z.h"\n#include "link/y.h"')
    assert len(find('#include "x.h"\n#include "z.h"', tmp_path).files) < 8


@pytest.mark.parametrize("line", ["#include HEADER", "  # include S(x)", "#if __has_include(HEADER)\n#endif"])
def test_a_macro_in_place_of_a_name_is_said(line: str, tmp_path: Path):
    header = write(tmp_path / "x.h", line)
    (said,) = find('#include "x.h"', tmp_path).unknown
    assert said.startswith(f"the header that {header} names as ")
    assert len(find(line).unknown) == 1
    assert find('#include "x.h"', own=(tmp_path,)).unknown == (), "CUDA's own lead to headers of one release"


def test_words_that_are_no_directive():
    for line in ("// we include HEADER", "include HEADER", 'puts("#include HEADER");', "#ifdef include"):
        assert find(line) == Headers((), ())


def test_cudas_own_headers_are_read_but_not_waited_for(tmp_path: Path):
    own = write(tmp_path / "cuda" / "c.h", "#include <other.h>\n#include <cstdint>")
    found = find("#include <c.h>", tmp_path / "mine", own=(tmp_path / "cuda",), built_in=("cstdint",))
    assert found.files == (own,)
    assert set(found.absent) == {tmp_path / "mine" / "c.h", tmp_path / "mine" / "other.h"}


def test_flags_that_are_not_understood_may_name_a_folder():
    found = named_paths(("-isystem=/a b", "--new-option", "/c", "-x/d", "plain"))
    assert found == (Path("/a b"), Path("/c"), Path("/d"))
