"""Our fat binaries beside those of NVIDIA's program."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.known.fatbin import Image, render_fatbin
from tests.support.requirements import in_full

SOURCE = "__global__ void twice(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }\n"
WANTED = ("elf 80, elf 90, ptx 90", *map(in_full, ("elf 90", "elf 90a", "elf 100", "elf 120f", "ptx 90")))


@pytest.mark.parametrize("wanted", WANTED)
def test_every_byte_is_that_of_nvidia_s_program(wanted: str, tmp_path: Path):
    toolkit = resolve(ToolchainRequest(need_cuda=True)).cuda
    assert toolkit is not None
    (tmp_path / "kernel.cu").write_text(SOURCE)
    images = []
    for number, (kind, arch) in enumerate(each.split() for each in wanted.split(", ")):
        path = tmp_path / str(number)
        form = {"elf": "-cubin", "ptx": "-ptx"}[kind]
        nvcc = [str(toolkit.nvcc), "-ccbin", str(toolkit.host_compiler.path), form, f"-arch=sm_{arch}", "kernel.cu"]
        subprocess.run([*nvcc, "-o", str(path)], cwd=tmp_path, check=True, capture_output=True)
        if kind == "ptx":  # NVIDIA's program leaves comments and white space out
            lines = (re.sub(r"\s+", " ", line).strip() for line in path.read_text().splitlines())
            path.write_text("".join(f"{line}\n" for line in lines if line and not line.startswith("//")))
        images.append((Image(kind, arch, path.read_bytes()), f"--image3=kind={kind},sm={arch},file={path}"))
    theirs = tmp_path / "theirs.fatbin"
    command = (str(toolkit.fatbinary), "-64", "--compress-mode=none", "--create", str(theirs))
    done = subprocess.run([*command, *(flag for _, flag in images)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert render_fatbin(tuple(image for image, _ in images)) == theirs.read_bytes()
