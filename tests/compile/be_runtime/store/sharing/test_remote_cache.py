"""Two machines and a remote cache: one fills it, the other compiles nothing; and nothing that is wrong is loaded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.settings import Settings
from be_runtime.store.artifact import pack, unpack
from be_runtime.store.cache import Cache, read_manifest
from be_runtime.store.remote import open_remote
from be_toolchain.remote import RemoteSource
from tests.compile.be_runtime.scaling import scaling
from tests.support.faulty_server import closed_port, faulty_server
from tests.support.file_server import FileServer, serving
from tests.support.nginx import nginx
from tests.support.prefixes import HEADER, Prefix
from tests.support.runtime import environment, run_python

SOURCE = scaling()
PROCESS = f"""
import sys, jax
before = set(sys.modules)
import be_runtime
from be_runtime.store.cache import Cache
from be_runtime.store.cache import read_manifest
path = be_runtime.load_cpp_inline("shared", {SOURCE!r}).path.parents[1]
new = set(sys.modules) - before
shared = ["be_runtime.store.places", "be_runtime.store.remote", "be_runtime.store.sharing"]
imported = sorted(new.intersection([*shared, "cryptography", "fsspec"]))
print(read_manifest(str(path), path.parent.name).made.source, *imported)
"""
WRITES: dict[str, Any] = {"BE_REMOTE_CACHE_WRITE": "1"}


def in_process(cache: Path, url: str, **variables: str) -> tuple[str, list[str], str]:
    """Load in a process: where the module is from, which modules were imported, and standard error."""
    done = run_python(PROCESS, env=environment(BE_CACHE_DIR=str(cache), BE_REMOTE_CACHE=url, **variables))
    source, *imported = done.stdout.rstrip("\n").split(" ")
    return source, imported, done.stderr


class Machines:
    """Machines whose caches lack the module, one after the other in this process, and what their loads say."""

    def __init__(self, cache: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.cache, self.patch, self.capsys = cache, patch, capsys

    def load(self, url: str, *, is_new: bool = True, **variables: str) -> tuple[bool, str]:
        """Load as another machine, or as the last one: whether it built, and what was said."""
        if is_new:
            Cache(self.cache).clear("shared")
        with self.patch.context() as patch:
            for variable, value in {"BE_REMOTE_CACHE": url, **variables}.items():
                patch.setenv(variable, value)
            be_runtime.set_cache_dir(self.cache)
            path = be_runtime.load_cpp_inline("shared", SOURCE, auto_register=False).path.parents[1]
            place = open_remote(RemoteSource(url, "BE_REMOTE_CACHE"), Settings.from_environ(os.environ), print)
            assert place is not None
            place.link.finish(60)
        manifest = read_manifest(str(path), path.parent.name)
        assert manifest is not None
        return manifest.made.source == "", self.capsys.readouterr().err


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def machines(cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machines:
    return Machines(cache, monkeypatch, capsys)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as found:
        yield found


@pytest.mark.full
@pytest.mark.needs("nginx")
def test_one_machine_compiles_and_the_other_does_not_by_the_page_s_nginx(tmp_path: Path):
    store = tmp_path / "nginx" / "store"
    with nginx(tmp_path / "nginx") as writers_url:
        url = writers_url.replace("ci:secret@", "")
        assert in_process(tmp_path / "reader", url)[::2] == ("", "")
        assert " 401 " in in_process(tmp_path / "reader_2", url, **WRITES)[2]
        assert [path for path in store.rglob("*") if path.is_file()] == [], "without the password, nobody writes"
        assert in_process(tmp_path / "a", writers_url, **WRITES)[::2] == ("", "")
        assert {path.parent for path in store.rglob("*") if path.is_file()} == {store / "kernels/be-1/ac"}
        assert in_process(tmp_path / "b", url)[::2] == (url, "")


def test_a_process_compiles_and_another_imports_what_it_takes_to_load(tmp_path: Path, server: FileServer):
    assert in_process(tmp_path / "a", server.url, **WRITES)[::2] == ("", "")
    source, imported, said = in_process(tmp_path / "b", server.url)
    assert (source, said) == (server.url, "")
    assert "be_runtime.store.remote" in imported
    assert not {"cryptography", "fsspec"} & set(imported)
    assert in_process(tmp_path / "b", server.url) == (server.url, [], ""), "a warm load imports nothing of this"


def test_what_is_damaged_is_said_and_compiled_here(machines: Machines, server: FileServer):
    assert machines.load(server.url, **WRITES) == (True, "")
    ((path, good),) = server.files.items()
    server.files[path] = good[:-1] + bytes([good[-1] ^ 1])
    is_built, said = machines.load(server.url)
    assert is_built
    assert f"shared: the artifact from {server.url} is damaged" in said
    machines.load(server.url, **WRITES)
    assert machines.load(server.url) == (False, ""), "who builds anew and may write puts it right"


def test_only_what_is_signed_by_a_trusted_key_is_loaded(machines: Machines, server: FileServer, tmp_path: Path):
    signing = pytest.importorskip("be_runtime.store.signing")
    (private, public), (_, other) = signing.make_keys(), signing.make_keys()
    key = tmp_path / "key"
    signing.write_private_key(key, private)
    machines.load(server.url, **WRITES)
    is_built, said = machines.load(server.url, BE_REMOTE_CACHE_PUBLIC_KEY=public)
    assert is_built
    assert f"shared: the artifact from {server.url} is not signed; it is not used; the builder must sign it" in said
    assert "since BE_REMOTE_CACHE_PUBLIC_KEY is set\n" in said
    machines.load(server.url, **WRITES, BE_REMOTE_CACHE_PRIVATE_KEY=str(key), BE_REMOTE_CACHE_PUBLIC_KEY=public)
    assert machines.load(server.url, BE_REMOTE_CACHE_PUBLIC_KEY=f"{other},{public}") == (False, "")
    is_built, said = machines.load(server.url, BE_REMOTE_CACHE_PUBLIC_KEY=other)
    assert is_built
    assert "is not signed by a trusted key; it is not used; if you trust the signer, add" in said
    assert "their key to BE_REMOTE_CACHE_PUBLIC_KEY\n" in said


def test_without_its_server_a_load_builds(machines: Machines):
    is_built, said = machines.load(closed_port(), **WRITES)
    assert is_built
    assert "Connection refused; is it running? Unset BE_REMOTE_CACHE to do without" in said
    assert said.count("reading") <= 2


@pytest.mark.full
def test_a_server_that_says_nothing_delays_a_process_for_a_read_and_an_upload(tmp_path: Path):
    """Two waits of a second, the second one when the process ends."""
    with faulty_server() as server:
        _, _, said = in_process(tmp_path / "a", f"{server.url}/silent", **WRITES, BE_REMOTE_CACHE_TIMEOUT="1")
    assert [line.partition(" http")[0] for line in said.splitlines()] == [
        "be_runtime: remote cache: reading",
        "be_runtime: remote cache: writing",
    ]


def tampered(data: bytes, code: bytes = b"", functions: str = "", **inputs: Any) -> bytes:
    """An unsigned artifact with other code, functions or inputs, as somebody may put there who can write."""
    found = unpack(data, "here")
    code = code or found.image(found.table.image)
    ((name, row),) = found.table.modules.items()
    digest, made_from = hashlib.sha256(code).hexdigest(), found.table.inputs
    assert made_from
    table = found.table._replace(
        images={digest: found.table.images[found.table.image]._replace(size=len(code))},
        modules={name: {**row, "image": digest, "functions": functions or row["functions"]}},
        inputs=made_from._replace(**inputs),
    )
    return pack(table, {digest: code})


def test_whatever_a_server_sends_a_load_compiles_instead(machines: Machines, server: FileServer):
    machines.load(server.url, **WRITES)
    ((path, good),) = server.files.items()
    found = unpack(good, "here")
    library = found.image(found.table.image).replace(b"be_ffi_", b"be_off_")
    for file, problem in (
        (tampered(good, functions='{"functions": ' + "[" * 100_000), ""),
        (tampered(good, functions='{"functions": {}}'), "its list of functions differs from a build here"),
        (tampered(good, b"no library"), ""),
        (tampered(good, library), ""),
        (tampered(good, digest="0" * 64), "belongs to another entry"),
    ):
        server.files[path] = file
        is_built, said = machines.load(server.url)
        assert is_built
        assert len(said.splitlines()) == 1, said
        assert server.url in said
        assert problem in said
    assert machines.load(server.url, is_new=False) == (True, ""), "once is enough"


@pytest.mark.full
def test_a_module_of_another_prefix_is_taken_unless_its_header_is_another_there(tmp_path: Path, server: FileServer):
    """The paths of the installations are not of one length, and one has a blank."""
    first, second = Prefix(tmp_path / "first"), Prefix(tmp_path / "elsewhere/a second")
    assert first.load("load_cpp_file", "k.cc", BE_REMOTE_CACHE=server.url, **WRITES) == ["", ""]
    source, said = second.load("load_cpp_file", "k.cc", BE_REMOTE_CACHE=server.url)
    assert source == server.url, said
    assert len(server.files) == len(server.hits) == 1
    header = second.folder / "kernels/twice.h"
    header.write_text(HEADER.replace("2 * x", "x + x"))
    source, said = second.load("load_cpp_file", "k.cc", BE_REMOTE_CACHE=server.url)
    assert source == ""
    assert f"was built with another {header} than the one here" in said
