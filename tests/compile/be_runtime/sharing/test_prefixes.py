"""What one installation compiles, another in other folders takes from the remote cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.file_server import serving
from tests.support.prefixes import HEADER, Prefix


@pytest.mark.full
def test_a_module_of_another_prefix_is_taken_unless_its_header_is_another_there(tmp_path: Path):
    """The paths of the installations are not of one length, and one has a blank."""
    first, second = Prefix(tmp_path / "first"), Prefix(tmp_path / "elsewhere/a second")
    with serving() as server:
        source, said = first.load("load_cpp_file", "k.cc", BE_REMOTE_CACHE=server.url, BE_REMOTE_CACHE_WRITE="1")
        assert (source, said) == ("", "")
        source, said = second.load("load_cpp_file", "k.cc", BE_REMOTE_CACHE=server.url)
        assert source == server.url, said
        assert len(server.files) == len(server.hits) == 1
        header = second.folder / "kernels/twice.h"
        header.write_text(HEADER.replace("2 * x", "x + x"))
        source, said = second.load("load_cpp_file", "k.cc", BE_REMOTE_CACHE=server.url)
        assert source == ""
        assert f"is of another {header} than the one here" in said
