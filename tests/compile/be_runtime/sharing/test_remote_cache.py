"""Two machines and a remote cache: one fills it, the other compiles nothing; and nothing that is wrong is loaded."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from be_runtime.sharing.archive import pack, unpack
from tests.support.faulty_server import closed_port, faulty_server
from tests.support.file_server import serving
from tests.support.nginx import nginx
from tests.support.runtime import environment, forwarding_compiler, run_python

SOURCE = """
#include "brainevent/common.h"
// @BE twice arg ret
void twice(const BE::Tensor x, BE::Tensor out) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
}
"""
LOAD = f"""
import sys, jax, numpy as np
before = set(sys.modules)
import be_runtime
module = be_runtime.load_cpp_inline("shared", {SOURCE!r})
out = jax.ffi.ffi_call("shared.twice", jax.ShapeDtypeStruct((3,), np.float32))(np.ones(3, np.float32))
assert out.tolist() == [2.0, 2.0, 2.0]
new = set(sys.modules) - before
print(*sorted(name for name in new if name.startswith("be_runtime.sharing.") or name in ("cryptography", "fsspec")))
"""


class Machine(NamedTuple):
    """A cache of its own, the same compiler, which notes what it compiles."""

    folder: Path
    compiler: Path
    notes: Path

    def load(self, name: str, url: str, **variables: str) -> tuple[list[str], list[str], str]:
        """Load a module as a machine: what was compiled, which modules were imported, and standard error."""
        self.notes.write_text("")
        env = environment(
            BE_CXX=str(self.compiler), BE_CACHE_DIR=str(self.folder / name), BE_REMOTE_CACHE=url, **variables
        )
        done = run_python(LOAD, env=env)
        return self.notes.read_text().split(), done.stdout.splitlines()[-1].split(), done.stderr


@pytest.fixture
def machines(tmp_path: Path) -> Machine:
    notes = tmp_path / "notes"
    return Machine(tmp_path, forwarding_compiler(tmp_path / "g++", f"echo compiled >> '{notes}'"), notes)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with nginx(tmp_path / "nginx") as url:
        yield url


def entries(machines: Machine) -> list[Path]:
    return [path for path in (machines.folder / "nginx" / "store").rglob("*") if path.is_file()]


WRITES = {"BE_REMOTE_CACHE_WRITE": "1"}


@pytest.mark.needs("nginx")
def test_one_machine_compiles_and_the_other_does_not(machines: Machine, server: str):
    compiled, _, said = machines.load("reader", server)
    assert (bool(compiled), entries(machines), said) == (True, [], ""), "who reads does not write"
    compiled, _, said = machines.load("a", server, **WRITES)
    assert (bool(compiled), said) == (True, "")
    assert entries(machines)
    assert {path.parent for path in entries(machines)} == {machines.folder / "nginx/store/kernels/be-1/ac"}
    compiled, imported, said = machines.load("b", server)
    assert (compiled, said) == ([], "")
    assert "be_runtime.sharing.http_cache" in imported
    assert not {"cryptography", "fsspec"} & set(imported)
    compiled, imported, said = machines.load("b", server)
    assert (compiled, imported, said) == ([], [], ""), "a warm load imports nothing of this"


@pytest.mark.needs("nginx")
def test_what_is_damaged_is_said_and_compiled_here(machines: Machine, server: str):
    machines.load("a", server, **WRITES)
    for path in entries(machines):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    compiled, _, said = machines.load("b", server)
    assert compiled
    assert f"shared: the archive from {server} is damaged" in said
    machines.load("c", server, **WRITES)
    assert machines.load("d", server)[0] == [], "who builds anew and may write puts it right"


@pytest.mark.needs("nginx")
def test_only_what_is_signed_by_a_trusted_key_is_loaded(machines: Machine, server: str):
    signing = pytest.importorskip("be_runtime.sharing.signing")
    (private, public), (_, other) = signing.make_keys(), signing.make_keys()
    key = machines.folder / "key"
    signing.write_private_key(key, private)
    machines.load("a", server, **WRITES)
    compiled, _, said = machines.load("b", server, BE_REMOTE_CACHE_PUBLIC_KEY=public)
    assert compiled
    assert f"shared: the archive from {server} is not signed; it is not used; who builds it must sign it, as" in said
    assert "as BE_REMOTE_CACHE_PUBLIC_KEY is set\n" in said
    machines.load("c", server, **WRITES, BE_REMOTE_CACHE_PRIVATE_KEY=str(key), BE_REMOTE_CACHE_PUBLIC_KEY=public)
    compiled, imported, said = machines.load("d", server, BE_REMOTE_CACHE_PUBLIC_KEY=f"{other},{public}")
    assert (compiled, said) == ([], "")
    assert "cryptography" in imported
    compiled, _, said = machines.load("e", server, BE_REMOTE_CACHE_PUBLIC_KEY=other)
    assert compiled
    assert "is not signed by a key that is trusted here; it is not used; if you trust who signed it, add" in said
    assert "their key to BE_REMOTE_CACHE_PUBLIC_KEY\n" in said


def test_without_its_server_a_load_builds(machines: Machine):
    url = closed_port()
    compiled, _, said = machines.load("a", url, **WRITES)
    assert compiled
    assert "Connection refused; is it running? Unset BE_REMOTE_CACHE to do without" in said
    assert said.count("reading") <= 2


def test_a_server_that_says_nothing_delays_a_load_and_its_process_within_limits(machines: Machine):
    with faulty_server() as server:
        began = time.monotonic()
        compiled, _, said = machines.load("a", f"{server.url}/silent", **WRITES, BE_REMOTE_CACHE_TIMEOUT="1")
        took = time.monotonic() - began
    assert compiled
    assert [line.partition(" http")[0] for line in said.splitlines()] == [
        "be_runtime: remote cache: reading",
        "be_runtime: remote cache: writing",
    ]
    assert took < 60, "2 s of which are waits, one for the upload when the process ends"


@pytest.mark.parametrize(
    ("variable", "value"),
    [("BE_REMOTE_CACHE", "https://host:port"), ("BE_REMOTE_CACHE", "nosuch://x"), ("BE_REMOTE_CACHE_PUBLIC_KEY", "x")],
)
def test_a_setting_that_means_nothing_is_an_error(machines: Machine, variable: str, value: str):
    variables = {"BE_REMOTE_CACHE": "file:///nowhere", variable: value}
    env = environment(BE_CXX=str(machines.compiler), BE_CACHE_DIR=str(machines.folder / "a"), **variables)
    done = run_python(LOAD, env=env, check=False)
    assert "ArgumentError" in done.stderr
    assert variable in done.stderr or value.partition(":")[0] in done.stderr


def tampered(data: bytes, outputs: dict[str, bytes]) -> bytes:
    """An unsigned archive of the same entry with other outputs, as somebody may put there who can write."""
    head, _ = unpack(data)
    rows = tuple((name, len(content), hashlib.sha256(content).hexdigest()) for name, content in outputs.items())
    return pack(head._replace(outputs=rows), outputs)


def test_whatever_a_server_sends_a_load_compiles_instead(machines: Machine):
    with serving() as server:
        machines.load("a", server.url, **WRITES)
        ((path, good),) = server.files.items()
        sound = {name: bytes(content) for name, content in unpack(good)[1].items()}
        archives = [
            tampered(good, {"d/" * 2000 + "module.so": b"x", **sound}),
            tampered(good, {**sound, "module.json": b'{"functions": ' + b"[" * 100_000}),
            tampered(good, {**sound, "module.json": b'{"functions": {}}'}),
            tampered(good, {**sound, "module.so": b"no library"}),
            tampered(good, {**sound, "module.so": sound["module.so"].replace(b"be_ffi_", b"be_off_")}),
        ]
        for number, archive in enumerate(archives):
            server.files[path] = archive
            compiled, _, said = machines.load(f"b{number}", server.url)
            assert compiled
            assert len(said.splitlines()) == 1, said
            assert server.url in said
        assert machines.load(f"b{number}", server.url)[::2] == ([], ""), "once is enough"
