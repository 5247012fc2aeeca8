"""What the launcher is told, and what tells kernels apart."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from be_runtime.kernels.cuda.describe import (
    Form,
    Kernel,
    KernelImage,
    array_param,
    content_id,
    encode_params,
    pointer_param,
    scalar_param,
)
from be_toolchain.arch import Arch

ARCH = Arch(9, 0)


def test_params_are_four_numbers_each():
    params = [pointer_param(0, 2, 4), array_param(1, 3, 8), scalar_param(struct.pack("<f", 1.0))]
    assert encode_params(params) == (0, 0, 2, 4, 1, 1, 3, 8, 2, 0x3F800000, 0, 0)


@given(st.binary(min_size=1, max_size=8))
def test_a_scalar_keeps_its_bytes(value: bytes):
    first = scalar_param(value).first
    assert struct.pack("<q", first)[: len(value)] == value


@given(st.tuples(st.text(max_size=4), st.binary(max_size=4)), st.tuples(st.text(max_size=4), st.binary(max_size=4)))
def test_content_tells_images_apart(one: tuple[str, bytes], other: tuple[str, bytes]):
    ids = [content_id([KernelImage(ARCH, *each)]) for each in (one, other)]
    assert (ids[0] == ids[1]) == (one == other)
    assert all(len(each) == 32 for each in ids)


def test_a_batch_needs_the_same_axis_on_every_architecture():
    single = [KernelImage(arch, "f", b"x") for arch in (ARCH, Arch(8, 0))]
    batch = [image._replace(form=Form.BATCH, batch_axis=2) for image in single]
    assert Kernel("0", "f", tuple(single)).batch_axis == 0
    assert Kernel("0", "f", (*single, *batch)).batch_axis == 2
    assert Kernel("0", "f", (*single, batch[0])).batch_axis == 0
