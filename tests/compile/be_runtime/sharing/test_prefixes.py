"""What one installation compiles, another in other folders takes from the remote cache."""

from __future__ import annotations

import pytest

from tests.support.file_server import FileServer, serving
from tests.support.prefixes import CPP, HEADER, Prefix


@pytest.fixture(scope="module")
def prefixes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Prefix, Prefix]:
    """Two installations; their paths are not of one length, and one has a blank."""
    folder = tmp_path_factory.mktemp("prefixes")
    return Prefix(folder / "first"), Prefix(folder / "elsewhere/a second")


def test_a_module_of_another_prefix_is_taken(prefixes: tuple[Prefix, Prefix]):
    first, second = prefixes
    with serving() as server:
        source, said = first.load("load_cpp_file", "k.cc", BE_REMOTE_CACHE=server.url, BE_REMOTE_CACHE_WRITE="1")
        assert (source, said) == ("", "")
        source, said = second.load("load_cpp_file", "k.cc", BE_REMOTE_CACHE=server.url)
        assert source == server.url, said
        assert len(server.files) == len(server.hits) == 1


def test_another_header_there_is_a_build_there(prefixes: tuple[Prefix, Prefix]):
    first, second = prefixes
    with serving() as server:
        for prefix in prefixes:
            (prefix.folder / "kernels/k.cc").write_text(CPP + "// another header\n")
        first.load("load_cpp_file", "k.cc", BE_REMOTE_CACHE=server.url, BE_REMOTE_CACHE_WRITE="1")
        header = second.folder / "kernels/twice.h"
        header.write_text(HEADER.replace("2 * x", "x + x"))
        source, said = second.load("load_cpp_file", "k.cc", BE_REMOTE_CACHE=server.url)
        header.write_text(HEADER)
        assert source == ""
        assert f"is of another {header} than the one here" in said


def test_wrong_bytes_are_a_build(prefixes: tuple[Prefix, Prefix]):
    first, second = prefixes
    with serving() as server:
        for prefix in prefixes:
            (prefix.folder / "kernels/k.cc").write_text(CPP + "// wrong bytes\n")
        first.load("load_cpp_file", "k.cc", BE_REMOTE_CACHE=server.url, BE_REMOTE_CACHE_WRITE="1")
        _flip(server)
        source, said = second.load("load_cpp_file", "k.cc", BE_REMOTE_CACHE=server.url)
        assert source == ""
        assert "is damaged" in said


def _flip(server: FileServer) -> None:
    for path, data in server.files.items():
        server.files[path] = data[:-10] + bytes([data[-10] ^ 1]) + data[-9:]
