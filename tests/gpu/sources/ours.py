"""``2 * x + y`` as a function of be_runtime, from each source of kernels, and as a package."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import be_runtime

LANGUAGES = Path(__file__).with_name("languages")
SOURCES = ("cpp", "cuda", "numba", "triton", "cute", "cutile", "tvm_ffi")
TRITON_ARRAYS = "arg[... n]:float32 arg[... n]:float32 ret[... n]:float32"
TABLES = {
    "cpp": '[modules.ops]\nsources = "axpy.cc"',
    "cuda": '[modules.ops]\nsources = "axpy.cu"',
    "numba": f"""[kernels.axpy]
numba_cuda = "numba_axpy:axpy"
signature = "{TRITON_ARRAYS}"
launch_dims = "n\"""",
    "triton": f"""[kernels.axpy]
triton = "triton_axpy:axpy"
signature = "{TRITON_ARRAYS}"
grid = "ceil(n/BLOCK)"
constants = {{ BLOCK = 256, LESS = 0 }}""",
    "cute": f"""[kernels.axpy]
cute = "cute_axpy:axpy"
signature = "{TRITON_ARRAYS}\"""",
    "cutile": f"""[kernels.axpy]
cutile = "cutile_axpy:axpy"
signature = "{TRITON_ARRAYS}"
grid = "ceil(n/BLOCK)"
constants = {{ BLOCK = 256 }}""",
    "tvm_ffi": """[modules.ops]
tvm_ffi = "libaxpy.so"
platform = "cuda"
functions = { axpy = "arg[... n]:float32 arg[... n]:float32 ret[... n]:float32 attr.less:int64=0" }""",
}


def function(source: str, *, less: int = 0) -> Any:
    """The function of a source; the last `less` elements, 0 or 1, are not written."""
    match source:
        case "cpp" | "cuda":
            load = be_runtime.load_cpp_file if source == "cpp" else be_runtime.load_cuda_file
            module: Any = load(LANGUAGES / ("axpy.cc" if source == "cpp" else "axpy.cu"))
            made = module.axpy
        case "tvm_ffi":
            made = be_runtime.load_tvm_ffi(library(Path.cwd()), {"axpy": _TVM}, platform="cuda").axpy
        case _:
            return _kernel(source, less)
    return made if less == 0 else lambda x, y: made(x, y, less=less)


_TVM = "arg[... n]:float32 arg[... n]:float32 ret[... n]:float32 attr.less:int64=0"


def library(folder: Path) -> Path:
    """A TVM-FFI library with the function."""
    import tvm_ffi.cpp

    text = (LANGUAGES / "tvm_ffi_axpy.cu").read_text()
    return Path(tvm_ffi.cpp.build_inline("axpy", cuda_sources=text, functions=["axpy"], build_directory=str(folder)))


def _kernel(source: str, less: int) -> Any:
    sys.path.insert(0, str(LANGUAGES))
    name = "lacking" if less else "axpy"
    match source:
        case "numba":
            import numba_axpy

            return be_runtime.numba_cuda_kernel(getattr(numba_axpy, name), signature=TRITON_ARRAYS, launch_dims="n")
        case "triton":
            import triton_axpy

            return be_runtime.triton_kernel(triton_axpy.axpy, TRITON_ARRAYS, grid="ceil(n/BLOCK)", BLOCK=256, LESS=less)
        case "cute":
            import cute_axpy

            return be_runtime.cute_kernel(cute_axpy.axpy, TRITON_ARRAYS, less=less)
    import cutile_axpy

    return be_runtime.cutile_kernel(getattr(cutile_axpy, name), TRITON_ARRAYS, grid="ceil(n/BLOCK)", BLOCK=256)


def write_package(source: str, folder: Path) -> None:
    """Write the package ``axpy_ops`` with the kernel of a source."""
    package = folder / "axpy_ops"
    package.mkdir()
    (package / "kernels.toml").write_text('archs = ["9.0"]\n' + TABLES[source] + "\n")
    for file in LANGUAGES.iterdir():
        if file.suffix in (".cc", ".cu"):
            shutil.copy(file, package)
    lines = ["import be_runtime", "ops = be_runtime.package_kernels(__name__)"]
    if source == "tvm_ffi":
        built = folder / "tvm"
        built.mkdir()
        shutil.copy(library(built), package / "libaxpy.so")
    if source in ("cute", "tvm_ffi"):
        lines.insert(0, "import tvm_ffi")
    (package / "__init__.py").write_text("\n".join(lines) + "\n")
