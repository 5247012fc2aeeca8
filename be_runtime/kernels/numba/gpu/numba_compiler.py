"""Compilation of a Numba CUDA kernel to machine code. Only this file of the folder depends on Numba's interface.

``numba.cuda.compile_all`` compiles the kernel and the functions it calls, including libdevice, to PTX; ``cuda.core``,
a dependency of numba-cuda, links that to a cubin.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError, BuildError
from be_runtime.kernels.cuda.describe import Form, KernelImage
from be_runtime.kernels.numba.gpu.numba_calls import types_text
from be_runtime.kernels.numba.gpu.ptx_words import check_words
from be_runtime.kernels.numba.numba_hints import hints
from be_runtime.kernels.numba.numba_import import explain_compilation, import_error, installed_version
from be_runtime.kernels.numba.numba_source import (
    batched_source,
    entry_in_ptx,
    free_axis,
    missing_functions,
    without_counts,
)
from be_runtime.xla.arrays import ArraySpec
from be_toolchain.arch import Arch
from be_toolchain.machine.forks import ThreadLock

_COMPILING = ThreadLock()
"""Allows one compilation at a time, as Numba does."""

_OPTIONS = ("debug", "lineinfo", "fastmath", "opt", "launch_bounds")
_COOPERATIVE = "cudaCGGetIntrinsicHandle"
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_NO_DRIVER = "CUDA driver library cannot be found"
_NO_LIBRARY = re.compile(r"Failure finding \"lib(?:nvrtc|nvJitLink|nvvm)|is an NVIDIA driver library")
_NEEDS_LIBRARIES = (
    "Numba needs NVRTC and nvJitLink, which JAX's CUDA wheels include; without those: pip install nvidia-cuda-nvrtc "
    "nvidia-nvjitlink"
)
_NEEDS_DRIVER = "Numba needs the driver to compile device functions, NumPy's functions and kernels of whole batches"


class NumbaKernel(NamedTuple):
    """A kernel for arrays of certain types.

    Parameters
    ----------
    dispatcher : CUDADispatcher
    inputs, outs : tuple of ArraySpec
        Arrays of the kernel; their shapes do not matter.
    with_batch : bool
        True if a call may have a batch.
    """

    dispatcher: Any
    inputs: tuple[ArraySpec, ...]
    outs: tuple[ArraySpec, ...]
    with_batch: bool

    @property
    def name(self) -> str:
        """The function's name."""
        return str(self.dispatcher.py_func.__name__)

    def types_text(self) -> list[str]:
        """Describe the types of the arrays, for a key."""
        return types_text(self.inputs, self.outs)


class NoKernelError(TypeError, AssertionError):
    """The argument is not a Numba CUDA kernel. The exception is an AssertionError too, for compatibility."""


def check_dispatcher(kernel: object) -> Any:
    """Check that the kernel is a CUDA dispatcher of Numba.

    Raises
    ------
    ImportError
        Numba with CUDA support can't be imported.
    TypeError
        It is something else. The exception is an AssertionError too.
    """
    try:
        import_module("numba_cuda")  # without it, numba.cuda is Numba's own of old
        from numba.cuda.dispatcher import CUDADispatcher
    except (ImportError, AttributeError) as error:
        raise import_error("numba_cuda_kernel", "numba-cuda", error) from error
    if not isinstance(kernel, CUDADispatcher):
        kind = f"{type(kernel).__module__}.{type(kernel).__qualname__}"
        raise NoKernelError(f"kernel must be a function decorated with @cuda.jit, not {kernel!r} ({kind})")
    if kernel.targetoptions.get("device"):
        raise NoKernelError(f"{kernel.py_func.__name__} is a device function; a kernel is decorated with @cuda.jit")
    for option in ("link", "extensions"):
        if kernel.targetoptions.get(option):
            raise ArgumentError(f"the kernel {kernel.py_func.__name__} uses {option}=..., which is not supported here")
    return kernel


