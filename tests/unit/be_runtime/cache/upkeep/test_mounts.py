"""File systems that are not like a disk of one's own: an overlay, a mount that can't be written, one that is full."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.mounts import run_in_mounts

_PRELUDE = """
import os, shutil, sys, time
sys.path[:0] = eval(sys.argv[1])
from pathlib import Path
from be_runtime.cache import BuildOutput, Store, make_key
from be_runtime.errors import CacheError
def build(staging):
    (staging / "m.so").write_bytes(b"x" * 10_000)
    return BuildOutput(outputs=("m.so",))
def key(number): return make_key("module", ("name", f"n{number}"))
"""


def _overlay(lower: str) -> str:
    """A shell's commands that mount an overlay on `top`, whose lower layer a script has filled."""
    fill = f"{_PRELUDE}store = Store(Path('t/lower/cache'))\n{lower}"
    return f"""mkdir t top
mount -t tmpfs none t
mkdir t/lower t/upper t/work
'{sys.executable}' - "{sys.path!r}" <<'END'
{fill}
END
mount -t overlay overlay -o lowerdir=t/lower,upperdir=t/upper,workdir=t/work top
"""


def test_what_a_lower_layer_holds_is_removed(tmp_path: Path):
    """An image's cache, below a container's own layer: its folders can't be renamed."""
    out = run_in_mounts(
        tmp_path,
        _overlay("for number in range(4): store.get_or_build(key(number), build)"),
        _PRELUDE
        + """
store = Store(Path("top/cache"))
for info in list(store.entries())[:2]:
    os.utime(f"{info.path}/manifest.json", (0, 0))
print(store.prune(max_age_days=90), len(list(store.entries())))
store.get_or_build(key(9), build)
print(store.clear(), list(store.entries()), store.get_or_build(key(1), build).built)
""",
    )
    assert out.splitlines() == ["True 2", "3 [] True"]


_READ_ONLY = """mkdir ro
mount -t tmpfs none ro
'{python}' - "{path!r}" <<'END'
{prelude}
store = Store(Path("ro/cache"))
for number in range(2): store.get_or_build(key(number), build)
END
mount -o remount,ro ro
"""


def test_a_cache_on_a_read_only_mount_serves(tmp_path: Path):
    out = run_in_mounts(
        tmp_path,
        _READ_ONLY.format(python=sys.executable, path=sys.path, prelude=_PRELUDE),
        _PRELUDE
        + """
from be_runtime.cache import usable_cache_dir
from be_runtime.settings import Settings
from be_toolchain.machine.local_system import LocalSystem
store = Store(usable_cache_dir(Settings(cache_dir=Path("ro/cache")), LocalSystem()))
print(store.get(key(0)) is not None, store.get_or_build(key(1), build).built, len(list(store.entries())))
for act in (store.clear, store.prune, lambda: store.get_or_build(key(5), build)):
    try: act()
    except CacheError as error: print(error.message)
""",
    )
    served, *errors = out.splitlines()
    assert served == "True False 2"
    assert len(errors) == 3
    assert all("Read-only file system" in error for error in errors)
