"""Write what a commit of this project leaves on disk, for ``tests/compile/be_runtime/ship/test_old_files.py``.

``python tests/data/write_old_files.py COMMIT`` checks the commit out below /opt, lets its code write a cache, a package
built ahead of time, an exported program, an entry of a remote cache, an export and prebuilt modules, and packs them
into ``written_at_COMMIT.tar.xz`` beside this file. They name no place, user or host of this machine.
"""

from __future__ import annotations

import io
import lzma
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

NEUTRAL = Path("/opt/be")
"""The folder of the checkout, its packages and its home; removed at the end."""

SOURCE = """#include "brainevent/common.h"

// @BE axpy arg[n] arg[n] attr.by:float32=2.0 ret[n]:like(0)
void axpy(const BE::Tensor x, const BE::Tensor y, float by, BE::Tensor z) {
  for (int64_t i = 0; i < x.numel(); ++i) z.data_ptr<float>()[i] = by * x.data_ptr<float>()[i] + y.data_ptr<float>()[i];
}
"""

FILES = {
    "source.cc": SOURCE,
    "package/old_package/__init__.py": "from be_runtime import package_kernels\n\nops = package_kernels(__name__)\n",
    "package/old_package/kernels.toml": '[modules.arrays]\nsources = "axpy.cc"\nextra_ldflags = ["-s"]\n',
    "package/old_package/axpy.cc": SOURCE,
}

WRITE = """
import os, shutil
os.uname = lambda: os.uname_result(("Linux", "builder", "0", "0", "x86_64"))  # entries name the host that built them
import jax, jax.numpy as jnp, be_runtime
from be_runtime.cli.main import main

def load(cache, **environ):
    os.environ |= {"BE_CACHE_DIR": cache, **environ}
    be_runtime.set_cache_dir(cache)
    with open("source.cc") as source:
        return be_runtime.load_cpp_inline("old_module", source.read(), extra_ldflags=["-s"], target_prefix=cache[-5:])

axpy = load("/opt/be/written/cache").axpy
be_runtime.export_prebuilt("prebuilt")
assert main(["cache", "export", "exported.be"]) == 0
x = jnp.arange(3.0)
be_runtime.export(jax.jit(lambda x, y: axpy(x, y, by=3.0)), x, x, baseline="x86-64").save("program.be")
assert main(["build", "package/old_package"]) == 0
load("/opt/be/other", BE_REMOTE_CACHE="file:///opt/be/written/remote", BE_REMOTE_CACHE_WRITE="1")
"""


def leave_out(path: Path) -> bool:
    """Return whether a file names this machine's Python, or holds nothing."""
    return path.name.startswith("toolchain-") or path.suffix == ".lock" or "__pycache__" in path.parts


def pack(folder: Path) -> bytes:
    """Pack a folder, without times and owners."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(folder.rglob("*"), key=lambda path: (path.suffix, path.name)):  # equal bytes lie close
            if path.is_file() and not leave_out(path):
                row = tarfile.TarInfo(str(path.relative_to(folder)))
                row.size = path.stat().st_size
                archive.addfile(row, io.BytesIO(path.read_bytes()))
    return lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def main(commit: str) -> None:
    """Write the archive of a commit."""
    here, written = Path(__file__).parent, NEUTRAL / "written"
    NEUTRAL.mkdir()  # refuses a folder of somebody else, which would be removed
    try:
        written.mkdir()
        (NEUTRAL / "site").symlink_to(sysconfig.get_path("purelib"))
        (NEUTRAL / "src").mkdir()
        tree = subprocess.check_output(["git", "archive", commit], cwd=here.parents[1])
        with tarfile.open(fileobj=io.BytesIO(tree)) as archive:
            archive.extractall(NEUTRAL / "src", filter="data")
        for name, text in FILES.items():
            (written / name).parent.mkdir(parents=True, exist_ok=True)
            (written / name).write_text(text)
        known = {"PATH": "/usr/bin:/bin", "HOME": str(NEUTRAL), "TMPDIR": str(NEUTRAL), "JAX_PLATFORMS": "cpu"}
        known |= {"PYTHONPATH": f"{NEUTRAL}/src:{NEUTRAL}/site", "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([sys.executable, "-S", "-c", WRITE], cwd=written, env=known, check=True)
        data = pack(written)
        plain = lzma.decompress(data)
        named = [word for word in (str(Path.home()), str(here.parents[1]), sys.prefix) if word.encode() in plain]
        assert not named, f"the files name {named}"
        (here / f"written_at_{commit}.tar.xz").write_bytes(data)
    finally:
        shutil.rmtree(NEUTRAL)


if __name__ == "__main__":
    main(sys.argv[1])
