"""Kernels in the cache: what comes back out of it, and what their ids are made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.cache import Store, make_key
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
    found = obtain_kernel(key, origin, lambda _staging: made, "f", session)
    assert obtain_kernel(key, origin, lambda _staging: Compiled(()), "f", session) == found
    return found


def test_images_come_back_as_they_were(tmp_path: Path):
    assert obtain(tmp_path).images == IMAGES


@pytest.mark.parametrize("field", ["entry", "batch_axis", "is_ptx", "is_cooperative", "form"])
def test_a_row_of_other_types_is_no_image(field: str):
    row = {"name": "k", "images": [{"image": "00", "arch": "9.0", "entry": "k", field: ["x"]}]}
    with pytest.raises((TypeError, ValueError)):
        kernel_of("id", row, lambda digest: b"")


def test_the_id_holds_the_source_and_what_the_compiler_says_but_not_the_place(tmp_path: Path):
    kernels = [
        obtain(tmp_path / "a"),
        obtain(tmp_path / "b"),
        obtain(tmp_path / "c", source="g"),
        obtain(tmp_path / "d", Compiled(IMAGES, compiler=(SAID[0], SAID[1].replace("88", "89")))),
    ]
    ids = [kernel.id for kernel in kernels]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_the_id_holds_headers_by_their_content_and_their_name_below_a_folder(tmp_path: Path):
    ids = []
    for number, (name, text) in enumerate([("x/a.h", "1"), ("x/a.h", "1"), ("y/a.h", "1"), ("x/a.h", "2")]):
        folder = tmp_path / f"headers{number}"
        header = folder / name
        header.parent.mkdir(parents=True)
        header.write_text(text)
        made = Compiled(IMAGES, dependencies=(header,))
        ids.append(obtain(tmp_path / str(number), made, folder=folder).id)
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_the_id_of_what_is_uncertain_holds_what_was_made(tmp_path: Path):
    one, other = (
        obtain_kernel(
            make_key("kernel", ("place", name)),
            Origin(make_key("kernel")),
            lambda _staging, name=name: Compiled((KernelImage(Arch(9, 0), "f", name.encode()),), unknown=("a header",)),  # type: ignore[misc]
            "f",
            new_session()._replace(module_store=Store(tmp_path)),
        )
        for name in ("a", "b")
    )
    assert one.id != other.id
