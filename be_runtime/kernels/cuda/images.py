"""Compiled kernels as they are kept: in the cache, a file for each image and a list of them; in bundles, by content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from be_runtime.bundle.archs import runs_on
from be_runtime.bundle.index import CodeImage, typed
from be_runtime.cache import BuildOutput, CacheKey, Entry, make_key
from be_runtime.errors import BuildError
from be_runtime.kernels.cuda.describe import ID_DIGITS, Form, Kernel, KernelImage, content_id
from be_runtime.load.find_or_build import find_or_build, say_output, say_waiting, shareable, use_entry
from be_runtime.load.identity import Field
from be_runtime.load.session import Session
from be_runtime.settings import require_jit
from be_runtime.xla.jax_port import PLATFORMS
from be_toolchain.arch import Arch

if TYPE_CHECKING:
    from be_runtime.sharing.travelling_entry import Shareable

_LIST = "images.json"
_OUTPUTS = (_LIST, "image[0-9]*")

Images = dict[str, tuple[CodeImage, bytes]]
"""Images by their hashes, with their bytes."""


class Compiled(NamedTuple):
    """A compiler's output and the files it read, as in `BuildOutput`.

    Parameters
    ----------
    compiler : tuple of str
        The compiler's own description of itself, which does not depend on its path.
    """

    images: tuple[KernelImage, ...]
    dependencies: tuple[Path, ...] = ()
    others: tuple[str, ...] = ()
    absent: tuple[Path | str, ...] = ()
    unknown: tuple[str, ...] = ()
    compiler: tuple[str, ...] = ()


class Origin(NamedTuple):
    """The part of a kernel's id that is about its source.

    The id is part of the JAX program, which must be the same on every host. So it consists of contents, of the
    compiler's description of itself, and of names below the author's folders. The cache's key has the paths too, and
    the version of our own code.

    Parameters
    ----------
    key : CacheKey
        Everything it is compiled from, except the files that are read.
    folders : tuple of Path
        Folders in which the author's headers are searched, in order.
    compilers : callable
        Returns fields that say what the compilers are by content; the cache's key has their paths in ``compilers``.
    """

    key: CacheKey
    folders: tuple[Path, ...] = ()
    compilers: Callable[[], tuple[Field, ...]] = tuple


def obtain_kernel(
    key: CacheKey, origin: Origin, compile_now: Callable[[Path], Compiled], name: str, session: Session
) -> Kernel:
    """Return the kernel of a key: from the cache, or compiled now, once however many processes ask for it.

    Parameters
    ----------
    key : CacheKey
        Key of the kernel in this machine's cache.
    origin : Origin
        Source of its id.
    compile_now : callable
        Function that compiles the kernel, called with an empty folder to work in.

    Raises
    ------
    CacheError
        The cache's folder can't be used, or another process takes too long to compile the same kernel.
    """

    def build(staging: Path) -> BuildOutput:
        require_jit(session.settings, name)
        try:
            compiled = compile_now(staging)
        except BuildError as error:
            if session.settings.verbose:
                say_output(error)
            raise
        names = write_images(compiled, staging)
        read, others, absent = compiled.dependencies, compiled.others, compiled.absent
        return BuildOutput(names, read, others, absent, unknown=compiled.unknown)

    def find(*, force: bool = False) -> Entry:
        share, on_wait = partial(share_kernel, key, origin, session), partial(say_waiting, key.name)
        return find_or_build(session, session.module_store, key, build, share, force=force, on_wait=on_wait)

    def read(entry: Entry) -> Kernel:
        listed = json.loads(entry.output(_LIST).read_bytes())
        return Kernel(_identify(origin, listed["compiler"], entry), name, read_images(listed["images"], entry))

    return use_entry(find, read, session, partial(find, force=True))


def share_kernel(key: CacheKey, origin: Origin, session: Session) -> Shareable:
    """Return the part of a kernel's entry that other machines can use."""
    folders = [*map(str, origin.folders)]  # the options have no paths, and one may lie in another
    contents = make_key(key.kind, ("compilers", ""), ("folders", folders), *origin.compilers())
    fields = {**dict(key.fields), **dict(origin.key.fields), **dict(contents.fields)}
    return shareable(CacheKey(key.kind, tuple(sorted(fields.items()))), session, _OUTPUTS, origin.folders)


def _identify(origin: Origin, compiler: Sequence[str], entry: Entry) -> str:
    """Hash the inputs of a kernel into its id, and its outputs too if the inputs are uncertain."""
    manifest = entry.manifest
    key = make_key(
        "kernel-id",
        ("origin", origin.key.digest),
        ("compiler", compiler),
        ("read", sorted(_contents(manifest.dependencies.paths, manifest.dependencies.sha256s, origin.folders))),
        ("made", manifest.outputs.sha256s if manifest.uncertain else ()),
    )
    return key.digest[:ID_DIGITS]


def _contents(paths: Sequence[str], digests: Sequence[str], folders: Sequence[Path]) -> Iterator[str]:
    """Describe each file that was read by its content and its name: below one of the folders, else its file name."""
    for path, digest in zip(map(Path, paths), digests, strict=True):
        found = ((at, folder) for at, folder in enumerate(folders) if path.is_relative_to(folder))
        at, folder = next(found, (-1, path.parent))
        yield f"{digest} {at} {path.relative_to(folder)}"


def write_images(compiled: Compiled, folder: Path) -> tuple[str, ...]:
    """Write images into a folder, and return the names of the files."""
    images = compiled.images
    names = [f"image{index}.{'ptx' if image.is_ptx else 'cubin'}" for index, image in enumerate(images)]
    for name, image in zip(names, images, strict=True):
        (folder / name).write_bytes(image.data)
    rows = [_row(image) | {"data": name} for name, image in zip(names, images, strict=True)]
    (folder / _LIST).write_text(json.dumps({"compiler": compiled.compiler, "images": rows}), encoding="utf-8")
    return (*names, _LIST)


def read_images(rows: Sequence[dict[str, Any]], entry: Entry) -> tuple[KernelImage, ...]:
    """Read the images that `write_images` wrote."""
    return tuple(_image(row, entry.output(row["data"]).read_bytes()) for row in rows)


def _row(image: KernelImage) -> dict[str, Any]:
    """Return the values of an image for JSON, without its data."""
    row = image._asdict() | {"arch": str(image.arch), "form": int(image.form)}
    del row["data"]
    return row


def _image(row: Mapping[str, Any], data: bytes) -> KernelImage:
    """Make an image of its row, which names its data too; TypeError or ValueError if the row is none."""
    fields = {name: value for name, value in row.items() if name not in ("data", "image")}
    image = KernelImage(**fields, data=data)
    typed(str, image.entry)
    typed(int, image.batch_axis)
    for flag in (image.is_ptx, image.is_cooperative):
        typed(bool, flag)
    return image._replace(arch=Arch.parse(str(image.arch)), form=Form(image.form))


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
    rows = [_row(image) | {"image": digest} for digest, image in zip(digests, kernel.images, strict=True)]
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
    return Kernel(id_, record["name"], tuple(_image(row, read(row["image"])) for row in record["images"]))


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
    if not devices or any(runs_on(arch, device, is_ptx=is_ptx) for device in devices for arch, is_ptx in built):
        return ""
    return f"it has code for {', '.join(archs_of(record))}, and the GPU here is {', '.join(map(str, devices))}"
