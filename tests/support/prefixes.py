"""Two installations of the project in folders of their own, which share nothing but a server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tests.support.runtime import ROOT, environment

SITE = Path(sysconfig.get_path("purelib"))

HEADER = "#pragma once\n#include <cassert>\nstatic inline float twice(float x) { assert(x < 1e30f); return 2 * x; }\n"
CPP = """#include "brainevent/common.h"
#include "twice.h"
// @BE f arg[n] ret[n]
void f(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = twice(x.data_ptr<float>()[i]);
}
"""
CUDA = """#include "brainevent/common.h"
#include "twice.h"
__global__ void kernel(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  assert(n > 0);
  if (i < n) y[i] = 2 * x[i];
}
// @BE g
void g(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  assert(twice(1) == 2);
  kernel<<<1, 256, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel());
}
"""


class Prefix:
    """One installation: packages, kernels and a cache below one folder.

    Parameters
    ----------
    folder : Path
        The folder, made here.
    whole : bool
        Whether it has all packages of this environment, with copies of those that builds read, rather than ours alone.
    """

    def __init__(self, folder: Path, *, whole: bool = False) -> None:
        self.folder, self.python = folder, Path(sys.executable)
        self.site = folder / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        if whole:
            venv.create(folder, symlinks=True)
            self.python = folder / "bin/python"
            _copy_packages(self.site)
        for name in ("be_runtime", "be_toolchain"):
            shutil.copytree(ROOT / name, self.site / name, ignore=shutil.ignore_patterns("__pycache__", "shipped"))
        (folder / "kernels").mkdir()
        for name, text in {"twice.h": HEADER, "k.cc": CPP, "k.cu": CUDA}.items():
            (folder / "kernels" / name).write_text(text)

    def load(self, function: str, name: str, **variables: str) -> list[str]:
        """Load a kernel's file in a process of its own, and return its entry's source, and what it said."""
        code = (
            "import json, sys, be_runtime\n"
            "from be_runtime.store.cache import read_manifest\n"
            f"assert be_runtime.__file__.startswith({str(self.site)!r})\n"
            f"path = be_runtime.{function}({str(self.folder / 'kernels' / name)!r}).path.parents[1]\n"
            "print(json.dumps(read_manifest(str(path), path.parent.name).made))\n"
        )
        env = environment(BE_CACHE_DIR=str(self.folder / "cache"), PYTHONPATH=str(self.site), **variables)
        done = subprocess.run(
            [self.python, "-c", code], env=env, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(done.stdout)[3], done.stderr]


READ_BY_BUILDS = ("nvidia", "jaxlib")
OURS = re.compile("__pycache__|be_runtime|be_toolchain|brainevent_toolchain.*|__editable__.*")


def _copy_packages(site: Path) -> None:
    """Copy the packages that builds read, and link to the others.

    Hard links would change the time of the files' last change, which the builds of other tests would notice.
    """
    for each in filter(lambda each: not OURS.fullmatch(each.name), SITE.iterdir()):
        if each.name in READ_BY_BUILDS:
            shutil.copytree(each, site / each.name, symlinks=True)
        elif not (site / each.name).exists():
            (site / each.name).symlink_to(each)
