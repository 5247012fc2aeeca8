"""A kernel for AMD GPUs in the values that CUDA's kernels have: records, images, and no launcher."""

from __future__ import annotations

import pytest

from be_runtime.errors import LoadError
from be_runtime.kernels.launcher import Kernel, KernelImage, archs_of, kernel_of, kernel_record, lacking, own_launcher
from be_runtime.load.process import PROCESS
from be_runtime.store.index import Index, image_file, parse_index, render_index
from be_toolchain.arch import AmdArch, Arch

IMAGES = (KernelImage(AmdArch("gfx90a"), "_Z1fPf", b"one"), KernelImage(AmdArch("gfx942"), "_Z1fPf", b"two"))


def test_a_record_is_read_back_from_an_index():
    identity, row, images = kernel_record(Kernel("", "f", IMAGES))
    table = Index("x86_64", {digest: image for digest, (image, _) in images.items()}, kernels={identity: row})
    read = parse_index(render_index(table), "here")
    kernel = kernel_of(identity, read.kernels[identity], lambda digest: images[digest][1])
    assert (kernel.images, kernel.platform) == (IMAGES, "ROCM")
    assert {image[:2] for image in read.images.values()} == {("hsaco", "ROCM")}
    assert all(image_file(*row).endswith(".hsaco") for row in read.images.items())
    assert archs_of(row) == ("gfx90a", "gfx942")


def test_its_code_runs_on_no_device_of_cuda():
    _, row, _ = kernel_record(Kernel("", "f", IMAGES))
    assert lacking(row, (Arch(9, 0),)) == "it has code for gfx90a, gfx942, and the GPU here is 9.0"


def test_a_platform_without_a_launcher_is_named():
    with pytest.raises(LoadError, match="no launcher for ROCM") as told:
        own_launcher(PROCESS.session(), Kernel("", "f", IMAGES).platform)
    assert told.value.hints == ("kernels run on CUDA; others are experimental",)
