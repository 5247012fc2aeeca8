"""What tests of CUDA modules share: the kernels, a call, a fresh process, and a look into a library."""

from __future__ import annotations

import json
import os
import runpy
import struct
from pathlib import Path
from typing import Any, NamedTuple

import be_runtime
from be_runtime import CompiledModule
from be_runtime.jax.arrays import array_spec
from be_runtime.kernels.geometry import Geometry
from be_runtime.kernels.launcher import Kernel, own_launcher
from be_runtime.kernels.source import Launch, Obtained, launch
from be_runtime.load.process import PROCESS
from tests.support import runtime

KERNELS = Path(__file__).parent / "cuda_kernels"
ARCH = "sm_90"
"""What tests without a device compile for."""
NO_LTO_LINKER = "elfLink linker library load error"
"""What nvlink says when a toolkit has no libnvvm where nvlink looks for it."""


def source(name: str) -> str:
    """The text of a kernel of `KERNELS`, by its name without the ending."""
    return (KERNELS / f"{name}.cu").read_text(encoding="utf-8")


def call(target: str, outs: Any, *args: Any, **attrs: Any) -> Any:
    """A jitted call of a target, awaited: an error of the kernel is raised here."""
    import jax

    return jax.block_until_ready(runtime.call(target, outs, *args, **attrs))


def launch_once(kernel: Kernel, x: Any) -> Any:
    """A call of a kernel without parameters, by one thread, whose result is like `x`."""
    from be_runtime.jax import calls
    from be_runtime.jax.arrays import Split

    obtained, one = Obtained(kernel, own_launcher(PROCESS.session())), (1, 1, 1)
    made = launch(obtained, Launch(Geometry(one, one)))
    given = {"targets": made.targets, "attributes": made.attributes, "split": Split((("i",),), (("i",),))}
    (result,) = calls.bind([x], label=kernel.name, results=(array_spec(x, "x"),), **given)
    return result


def run_json(code: str, *argv: str, **environ: str | None) -> Any:
    """Run code in a Python of its own on this process's platforms, and read the JSON on its last line of output."""
    platforms = {"JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS")}
    done = runtime.run_python(code, *argv, env=runtime.environment(**(platforms | environ)))
    return json.loads(done.stdout.splitlines()[-1])


def load_exercise(name: str, **options: Any) -> CompiledModule:
    """Kernels with an exported ``exercise()`` that calls their launchers without JAX.

    Parameters
    ----------
    name : str
        Of a kernel that has an ``exercise_<name>``; ``training`` means those of the example.
    **options
        For `be_runtime.load_cuda_inline`.
    """
    example = runpy.run_path(str(runtime.ROOT / "examples" / "train.py")) if name == "training" else {}
    kernels = example.get("CUDA_SOURCE") or source(name)
    texts = [kernels, source("exercise"), source(f"exercise_{name}")]
    return be_runtime.load_cuda_inline(f"exercise_{name}", texts, auto_register=False, **options)


EIGHT_FILES = range(8)


def write_eight_files(folder: Path) -> None:
    """Eight sources that share names of kernels, variables, functions and entry points.

    ``only_<i>`` is each file's own, ``apply`` is in the first five, ``shift`` in the last four. In file i, ``apply`` is
    ``(i + 1) x``, ``shift`` is ``x + 10 i`` and ``only_<i>`` fills with i.
    """
    folder.mkdir()
    for i in EIGHT_FILES:
        kernels = {f"only_{i}": "fill<float>"}
        kernels |= ({"apply": "scaled"} if i < 5 else {}) | ({"shift": "moved"} if i > 3 else {})
        text = _SHARED_NAMES.replace("FILE", str(i))
        text += "".join(_ENTRY.replace("ENTRY", name).replace("KERNEL", kernel) for name, kernel in kernels.items())
        (folder / f"part_{i}.cu").write_text(text)


_SHARED_NAMES = """\
#include <cuda_runtime.h>

#include "brainevent/common.h"

__device__ float factor = FILE + 1;
__constant__ float offset = 10 * FILE;

int threads() { return 32 * (FILE + 1); }
int blocks(int n) { return (n + threads() - 1) / threads(); }

__global__ void scaled(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * factor;
}

__global__ void moved(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + offset;
}

template <class T>
__global__ void fill(const T*, T* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = T(FILE);
}

"""
_ENTRY = """\
// @BE ENTRY
void ENTRY(const BE::Tensor x, BE::Tensor out, int64_t stream) {
  const int n = x.numel_checked_int();
  KERNEL<<<blocks(n), threads(), 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
}

"""


class DeviceCode(NamedTuple):
    """One image in a library's fat binary."""

    kind: str
    arch: int
    content: bytes


def device_code(library: Path) -> list[DeviceCode]:
    """The images of PTX and of machine code in a library, in order.

    The layout is that of nvcc's fat binaries: a header of 16 bytes, then entries, each with a header that holds its
    kind, its sizes and its architecture.
    """
    image = library.read_bytes()
    magic = struct.pack("<IHH", 0xBA55ED50, 1, 16)
    found = []
    start = image.find(magic)
    while start >= 0:
        (size,) = struct.unpack_from("<Q", image, start + 8)
        position, end = start + 16, start + 16 + size
        while position < end:
            kind, header, payload = struct.unpack_from("<HxxIQ", image, position)
            (arch,) = struct.unpack_from("<I", image, position + 28)
            content = image[position + header : position + header + payload]
            found.append(DeviceCode({1: "ptx", 2: "elf"}.get(kind, str(kind)), arch, content))
            position += header + payload
        start = image.find(magic, end)
    return found


def instructions(library: Path) -> list[tuple[int, bytes]]:
    """The architecture and the machine code of each device function in a library that was built with ``--no-compress``.

    A function's name may hold its module's id, which nvcc makes from the file's path, so names are left out.
    """
    found = []
    for code in device_code(library):
        if code.kind == "elf":
            assert code.content.startswith(b"\x7fELF"), "the image is compressed"
            found += [(code.arch, text) for text in _text_sections(code.content)]
    return sorted(found)


def _text_sections(elf: bytes) -> list[bytes]:
    """Contents of the sections whose names begin with ``.text``, by the ELF-64 specification."""
    offset = int.from_bytes(elf[0x28:0x30], "little")
    entry_size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + index * entry_size) for index in range(count)]
    names = sections[names_index][4]
    code = (section for section in sections if elf.startswith(b".text", names + section[0]))
    return [elf[section[4] : section[4] + section[5]] for section in code]
