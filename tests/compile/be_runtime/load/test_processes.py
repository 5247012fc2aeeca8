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
sys.addaudithook(note)
{USE}
import be_runtime
assert be_runtime.load_cpp_inline("shared", {SOURCE!r}).path == module.path
print("started", started)
heavy = {{"be_runtime.compile.make", "be_runtime.compile.run.execute", "packaging", "rich", "shtab"}} & set(sys.modules)
print("imported", sorted(heavy))
"""


def test_a_warm_load_starts_no_process(tmp_path: Path):
    env = environment(BE_CACHE_DIR=str(tmp_path / "cache"))
    cold = run_python(WARM, env=env).stdout.splitlines()
    assert "subprocess.Popen" in cold[2], "the first load compiles, so the hook sees it"
    warm = run_python(WARM, env=env).stdout.splitlines()
    assert warm[:2] == cold[:2]
    assert warm[2] == "started []"
    assert warm[3] == "imported []"


def test_a_module_stays_in_its_process(tmp_cache: Path):
    module = be_runtime.load_cpp_inline("stays", SOURCE, auto_register=False)
    with pytest.raises(TypeError, match=r"'stays' can't be pickled.* call the load function in the other process"):
        pickle.dumps(module)
    assert copy.deepcopy([module]) == [module]
    assert copy.copy(module) is module


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_an_import_creates_nothing(tmp_path: Path):
    home, work, temporary = (tmp_path / name for name in ("home", "work", "temporary"))
    for folder in (home, work, temporary):
        folder.mkdir()
    variables = ("BE_CACHE_DIR", "BRAINEVENT_CACHE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
    env = environment(**dict.fromkeys(variables), HOME=str(home), TMPDIR=str(temporary), PYTHONDONTWRITEBYTECODE="1")
    code = """
import sys
started = []
sys.addaudithook(lambda event, args: started.append(event) if event in ("subprocess.Popen", "os.fork") else None)
import be_toolchain, be_runtime
print(be_runtime.get_cache_dir())
print(be_runtime.list_registered_targets(), started)
print(be_runtime.clear_cache())
"""
    lines = run_python(code, env=env, cwd=work).stdout.splitlines()
    assert Path(lines[0]).is_relative_to(home)
    assert lines[1:] == ["() []", "0"]
    assert tree(home) == tree(work) == tree(temporary) == []


def test_be_toolchain_imports_neither_jax_nor_be_runtime():
    code = "import sys, be_toolchain\nprint([name for name in ('jax', 'jaxlib', 'be_runtime') if name in sys.modules])"
    assert run_python(code).stdout.strip() == "[]"


def test_importing_be_runtime_does_not_start_a_backend():
    code = """
import be_runtime
from jax._src import xla_bridge
print(xla_bridge.backends_are_initialized())
be_runtime.load_cpp_inline("quiet", '#include "brainevent/common.h"\\n// @BE f\\nvoid f(BE::Tensor out) {}\\n')
print(xla_bridge.backends_are_initialized())
"""
    assert run_python(code).stdout.split() == ["False", "False"]


def test_a_load_writes_to_the_home_s_cache_only(tmp_path: Path):
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    variables = ("BE_CACHE_DIR", "BRAINEVENT_CACHE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
    env = environment(**dict.fromkeys(variables), HOME=str(home), PYTHONDONTWRITEBYTECODE="1")
    path = Path(run_python(USE, env=env, cwd=work).stdout.splitlines()[0])
    assert path.is_relative_to(home / ".cache")
    assert tree(work) == []
    assert os.listdir(home) == [".cache"]
    assert len(os.listdir(home / ".cache")) == 1


def test_an_unusable_home_falls_back_with_a_warning(tmp_path: Path):
    """A file where the cache's folder should be stops root as well, unlike permissions."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    (home / ".cache").write_text("not a folder")
    variables = ("BE_CACHE_DIR", "BRAINEVENT_CACHE_DIR", "XDG_CACHE_HOME")
    env = environment(**dict.fromkeys(variables), HOME=str(home), TMPDIR=str(temporary))
    done = run_python(USE, env=env)
    path = Path(done.stdout.splitlines()[0])
    assert path.is_relative_to(temporary)
    warnings = [line for line in done.stderr.splitlines() if "CacheWarning" in line]
    assert len(warnings) == 1
    assert str(home / ".cache") in warnings[0]
    assert "BE_CACHE_DIR" in warnings[0]
    again = run_python(USE, env=env)
    assert again.stdout == done.stdout, "the fallback is a cache too"


def test_a_configured_cache_that_can_t_be_used_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    code = f"""
import be_runtime
try:
    be_runtime.load_cpp_inline("nowhere", {SOURCE!r})
except be_runtime.CacheError as error:
    print(error)
"""
    done = run_python(code, env=environment(BE_CACHE_DIR=str(tmp_path / "file" / "cache")))
    assert str(tmp_path / "file") in done.stdout
    assert "BE_CACHE_DIR" in done.stdout


def test_the_cache_folder_can_move(tmp_path: Path):
    """Built libraries hold no absolute path of the cache that they need."""
    first, second = tmp_path / "first", tmp_path / "second"
    path = run_python(USE, env=environment(BE_CACHE_DIR=str(first))).stdout.splitlines()[0]
    first.rename(second)
    moved = run_python(USE, env=environment(BE_CACHE_DIR=str(second))).stdout.splitlines()[0]
    assert Path(moved).is_relative_to(second)
    assert Path(moved).name == Path(path).name


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


def test_a_cache_that_all_users_share_holds_a_folder_for_each(tmp_path: Path):
    """What decides which compiler runs must not lie where others can write."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    for _ in range(2):
        path = Path(run_python(USE, env=environment(BE_CACHE_DIR=str(shared))).stdout.splitlines()[0])
        own = f"user-{os.geteuid()}"
        assert os.listdir(shared) == [own]
        assert path.is_relative_to(shared / own)
        assert (shared / own).stat().st_mode & 0o777 == 0o700
