"""Several processes, fresh homes, and what a load or an import does to the machine."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import be_runtime
from tests.compile.be_runtime.load.sources import source
from tests.support.runtime import environment, forwarding_compiler, libraries, run_python

SOURCE = """
#include "brainevent/common.h"
// @BE twice arg ret
void twice(const BE::Tensor x, BE::Tensor out) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
}
"""
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


@pytest.mark.full
def test_eight_processes_build_once(tmp_path: Path):
    """All of them ask at the same moment; the compiler notes each time it compiles."""
    notes = tmp_path / "notes"
    compiler = forwarding_compiler(tmp_path / "g++", f"case \"$*\" in *shared.cc*) echo compiled >> '{notes}';; esac")
    cache, start = tmp_path / "cache", tmp_path / "start"
    env = environment(BE_CXX=str(compiler), BE_CACHE_DIR=str(cache))
    code = f"import os, time, jax, be_runtime\nwhile not os.path.exists({str(start)!r}): time.sleep(0.01)\n{USE}"
    argv = [sys.executable, "-c", code]
    processes = [
        subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(8)
    ]
    start.touch()
    results = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, [error for _, error in results]
    assert len({output for output, _ in results}) == 1, "one library, one content hash"
    assert notes.read_text().split() == ["compiled"]
    assert len(libraries(cache)) == 1


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
heavy = {{"be_runtime.compile.make", "be_runtime.compile.run.execute", "packaging", "rich", "shtab"}} & set(sys.modules)
print("imported", sorted(heavy))
"""


def test_a_warm_load_starts_no_process_and_no_backend(tmp_path: Path):
    env = environment(BE_CACHE_DIR=str(tmp_path / "cache"))
    cold = run_python(WARM, env=env).stdout.splitlines()
    assert "subprocess.Popen" in cold[4], "the first load compiles, so the hook sees it"
    warm = run_python(WARM, env=env).stdout.splitlines()
    assert warm[:4] == cold[:4]
    assert warm[:2] == ["False", "False"]
    assert warm[4:] == ["started []", "imported []"]


def test_a_module_stays_in_its_process():
    module = be_runtime.load_cpp_inline("stays", SOURCE, auto_register=False)
    with pytest.raises(TypeError, match=r"'stays' can't be pickled.* call the load function in the other process"):
        pickle.dumps(module)
    assert copy.deepcopy([module]) == [module]
    assert copy.copy(module) is module


def test_an_import_creates_nothing_and_loads_neither_numba_nor_jax(tmp_path: Path):
    home, work, temporary = folders(tmp_path, "home", "work", "temporary")
    env = environment(**CACHES, HOME=str(home), TMPDIR=str(temporary), PYTHONDONTWRITEBYTECODE="1")
    code = """
import sys
started = []
sys.addaudithook(lambda event, args: started.append(event) if event in ("subprocess.Popen", "os.fork") else None)
import be_toolchain
print([name for name in ("jax", "jaxlib", "be_runtime") if name in sys.modules])
import be_runtime
print([name for name in ("jax", "numba") if name in sys.modules])
print(be_runtime.get_cache_dir())
print(be_runtime.list_registered_targets(), started)
print(be_runtime.clear_cache())
"""
    lines = run_python(code, env=env, cwd=work).stdout.splitlines()
    assert Path(lines.pop(2)).is_relative_to(home)
    assert lines == ["[]", "[]", "() []", "0"]
    assert [*tmp_path.rglob("*")] == [home, work, temporary]


@pytest.mark.full
def test_a_load_writes_to_the_home_s_cache_only(tmp_path: Path):
    home, work = folders(tmp_path, "home", "work")
    env = environment(**CACHES, HOME=str(home), PYTHONDONTWRITEBYTECODE="1")
    path = Path(run_python(USE, env=env, cwd=work).stdout.splitlines()[0])
    assert path.is_relative_to(home / ".cache")
    assert not os.listdir(work)
    assert os.listdir(home) == [".cache"]
    assert len(os.listdir(home / ".cache")) == 1


@pytest.mark.full
def test_an_unusable_home_falls_back_with_a_warning(tmp_path: Path):
    """A file where the cache's folder should be stops root as well, unlike permissions."""
    home, temporary = folders(tmp_path, "home", "temporary")
    (home / ".cache").write_text("not a folder")
    env = environment(**CACHES, HOME=str(home), TMPDIR=str(temporary))
    done = run_python(USE, env=env)
    assert Path(done.stdout.splitlines()[0]).is_relative_to(temporary)
    (warning,) = [line for line in done.stderr.splitlines() if "CacheWarning" in line]
    assert str(home / ".cache") in warning
    assert "BE_CACHE_DIR" in warning
    assert run_python(USE, env=env).stdout == done.stdout, "the fallback is a cache too"


def test_a_configured_cache_that_can_t_be_used_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(be_runtime.CacheError, match="BE_CACHE_DIR") as caught:
        be_runtime.load_cpp_inline("nowhere", SOURCE)
    assert str(tmp_path / "file") in str(caught.value)


def test_the_cache_folder_can_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Built libraries hold no absolute path of the cache that they need."""
    first, second = folders(tmp_path, "first", "second")
    monkeypatch.setenv("BE_CACHE_DIR", str(first))
    path = be_runtime.load_cpp_inline("moving", SOURCE).path
    first.rename(second)
    monkeypatch.setenv("BE_CACHE_DIR", str(second))
    assert be_runtime.load_cpp_inline("moving", SOURCE).path == second / path.relative_to(first)


@pytest.mark.full
def test_a_forked_child_can_load(tmp_path: Path):
    code = f"""
import os, be_runtime
be_runtime.load_cpp_inline("parent", {SOURCE!r})
pid = os.fork()
if pid == 0:
    try:
        be_runtime.load_cpp_inline("child", {SOURCE!r})
        be_runtime.load_cpp_inline("parent", {SOURCE!r})
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    run_python(code, env=environment(BE_CACHE_DIR=str(tmp_path / "cache"), JAX_PLATFORMS="cpu"))


def test_a_cache_that_all_users_share_holds_a_folder_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What decides which compiler runs must not lie where others can write."""
    (shared,) = folders(tmp_path, "shared")
    shared.chmod(0o1777)
    monkeypatch.setenv("BE_CACHE_DIR", str(shared))
    own = shared / f"user-{os.geteuid()}"
    for _ in range(2):
        assert be_runtime.load_cpp_inline("one_of_many", source(f=1)).path.is_relative_to(own)
        assert os.listdir(shared) == [own.name]
        assert own.stat().st_mode & 0o777 == 0o700
