"""A disk that gets full at any stage of a build: an error that says what to free, or a module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mounts import run_in_mounts

_MOUNT = "mkdir disk\nmount -t tmpfs -o size=8m none disk\n"
_SCRIPT = """
import os, shutil, sys
sys.path[:0] = eval(sys.argv[1])
from pathlib import Path
import be_runtime
from be_runtime.errors import BuildError, CacheError
source = '''#include "brainevent/common.h"
// @BE f{0}
void f{0}(const BE::Tensor x, BE::Tensor y) {{ y.data_ptr<float>()[0] = -x.data_ptr<float>()[0]; }}
'''
disk = Path("disk").absolute()
ok = []
for name, free_kib in enumerate(LEVELS):
    for item in disk.iterdir():
        shutil.rmtree(item) if item.is_dir() else item.unlink()
    folder = Path(f"src{name}")
    folder.mkdir()
    for unit in range(UNITS):
        (folder / f"u{unit}.cc").write_text(source.format(f"{name}_{unit}"))
    be_runtime.set_cache_dir(disk / "cache")
    found = os.statvfs(disk)
    (disk / "rest").write_bytes(bytes(found.f_bavail * found.f_frsize - free_kib * 1024))
    try:
        be_runtime.load_cpp_dir(folder)
        ok.append(free_kib)
    except (BuildError, CacheError) as error:
        said = f"{free_kib} KiB: {type(error).__name__} {error.message} {error.hints}"
        assert "clear_cache()" in said and "TMPDIR" in said, said
    assert not list(disk.glob("**/staging/*")), "nothing is left behind"
print(*ok)
"""


@pytest.mark.parametrize("units", [1, 2])
def test_a_full_disk_says_what_to_free(tmp_path: Path, units: int):
    levels = [0, 6, 12, 20, 32, 52, 64, 96, 200, 400, 800]
    out = run_in_mounts(tmp_path, _MOUNT, f"LEVELS, UNITS = {levels}, {units}\n{_SCRIPT}")
    loaded = list(map(int, out.split()))
    assert loaded == levels[levels.index(loaded[0]) :], "what is optional fails nothing"
    assert loaded[-1] == 800
