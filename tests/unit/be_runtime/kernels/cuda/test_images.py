"""Kernels as the launcher and the cache have them: what comes back, and what their ids are made of."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime.cache import Store, make_key
from be_runtime.kernels.cuda import describe
from be_runtime.kernels.cuda.calls import new_session
from be_runtime.kernels.cuda.describe import Form, Kernel, KernelImage
from be_runtime.kernels.cuda.images import Compiled, Origin, kernel_of, obtain_kernel
from be_toolchain.arch import Arch

IMAGES = (
    KernelImage(Arch(9, 0, "a"), "f", b"\x7fELF"),
    KernelImage(Arch(9, 0, "a"), "g", b"// PTX", is_ptx=True, form=Form.BATCH, batch_axis=2, is_cooperative=True),
)
SAID = ("NVRTC 13.0", "Cuda compilation tools, release 13.0, V13.0.88")
MADE = Compiled(IMAGES, compiler=SAID)


def obtain(place: Path, made: Compiled = MADE, *, source: str = "f", folder: Path | None = None) -> Kernel:
    """A kernel out of a cache and by a key that belong to a place."""
    session = new_session()._replace(module_store=Store(place / "cache"))
    origin = Origin(make_key("kernel", ("source", source)), () if folder is None else (folder,))
    key = make_key("kernel", ("place", str(place)))
    return obtain_kernel(key, origin, lambda _staging: made, "f", session)


def test_images_come_back_as_they_were(tmp_path: Path):
    found = obtain(tmp_path)
    assert found.images == IMAGES
    assert obtain(tmp_path, Compiled(())) == found, "from the cache"


@pytest.mark.parametrize("field", ["entry", "batch_axis", "is_ptx", "is_cooperative", "form"])
def test_a_row_of_other_types_is_no_image(field: str):
    row = {"name": "k", "images": [{"image": "00", "arch": "9.0", "entry": "k", field: ["x"]}]}
    with pytest.raises((TypeError, ValueError)):
        kernel_of("id", row, lambda digest: b"")


def test_the_id_holds_the_source_and_what_the_compiler_says_but_not_the_place(tmp_path: Path):
    newer = Compiled(IMAGES, compiler=(SAID[0], SAID[1].replace("88", "89")))
    first, second, *others = (
        obtain(tmp_path / "a").id,
        obtain(tmp_path / "b").id,
        obtain(tmp_path / "c", source="g").id,
        obtain(tmp_path / "d", newer).id,
    )
    assert first == second
    assert len({first, *others}) == 3


def test_the_id_holds_headers_by_their_content_and_their_name_below_a_folder(tmp_path: Path):
    ids = []
    for number, (name, text) in enumerate([("x/a.h", "1"), ("x/a.h", "1"), ("y/a.h", "1"), ("x/a.h", "2")]):
        folder = tmp_path / f"headers{number}"
        header = folder / name
        header.parent.mkdir(parents=True)
        header.write_text(text)
        ids.append(obtain(tmp_path / str(number), Compiled(IMAGES, dependencies=(header,)), folder=folder).id)
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_the_id_of_what_is_uncertain_holds_what_was_made(tmp_path: Path):
    made = (Compiled((KernelImage(Arch(9, 0), "f", code),), unknown=("a header",)) for code in (b"a", b"b"))
    one, other = (obtain(tmp_path / str(number), each) for number, each in enumerate(made))
    assert one.id != other.id


def test_params_are_four_numbers_each():
    scalar = describe.scalar_param(struct.pack("<f", 1.0))
    params = [describe.pointer_param(0, 2, 4), describe.array_param(1, 3, 8), scalar]
    assert describe.encode_params(params) == (0, 0, 2, 4, 1, 1, 3, 8, 2, 0x3F800000, 0, 0)


@given(st.binary(min_size=1, max_size=8))
def test_a_scalar_keeps_its_bytes(value: bytes):
    assert struct.pack("<q", describe.scalar_param(value).first)[: len(value)] == value


@given(st.tuples(st.text(max_size=4), st.binary(max_size=4)), st.tuples(st.text(max_size=4), st.binary(max_size=4)))
def test_content_tells_images_apart(one: tuple[str, bytes], other: tuple[str, bytes]):
    ids = [describe.content_id([KernelImage(Arch(9, 0), *each)]) for each in (one, other)]
    assert (ids[0] == ids[1]) == (one == other)
    assert all(len(each) == 32 for each in ids)


def test_a_batch_needs_the_same_axis_on_every_architecture():
    single = [KernelImage(arch, "f", b"x") for arch in (Arch(9, 0), Arch(8, 0))]
    batch = [image._replace(form=Form.BATCH, batch_axis=2) for image in single]
    for images, axis in ((single, 0), ((*single, *batch), 2), ((*single, batch[0]), 0)):
        assert Kernel("0", "f", tuple(images)).batch_axis == axis
