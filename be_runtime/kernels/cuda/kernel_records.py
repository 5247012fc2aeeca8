"""Kernels in the index of a bundle: a row for each, which names its images by content. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from be_runtime.bundle.index import CodeImage
from be_runtime.kernels.cuda.describe import Form, Kernel, KernelImage, content_id
from be_runtime.xla.jax_port import PLATFORMS
from be_toolchain.arch import Arch

Images = dict[str, tuple[CodeImage, bytes]]
"""Images by their hashes, with their bytes."""


def kernel_record(kernel: Kernel) -> tuple[str, dict[str, Any], Images]:
    """Describe a kernel for an index: its id, which is of its content alone, its row and its images.

    Examples
    --------
    >>> from be_toolchain.arch import Arch
    >>> id, row, images = kernel_record(Kernel("", "scale", (KernelImage(Arch(9, 0), "scale", b"code"),)))
    >>> row["images"][0]["arch"], [image.kind for image, _ in images.values()]
    ('9.0', ['cubin'])
    """
    digests = [hashlib.sha256(image.data).hexdigest() for image in kernel.images]
    rows = [
        {name: value for name, value in image._asdict().items() if name != "data"}
        | {"image": digest, "arch": str(image.arch), "form": int(image.form)}
        for digest, image in zip(digests, kernel.images, strict=True)
    ]
    images: Images = {}
    for digest, image in zip(digests, kernel.images, strict=True):
        described = CodeImage(
            "ptx" if image.is_ptx else "cubin", PLATFORMS["cuda"], len(image.data), (str(image.arch),)
        )
        images[digest] = described, image.data
    return content_id(kernel.images), {"name": kernel.name, "images": rows}, images


def kernel_of(id_: str, record: Mapping[str, Any], read: Callable[[str], bytes]) -> Kernel:
    """Read a kernel back.

    Parameters
    ----------
    id_ : str
    record : mapping
        Its row.
    read : callable
        Function that returns the bytes of an image by its hash.
    """
    images = [
        KernelImage(**{name: value for name, value in row.items() if name != "image"}, data=read(row["image"]))
        for row in record["images"]
    ]
    typed = [image._replace(arch=Arch.parse(str(image.arch)), form=Form(image.form)) for image in images]
    return Kernel(id_, record["name"], tuple(typed))


def archs_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """List the architectures of a kernel's machine code, and ``"9.0+PTX"`` where there is code for later ones.

    Examples
    --------
    >>> archs_of({"images": [{"arch": "8.0", "is_ptx": False}, {"arch": "9.0", "is_ptx": True}]})
    ('8.0', '9.0+PTX')
    """
    return tuple(dict.fromkeys(row["arch"] + "+PTX" * row["is_ptx"] for row in record["images"]))


def lacking(record: Mapping[str, Any], devices: tuple[Arch, ...]) -> str:
    """Return why a kernel's code runs on no device of some architectures; empty if it runs on one, or there is none.

    Examples
    --------
    >>> record = {"images": [{"arch": "8.0", "is_ptx": False}]}
    >>> lacking(record, (Arch(8, 6),))
    ''
    >>> lacking(record, (Arch(9, 0),))
    'it has code for 8.0, and the GPU here is 9.0'
    """
    built = [(Arch.parse(row["arch"]), row["is_ptx"]) for row in record["images"]]
    if not devices or any(_serves(arch, is_ptx, device) for device in devices for arch, is_ptx in built):
        return ""
    return f"it has code for {', '.join(archs_of(record))}, and the GPU here is {', '.join(map(str, devices))}"


def _serves(arch: Arch, is_ptx: bool, device: Arch) -> bool:
    if arch.suffix == "a":
        return device.base == arch.base
    return device.base >= arch.base and (is_ptx or device.major == arch.major)
