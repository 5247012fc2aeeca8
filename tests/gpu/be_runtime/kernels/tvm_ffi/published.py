"""Build kernels that others publish, without a GPU: ``python published.py FOLDER``.

It needs nvcc, flashinfer-python (its sources alone; cublasLt.h too, in a folder of CPATH) and tilelang, whose
environments may differ: what can't be imported is left out. `test_published.py` runs what BE_PUBLISHED=FOLDER holds.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

ARCH = "sm_90"
FEATURES = ("ENABLE_BF16", "ENABLE_FP8", *(f"FLASHINFER_ENABLE_{name}" for name in ("F16", "BF16")))
FLOATS = tuple(f"FLASHINFER_ENABLE_{name}" for name in ("FP8_E4M3", "FP8_E5M2", "FP8_E8M0", "FP4_E2M1"))
FLAGS = ("-std=c++20", "-O2", "-static-global-template-stub=false", "--expt-relaxed-constexpr", "-Xcompiler=-fPIC")


def build_flashinfer(folder: Path) -> None:
    """Build FlashInfer's norms as its own JIT does."""
    import tvm_ffi.libinfo

    spec = importlib.util.find_spec("flashinfer")
    assert spec is not None, "main has looked"
    assert spec.origin is not None, "flashinfer is a package"
    data = Path(spec.origin).parent / "data"
    headers = [data / "include", data / "csrc", *sorted(data.glob("cccl/*/include")), data / "cccl/cub"]
    headers += [data / "cccl/thrust", *map(Path, tvm_ffi.libinfo.include_paths())]
    sources = [data / "csrc" / name for name in ("norm.cu", "flashinfer_norm_binding.cu")]
    words = [f"-D{name}" for name in (*FEATURES, *FLOATS)] + [f"-I{header}" for header in headers]
    built = folder / "flashinfer_norm.so"
    subprocess.run(["nvcc", "-shared", f"-arch={ARCH}", *FLAGS, *words, *sources, "-o", built], check=True)


def build_tilelang(folder: Path) -> None:
    """Compile a kernel of TileLang, and copy the library that its modules need at run time."""
    import tilelang
    from tilelang import language as tile

    @tile.prim_func  # type: ignore[untyped-decorator]
    def scale_rows(
        a: tile.Tensor[(64, 256), tile.float32],
        w: tile.Tensor[(256,), tile.float32],
        c: tile.Tensor[(64, 256), tile.float32],
    ):
        with tile.Kernel(64, threads=128) as row:
            for i in tile.Parallel(256):
                c[row, i] = a[row, i] * w[i]

    kernel = tilelang.compile(scale_rows, target={"kind": "cuda", "arch": ARCH}, execution_backend="tvm_ffi")
    kernel.export_library(str(folder / "tilelang_rows.so"))
    for name in ("libtvm_runtime.so", "libstub_cuda.so", "libstub_cudart.so", "libstub_hip.so", "libstub_ascendcl.so"):
        shutil.copy(Path(tilelang.__file__).parent / "lib" / name, folder)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for package, build in {"flashinfer": build_flashinfer, "tilelang": build_tilelang}.items():
        if importlib.util.find_spec(package):
            build(target)
