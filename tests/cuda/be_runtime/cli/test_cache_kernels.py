"""Raw kernels travel in files of the cache, to where their headers and compilers lie elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

import be_runtime
from be_runtime.cli import main as cli
from be_runtime.kernels.cuda import nvrtc
from be_runtime.kernels.cuda.images import Compiled, obtain_kernel
from be_runtime.kernels.cuda.prototype import parse_name
from be_runtime.kernels.cuda.raw_compiler import compile_raw, raw_key, raw_origin
from be_runtime.kernels.cuda.raw_source import RawKernel
from be_runtime.load.process import PROCESS
from be_toolchain.arch import Arch
from be_toolchain.machine.local_system import LocalSystem

ARCHS = (Arch(9, 0),)
SOURCE = '#include "factor.h"\n__global__ void plain(float* y) { y[0] = FACTOR; }\n'


def obtain(folder: Path) -> int:
    """Return how often the kernel was compiled to get it into the cache of a folder."""
    be_runtime.set_cache_dir(folder / "cache")
    session, compiled = PROCESS.session(), 0
    kernel = RawKernel(SOURCE, parse_name("plain"), (f"-I{folder}",))

    def compile_now(staging: Path) -> Compiled:
        nonlocal compiled
        compiled += 1
        return compile_raw(kernel, ARCHS, session, staging)

    key, origin = raw_key(kernel, ARCHS, session), raw_origin(kernel, ARCHS, session)
    obtain_kernel(key, origin, compile_now, "plain", session)
    return compiled


@pytest.mark.parametrize(("factor", "compiled"), [("2", 0), ("3", 1)])
def test_an_imported_kernel_is_not_compiled(tmp_path: Path, tmp_cache: Path, factor: str, compiled: int):
    if nvrtc.find_nvrtc(LocalSystem()) is None:
        pytest.skip("no NVRTC: pip install 'nvidia-cuda-nvrtc==13.0.*'")
    first, second, file = tmp_path / "first", tmp_path / "second", str(tmp_path / "kernels.be")
    for folder, text in ((first, "2"), (second, factor)):
        folder.mkdir()
        (folder / "factor.h").write_text(f"#define FACTOR {text}\n")
    assert obtain(first) == 1
    assert cli.main(["cache", "export", file]) == 0
    be_runtime.set_cache_dir(second / "cache")
    assert cli.main(["cache", "import", file]) == 0
    assert obtain(second) == compiled