def versions() -> tuple[str, ...]:
    """Return the versions that affect the compiled code."""
    packages = ("numba", "numba-cuda", "llvmlite", "numpy", "nvidia-nvvm", "nvidia-nvjitlink", "cuda-core")
    return tuple(f"{package} {installed_version(package)}" for package in packages)


def compile_numba(kernel: NumbaKernel, archs: Sequence[Arch], *, with_ptx: bool = False) -> tuple[KernelImage, ...]:
    """Compile a kernel for each architecture, and the form that runs a batch in one launch if there is one.

    Parameters
    ----------
    kernel : NumbaKernel
    archs : sequence of Arch
    with_ptx : bool
        True for the PTX of the latest architecture without a suffix too, where nothing has to be linked to it.

    Raises
    ------
    BuildError
        Numba or the linker refuses the kernel.
    ImportError
        Numba does not work with other installed packages.
    """
    latest = max((arch for arch in archs if with_ptx and not arch.suffix), default=None)
    return tuple(image for arch in archs for image in _images(kernel, arch, with_ptx=arch == latest))


def _images(kernel: NumbaKernel, arch: Arch, *, with_ptx: bool) -> list[KernelImage]:
    codes = _compile(kernel, kernel.dispatcher.py_func, arch, extra_axis=False)
    is_cooperative = _COOPERATIVE in codes[0]
    made = _linked(kernel, codes, arch, 0, with_ptx=with_ptx)
    images = [each._replace(is_cooperative=is_cooperative) for each in made]
    axis = free_axis(codes[0])
    if kernel.with_batch and axis and not is_cooperative and all(spec.ndim for spec in _arrays(kernel)):
        batched = _compile(kernel, _batched(kernel, axis), arch, extra_axis=True)
        made = _linked(kernel, batched, arch, 1, with_ptx=with_ptx)
        images += [each._replace(form=Form.BATCH, batch_axis=axis) for each in made]
    return images


def _linked(kernel: NumbaKernel, codes: Sequence[str], arch: Arch, more: int, *, with_ptx: bool) -> list[KernelImage]:
    """Link a kernel whose arrays have `more` axes, and check that it takes arrays as the launcher passes them."""
    check_words(codes[0], [spec.ndim + more for spec in _arrays(kernel)])
    image = _link(kernel, codes, arch)
    if not with_ptx or image.is_ptx or len(codes) > 1 or missing_functions(codes[0]):
        return [image]
    return [image, image._replace(data=codes[0].encode(), is_ptx=True)]


def _arrays(kernel: NumbaKernel) -> tuple[ArraySpec, ...]:
    return (*kernel.inputs, *kernel.outs)


def _batched(kernel: NumbaKernel, axis: int) -> Any:
    """Make the Python function that runs the kernel on slices."""
    from numba import cuda

    options = {name: kernel.dispatcher.targetoptions[name] for name in ("debug", "lineinfo", "fastmath", "opt")}
    namespace: dict[str, Any] = {"cuda": cuda, "kernel": cuda.jit(device=True, **options)(kernel.dispatcher.py_func)}
    name = kernel.name if kernel.name.isidentifier() else "kernel"
    source = batched_source(name, len(_arrays(kernel)), axis)
    exec(source, namespace)  # noqa: S102 - it holds the kernel's name, an identifier, and names of our own
    return namespace[f"{name}_batched"]


def _compile(kernel: NumbaKernel, function: Any, arch: Arch, *, extra_axis: bool) -> list[str]:
    """Compile a function as a kernel to PTX, and return it with the other parts to link, which are PTX too."""
    from numba import cuda

    given = kernel.dispatcher.targetoptions
    options = {name: given[name] for name in _OPTIONS if given.get(name) is not None}
    options["debug"] = bool(options.get("debug"))
    signature = tuple(
        _numba_type(spec, index < len(kernel.inputs), extra_axis) for index, spec in enumerate(_arrays(kernel))
    )
    capability = (arch.major, arch.minor, arch.suffix) if arch.suffix else (arch.major, arch.minor)
    try:
        with _compiling_for(arch):
            codes, _ = cuda.compile_all(
                function, signature, device=False, abi="numba", output="ptx", cc=capability, **options
            )
    except Exception as error:
        # Numba's own errors, and any others that its passes raise because of the author's code.
        mismatch = explain_compilation("numba-cuda", error)
        if mismatch:
            raise ImportError(f"Numba can't compile the kernel {kernel.name}: {mismatch}") from error
        raise _refused(kernel, str(error)) from error
    return without_counts([_as_text(code) for code in codes])


