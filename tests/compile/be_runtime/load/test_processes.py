"""Processes and environments of their own: what an import or a load does to the machine, and what they share."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import sysconfig
from functools import partial
from pathlib import Path

import pytest

import be_runtime
from be_toolchain.errors import HostCompilerNotFoundError
from tests.compile.be_runtime.load.sources import source, value
from tests.compile.be_runtime.scaling import scaling
from tests.support.prefixes import Prefix
from tests.support.runtime import environment, forwarding_compiler, run_python

SOURCE = scaling()
USE = f"""
import jax, numpy as np, be_runtime
module = be_runtime.load_cpp_inline("shared", {SOURCE!r})
out = jax.ffi.ffi_call("shared.twice", jax.ShapeDtypeStruct((3,), np.float32))(np.ones(3, np.float32))
assert out.tolist() == [2.0, 2.0, 2.0]
print(module.path)
print(module.content_hash)
"""
CACHES = dict.fromkeys(("BE_CACHE_DIR", "BRAINEVENT_CACHE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"))


def folders(root: Path, *names: str) -> list[Path]:
    made = [root / name for name in names]
    for folder in made:
        folder.mkdir()
    return made


WARM = f"""
import os, sys
started = []
def note(event, args):
    if event in ("subprocess.Popen", "os.posix_spawn", "os.posix_spawnp", "os.fork", "os.forkpty", "os.exec",
                 "os.system", "os.spawn", "pty.spawn"):
        started.append((event, args))
import jax
from jax._src import xla_bridge
sys.addaudithook(note)
import be_runtime
print(xla_bridge.backends_are_initialized())
be_runtime.load_cpp_inline("shared", {SOURCE!r})
print(xla_bridge.backends_are_initialized())
{USE}
assert be_runtime.load_cpp_inline("shared", {SOURCE!r}).path == module.path
print("started", started)
heavy = {{"be_runtime.compile.make", "be_runtime.compile.execute", "packaging", "platformdirs", "rich", "shtab"}}
heavy &= set(sys.modules)
print("imported", sorted(heavy))
be_runtime.load_cpp_inline("cold", {SOURCE!r})
print("subprocess.Popen" in [event for event, _ in started])
stores = {{"be_runtime.store.places", "be_runtime.store.remote", "be_runtime.store.signing", "platformdirs"}}
print("stores", sorted(stores & set(sys.modules)))
"""


def test_a_warm_load_starts_no_process_and_no_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path))
    made = be_runtime.load_cpp_inline("shared", SOURCE)
    said = run_python(WARM).stdout.splitlines()
    assert said == [
        "False",
        "False",
        str(made.path),
        made.content_hash,
        "started []",
        "imported []",
        "True",
        "stores []",
    ]


def test_a_module_stays_in_its_process():
    module = be_runtime.load_cpp_inline("stays", SOURCE, auto_register=False)
    with pytest.raises(TypeError, match=r"'stays' can't be pickled.* call the load function in the other process"):
        pickle.dumps(module)
    with pytest.raises(TypeError, match=r"stays.twice can't be pickled"):
        pickle.dumps(module["twice"])
    assert copy.deepcopy([module, module["twice"]]) == [module, module["twice"]]
    assert copy.copy(module) is module


def test_an_import_creates_nothing_and_a_load_writes_to_the_home_s_cache_only(tmp_path: Path):
    home, work, temporary = folders(tmp_path, "home", "work", "temporary")
    env = environment(**CACHES, HOME=str(home), TMPDIR=str(temporary), PYTHONDONTWRITEBYTECODE="1")
    code = f"""
