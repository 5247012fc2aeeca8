"""Two installations of the project in folders of their own, which share nothing but a server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
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
    packages : iterable of str
        Folders of this environment's packages that it has copies of, besides ours.
    """

    def __init__(self, folder: Path, packages: Iterable[str] = ()) -> None:
        self.folder, self.site = folder, folder / "lib/site-packages"
        self.site.mkdir(parents=True)
        for name in ("be_runtime", "be_toolchain"):
            shutil.copytree(ROOT / name, self.site / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in packages:
            shutil.copytree(SITE / name, self.site / name, copy_function=_link, symlinks=True)
        (folder / "kernels").mkdir()
        for name, text in {"twice.h": HEADER, "k.cc": CPP, "k.cu": CUDA}.items():
            (folder / "kernels" / name).write_text(text)

    def load(self, function: str, name: str, **variables: str) -> list[str]:
        """Load a kernel's file in a process of its own, and return its entry's source, and what it said."""
        code = (
            "import json, sys, be_runtime\n"
            "from be_runtime.cache.validity.lookup import read_manifest\n"
            f"assert be_runtime.__file__.startswith({str(self.site)!r})\n"
            f"path = be_runtime.{function}({str(self.folder / 'kernels' / name)!r}).path.parent\n"
            "print(json.dumps(read_manifest(str(path), path.parent.name).made))\n"
        )
        env = environment(BE_CACHE_DIR=str(self.folder / "cache"), PYTHONPATH=str(self.site), **variables)
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(done.stdout)[3], done.stderr]


def _link(source: str, target: str) -> None:
    """Copy a file as a link if both are on one file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