@contextlib.contextmanager
def _compiling_for(arch: Arch) -> Iterator[None]:
    """Compile the device functions that a kernel calls for an architecture, whatever device is there, if any."""
    dispatcher: Any = import_module("numba.cuda.dispatcher")
    with _COMPILING:
        usual = dispatcher.get_current_device
        dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=(arch.major, arch.minor))
        try:
            yield
        finally:
            dispatcher.get_current_device = usual


def _refused(kernel: NumbaKernel, text: str) -> BuildError:
    types, text = ", ".join(kernel.types_text()), _COLOURS.sub("", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    inputs, outs = ([spec.ndim for spec in specs] for specs in (kernel.inputs, kernel.outs))
    if _NO_LIBRARY.search(text):
        found = [_NEEDS_LIBRARIES]
    else:
        found = [_NEEDS_DRIVER] if _NO_DRIVER in text else hints(kernel.dispatcher.py_func, inputs, outs, text)
    return BuildError(
        f"Numba can't compile the kernel {kernel.name} for ({types})",
        output=text,
        first_error="\n".join(lines[:8]),
        hints=tuple(found[:1]),
    )


def _numba_type(spec: ArraySpec, is_input: bool, extra_axis: bool) -> Any:
    """Return the array type of Numba, which is read-only for inputs."""
    from numba.cuda import types

    name = "boolean" if spec.dtype.name == "bool" else spec.dtype.name
    return types.Array(getattr(types, name), spec.ndim + extra_axis, "C", readonly=is_input)


def _link(kernel: NumbaKernel, codes: Sequence[str], arch: Arch) -> KernelImage:
    """Link Numba's output to machine code; without a linker, return PTX, which the driver compiles."""
    ptx = codes[0]
    entry = entry_in_ptx(ptx)
    missing = missing_functions(ptx)
    parts = [code.encode() for code in codes]
    try:
        from cuda.core import Linker, LinkerOptions, ObjectCode
    except ImportError:
        if missing:
            raise BuildError(
                f"{kernel.name} needs the functions {', '.join(missing)}, and cuda-core to link them"
            ) from None
        return KernelImage(arch, entry, parts[0], is_ptx=True)
    objects = [ObjectCode.from_ptx(part) for part in parts]
    objects += [ObjectCode.from_library(path) for path in _libraries(missing)]
    registers = kernel.dispatcher.targetoptions.get("max_registers")
    try:
        linker = Linker(*objects, options=LinkerOptions(arch=arch.sm, max_register_count=registers))
        return KernelImage(arch, entry, bytes(linker.link("cubin").code))
    except Exception as error:
        raise BuildError(
            f"the kernel {kernel.name} can't be linked for {arch.sm}",
            output=str(error),
            hints=(_NEEDS_LIBRARIES,) if _NO_LIBRARY.search(str(error)) else (),
        ) from error


def _as_text(code: Any) -> str:
    """Convert Numba's PTX, which is text, bytes, or an object of cuda.core, to text."""
    if isinstance(code, str):
        return code
    return (code if isinstance(code, bytes) else bytes(code.code)).decode().rstrip("\0")


def _libraries(missing: Sequence[str]) -> list[str]:
    """List the CUDA libraries with the functions that a kernel calls."""
    if not any(name.startswith("cudaCG") for name in missing):
        return []
    from numba.cuda.cudadrv.libs import get_cudalib

    return [str(get_cudalib("cudadevrt", static=True))]