import os, sys
started = []
sys.addaudithook(lambda event, args: started.append(event) if event in ("subprocess.Popen", "os.fork") else None)
import be_toolchain
print([name for name in ("jax", "jaxlib", "be_runtime") if name in sys.modules])
import be_runtime
print([name for name in ("jax", "numba") if name in sys.modules])
print(be_runtime.list_registered_targets(), started, be_runtime.clear_cache(), os.listdir({str(home)!r}))
print(be_runtime.get_cache_dir())
{USE}
"""
    lines = run_python(code, env=env, cwd=work).stdout.splitlines()
    assert lines[:3] == ["[]", "[]", "() [] 0 []"]
    assert all(Path(path).is_relative_to(home / ".cache") for path in lines[3:5])
    assert [*work.iterdir(), *temporary.iterdir()] == []
    assert os.listdir(home) == [".cache"]
    assert len(os.listdir(home / ".cache")) == 1


def test_the_cache_folder_can_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Built libraries hold no absolute path of the cache that they need."""
    first, second = folders(tmp_path, "first", "second")
    monkeypatch.setenv("BE_CACHE_DIR", str(first))
    path = be_runtime.load_cpp_inline("moving", SOURCE).path
    first.rename(second)
    monkeypatch.setenv("BE_CACHE_DIR", str(second))
    assert be_runtime.load_cpp_inline("moving", SOURCE).path == second / path.relative_to(first)


def test_a_prebuilt_module_is_found(tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    """Also without a compiler and a cache. A module that is live from the cache is none other when it is prebuilt."""
    folder, load = tmp_path / "prebuilt", partial(be_runtime.load_cpp_inline, "prebuilt", source(f="FACTOR"))
    assert load(extra_cflags=["-DFACTOR=3"]).path.is_relative_to(tmp_cache)
    be_runtime.export_prebuilt(folder)
    monkeypatch.setenv("BE_PREBUILT_DIR", str(folder))
    assert load(extra_cflags=["-DFACTOR=3"]).path.is_relative_to(folder)
    assert load(extra_cflags=["-DFACTOR=3"], force_rebuild=True).path.is_relative_to(tmp_cache)
    be_runtime.set_cache_dir(None)
    monkeypatch.delenv("BE_CXX", raising=False)
    for name, text in {"BE_CACHE_DIR": "/proc/no-cache", "PATH": "/nowhere", "CXX": ""}.items():
        monkeypatch.setenv(name, text)
    assert load(extra_cflags=["-DFACTOR=3"], target_prefix="ahead").path.is_relative_to(folder)
    assert value("ahead.f") == 3
    with pytest.raises(HostCompilerNotFoundError, match="prebuilt was built with other cflags"):
        load(extra_cflags=["-DFACTOR=4"])


LOAD = """
import sys, be_runtime
for text in sys.argv[1:]:
    print(be_runtime.load_cpp_inline("shared", text, auto_register=False).path)
"""
PLAIN = source(f=1)
XLA = f'#include "xla/ffi/api/c_api.h"\n{PLAIN}'


@pytest.mark.full
def test_a_module_outlives_the_environment_that_built_it(tmp_path: Path):
    """The environments have packages of their own, with links to all of jaxlib but its headers, and one cache."""
    notes, jaxlib = tmp_path / "notes", Path(sysconfig.get_path("purelib"), "jaxlib")
    compiler = forwarding_compiler(tmp_path / "g++", f"echo \"$*\" >> '{notes}'")
    first, second = Prefix(tmp_path / "first"), Prefix(tmp_path / "a second")
    for made in (first, second):
        (made.site / "jaxlib").mkdir()
        shutil.copytree(jaxlib / "include", made.site / "jaxlib/include")
        for each in jaxlib.iterdir():
            if each.name not in ("include", "__pycache__"):
                (made.site / "jaxlib" / each.name).symlink_to(each)

    def load(prefix: Prefix, *texts: str) -> tuple[str, str]:
        """Load sources in a process of an environment: the libraries, and the compilers' commands."""
        notes.write_text("")
        variables = {"BE_CXX": str(compiler), "BE_CACHE_DIR": str(tmp_path / "cache")}
        done = run_python(LOAD, *texts, env=environment(PYTHONPATH=str(prefix.site), **variables), cwd=prefix.folder)
        return done.stdout, notes.read_text()

    built, commands = load(first, PLAIN, XLA)
    assert "handler.cc" in commands
    shutil.rmtree(first.folder)
    assert load(second, PLAIN, XLA) == (built, "")
    _, commands = load(second, PLAIN + "// another\n")
    assert "shared.cc" in commands
    assert "handler.cc" not in commands, "of the parts that all modules share, that is as true"
