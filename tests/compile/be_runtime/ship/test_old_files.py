"""Files that older commits wrote are used as they are, or refused in one line, and the load then builds.

Each ``tests/data/written_at_COMMIT.tar.xz`` was written by ``tests/data/write_old_files.py``.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import be_runtime
from be_runtime.cli.main import main
from tests.compile.be_runtime.processes import python
from tests.support.file_server import serving
from tests.support.requirements import OPTIONAL
from tests.support.runtime import ROOT

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason=f"{OPTIONAL}x86-64, whose machine code the files have"
)
ARCHIVES = sorted((ROOT / "tests" / "data").glob("written_at_*.tar.xz"))
BARE: dict[str, Any] = {"BE_JIT": "never", "BE_CACHE_DIR": "/proc/none", "PATH": "/nowhere"}
X, SUM = [0.0, 1.0, 2.0], [0.0, 4.0, 8.0]
"""What each kernel is called with, twice, and what it returns for ``by=3``."""

CALL_PACKAGE = f"""
import jax.numpy as jnp, old_package
print(old_package.ops.axpy(jnp.array({X}), jnp.array({X}), by=3.0).tolist(), old_package.ops.arrays.path)
"""
CALL_PROGRAM = f"""
import jax.numpy as jnp, be_runtime
program = be_runtime.load_exported("program.be")
print(program.call(jnp.array({X}), jnp.array({X})).tolist())
"""

Told = Callable[..., str]


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Unpack what one commit wrote, as if it had been written just now."""
    folder = tmp_path / "old"
    shutil.unpack_archive(request.param, folder, filter="data")
    for path in folder.rglob("*"):
        os.utime(path)
    return folder


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """Run a command on the cache, and return what it wrote to both streams."""

    def run(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(["cache", *words]) == code
        return "".join(capsys.readouterr())

    return run


def load(old: Path) -> Path:
    """Load the source that the old code compiled, call its function, and return the path of the module."""
    source = (old / "source.cc").read_text()
    module = be_runtime.load_cpp_inline("old_module", source, extra_ldflags=["-s"], auto_register=False)
    assert module.axpy(jnp.array(X), jnp.array(X), by=3.0).tolist() == SUM
    return module.path


def test_a_package_built_ahead_of_time_is_loaded(old: Path):
    done = python(old / "package", "-c", CALL_PACKAGE, **BARE)
    assert done.stdout.startswith(f"{SUM} {old}/package/old_package/_kernels/images/")
    assert done.stderr == ""


def test_an_exported_program_is_loaded(old: Path):
    done = python(old, "-c", CALL_PROGRAM, **BARE)
    assert (done.stdout, done.stderr) == (f"{SUM}\n", "")


def test_a_prebuilt_module_is_loaded(old: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_PREBUILT_DIR", str(old / "prebuilt"))
    monkeypatch.setenv("BE_JIT", "never")
    assert load(old).is_relative_to(old / "prebuilt")
    assert not tmp_cache.exists()


def test_in_an_old_cache_a_load_builds_beside_the_old_entries_and_commands_print_and_clear_both(
    old: Path, told: Told, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    cache = old / "cache"
    monkeypatch.setenv("BE_CACHE_DIR", str(cache))
    be_runtime.set_cache_dir(cache)
    written = set(cache.rglob("module.so"))
    assert len(written) == 3
    assert "5 entries" in told("list", "--all")
    assert "not valid: /" in told("show", "old_module")
    assert "the next load builds again: /" in told("why", "old_module")
    assert "3 entries" in told("stats")
    assert "5 entries: 0 as built, 5 out of date, 0 damaged\n" in told("verify")
    assert "would remove 5 entries" in told("prune", "--stale", "--dry-run")
    path = load(old)
    assert path not in written
    assert path.is_relative_to(cache)
    assert load(old) == path
    assert capsys.readouterr().err == ""
    assert "old_module" in told("list")
    assert told("clear", "--all").count("\n") == 1
    assert [path for path in cache.rglob("*") if path.suffix in (".so", ".o")] == []


def test_an_old_export_is_refused_and_a_load_builds(
    old: Path, told: Told, tmp_cache: Path, capsys: pytest.CaptureFixture[str]
):
    said = told("import", str(old / "exported.be"), code=1)
    assert "has the format of another release" in said
    assert "hint: nothing was imported\nhint: make it again with this release\n" in said
    assert load(old).is_relative_to(tmp_cache / "kernels-v1")
    assert capsys.readouterr().err == ""


class OneAnswer(dict[str, bytes]):
    """The files of a server that has one content for every name."""

    def get(self, _name: str, _default: object = None) -> bytes:
        return self["content"]


def test_an_old_entry_of_a_remote_cache_is_refused_in_one_line_and_a_load_builds(
    old: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """A load asks for another name than the old code did: the server answers it with the old entry all the same."""
    (entry,) = (path for path in (old / "remote").rglob("*") if path.is_file())
    with serving() as server:
        server.files = OneAnswer(content=entry.read_bytes())
        monkeypatch.setenv("BE_REMOTE_CACHE", server.url)
        assert load(old).is_relative_to(tmp_cache)
        (asked,) = server.hits
    assert not asked.endswith(entry.name)
    refused = "has the format of another release; it is not used; make it again with this release"
    assert capsys.readouterr().err == f"be_runtime: old_module: the artifact from {server.url} {refused}\n"
