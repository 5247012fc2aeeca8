"""File systems that are not like a disk of one's own: an overlay, and a mount that can't be written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.mounts import run_in_mounts

_PRELUDE = """
import os, sys
sys.path[:0] = eval(sys.argv[1])
from pathlib import Path
from be_runtime.cache import BuildOutput, Store, make_key, usable_cache_dir
from be_runtime.errors import CacheError
from be_runtime.settings import Settings
from be_toolchain.machine.local_system import LocalSystem
def build(staging):
    (staging / "m.so").write_bytes(b"x" * 10_000)
    return BuildOutput(outputs=("m.so",))
def key(number): return make_key("module", ("name", f"n{number}"))
"""
_FILL = f"""mkdir t top
mount -t tmpfs none t
mkdir t/lower t/upper t/work
'{sys.executable}' - "{sys.path!r}" <<'END'
{_PRELUDE}
for number in range(4): Store(Path("t/lower/cache")).get_or_build(key(number), build)
END
"""
_OVERLAY = "mount -t overlay overlay -o lowerdir=t/lower,upperdir=t/upper,workdir=t/work top"
_REMOVING = """
store = Store(Path("top/cache"))
for info in list(store.entries())[:2]:
    os.utime(f"{info.path}/manifest.json", (0, 0))
print(store.prune(max_age_days=90), len(list(store.entries())))
store.get_or_build(key(9), build)
print(store.clear(), list(store.entries()), store.get_or_build(key(1), build).built)
"""
_SERVING = """
store = Store(usable_cache_dir(Settings(cache_dir=Path("t/lower/cache")), LocalSystem()))
print(store.get(key(0)) is not None, store.get_or_build(key(1), build).built, len(list(store.entries())))
for act in (store.clear, store.prune, lambda: store.get_or_build(key(5), build)):
    try: act()
    except CacheError as error: print("Read-only file system" in error.message)
"""


@pytest.mark.parametrize(
    ("mount", "script", "says"),
    [
        (_OVERLAY, _REMOVING, "True 2\n3 [] True\n"),
        ("mount -o remount,ro t", _SERVING, "True False 4\n" + "True\n" * 3),
    ],
    ids=["an image's cache, below a container's own layer: its folders can't be renamed", "read-only"],
)
def test_a_cache_on_another_file_system(tmp_path: Path, mount: str, script: str, says: str):
    assert run_in_mounts(tmp_path, _FILL + mount, _PRELUDE + script) == says
