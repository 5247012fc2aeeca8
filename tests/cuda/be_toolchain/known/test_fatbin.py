"""Our fat binaries beside those of NVIDIA's program."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.known.fatbin import Image, render_fatbin
from be_toolchain.model import CudaToolkit

SOURCE = "__global__ void twice(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }\n"


@pytest.fixture(scope="module")
def toolkit() -> CudaToolkit:
    found = resolve(ToolchainRequest(need_cuda=True)).cuda
    assert found is not None
    assert found.nvcc is not None
    return found


def compiled(toolkit: CudaToolkit, folder: Path, kind: str, arch: str) -> Path:
    """A kernel as a cubin, or as PTX without the comments and white space that NVIDIA's program leaves out."""
    source, target = folder / "kernel.cu", folder / f"kernel.{arch}.{kind}"
    source.write_text(SOURCE)
    command = [str(toolkit.nvcc), "-ccbin", str(toolkit.host_compiler.path), f"-{kind}", f"-arch=sm_{arch}"]
    subprocess.run([*command, str(source), "-o", str(target)], check=True, capture_output=True)
    if kind == "ptx":
        lines = (re.sub(r"\s+", " ", line).strip() for line in target.read_text().splitlines())
        target.write_text("".join(f"{line}\n" for line in lines if line and not line.startswith("//")))
    return target


@pytest.mark.parametrize(
    "wanted",
    [
        [("cubin", "90")],
        [("cubin", "90a")],
        [("cubin", "100")],
        [("cubin", "120f")],
        [("ptx", "90")],
        [("cubin", "80"), ("cubin", "90"), ("ptx", "90")],
    ],
    ids=str,
)
def test_every_byte_is_that_of_nvidia_s_program(toolkit: CudaToolkit, tmp_path: Path, wanted: list[tuple[str, str]]):
    kinds = {"cubin": "elf", "ptx": "ptx"}
    files = [(kinds[kind], arch, compiled(toolkit, tmp_path, kind, arch)) for kind, arch in wanted]
    images = [f"--image3=kind={kind},sm={arch},file={path}" for kind, arch, path in files]
    theirs = tmp_path / "theirs.fatbin"
    command = (str(toolkit.fatbinary), "-64", "--compress-mode=none", "--create", str(theirs), *images)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    ours = render_fatbin(tuple(Image(kind, arch, path.read_bytes()) for kind, arch, path in files))
    assert ours == theirs.read_bytes()
