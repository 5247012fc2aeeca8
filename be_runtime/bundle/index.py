"""The index of a bundle: which images it has, and how they are called; see ``docs/format.md``. Pure."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

from be_runtime.abi import ABI, FFI_CLAIM, check_abi
from be_runtime.errors import ArgumentError, BeRuntimeError, LoadError

INDEX, IMAGES = "index.json", "images"
"""Names of the index and of the folder of images in a bundle."""

FORMAT = 1
"""Raised when an older reader would misunderstand the index."""

LARGEST_INDEX = 1 << 22
"""Most bytes of an index: to read 64 MiB of nothing but brackets takes 12 s."""

HASH_DIGITS = 32
"""Hexadecimal digits of an image's hash in the names of its targets."""

Kind = Literal["library", "cubin", "ptx"]
_ENDINGS: dict[Kind, str] = {"library": "so", "cubin": "cubin", "ptx": "ptx"}
_DIGEST = re.compile(r"[0-9a-f]{64}")

T = TypeVar("T")


class CodeImage(NamedTuple):
    """One file of code; its key in the index is the sha256 of its bytes.

    Parameters
    ----------
    kind : {"library", "cubin", "ptx"}
    platform : str
        JAX's name of the platform: ``"cpu"`` or ``"CUDA"``.
    size : int
        In bytes.
    archs : tuple of str
        Architectures of its device code, such as ``"9.0"``.
    baseline : str
        Level of instructions of its host code, such as ``"x86-64-v3"``; empty for that of every such machine.
    """

    kind: Kind
    platform: str
    size: int
    archs: tuple[str, ...] = ()
    baseline: str = ""


class ImageTarget(NamedTuple):
    """An FFI target that an image serves.

    Parameters
    ----------
    image : str
        Hash of the image.
    platform : str
    stages : dict of str to str
        Symbol of the handler for each stage: ``"execute"``, and ``"instantiate"`` where there is one.
    """

    image: str
    platform: str
    stages: Mapping[str, str]


class Index(NamedTuple):
    """The index of a bundle.

    Parameters
    ----------
    machine : str
        Machine of the host code, as ``platform.machine()`` says it.
    images : dict of str to CodeImage
    targets : dict of str to ImageTarget
    kernels : dict
        Kernels that the launcher launches, by id; see `be_runtime.kernels.cuda.describe`.
    modules, functions : dict
        What Python needs for calls, by name; empty in an exported program.
    program : dict
        What an exported program is; empty in a package.
    """

    machine: str
    images: Mapping[str, CodeImage]
    targets: Mapping[str, ImageTarget] = {}
    kernels: Mapping[str, Any] = {}
    modules: Mapping[str, Any] = {}
    functions: Mapping[str, Any] = {}
    program: Mapping[str, Any] = {}


def target_name(image: str, symbol: str) -> str:
    """Return the name of a target: the same in every process, and another one for other code.

    Examples
    --------
    >>> target_name("0123456789abcdef" * 4, "be_ffi_ops_fire")
    'be.0123456789abcdef0123456789abcdef.be_ffi_ops_fire'
    """
    return f"be.{image[:HASH_DIGITS]}.{symbol}"


def image_file(digest: str, image: CodeImage) -> str:
    """Return the path of an image in a bundle.

    Examples
    --------
    >>> image_file("00ff", CodeImage("library", "cpu", 10))
    'images/00ff.so'
    """
    return f"{IMAGES}/{digest}.{_ENDINGS[image.kind]}"


def render_index(index: Index) -> str:
    """Write an index as JSON, the same text for the same index.

    Raises
    ------
    ArgumentError
        It has more kernels than a reader accepts.
    """
    document = {
        "format": FORMAT,
        "abi": ABI,
        "ffi": FFI_CLAIM,
        **index._asdict(),
        "images": {digest: image._asdict() for digest, image in index.images.items()},
        "targets": {name: target._asdict() for name, target in index.targets.items()},
    }
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    if len(text) > LARGEST_INDEX:
        raise ArgumentError(
            f"the kernels have an index of more than {LARGEST_INDEX >> 20} MiB", hints=("split them in two",)
        )
    return text


def parse_index(text: str | bytes, where: str) -> Index:
    """Read an index.

    Parameters
    ----------
    text : str or bytes
    where : str
        Place of the bundle, for messages.

    Raises
    ------
    LoadError
        It is damaged, or of a format or ABI that this release does not read.
    """
    with reading(where):
        if len(text) > LARGEST_INDEX:
            raise ValueError(f"it has more than {LARGEST_INDEX >> 20} MiB")
        document = json.loads(text)
        number, abi = typed(int, document["format"]), typed(int, document["abi"])
    if number != FORMAT:
        side = "update brainevent-toolchain here" if number > FORMAT else "build it again with this release"
        raise LoadError(f"{where} has format {number}, and this be_runtime reads format {FORMAT}", hints=(side,))
    check_abi(abi, where)
    with reading(where):
        images = {digest: _image(digest, row) for digest, row in document["images"].items()}
        return Index(
            machine=typed(str, document["machine"]),
            images=images,
            targets={name: _target(name, row, images) for name, row in document["targets"].items()},
            **{name: typed(dict, document[name]) for name in ("kernels", "modules", "functions", "program")},
        )


def _image(digest: str, row: Mapping[str, Any]) -> CodeImage:
    image = CodeImage(**row)
    typed(int, image.size)
    _texts(image.platform, image.baseline, *typed(list, image.archs))
    if image.kind not in _ENDINGS or not _DIGEST.fullmatch(digest):  # which is the name of a file
        raise ValueError(f"an image {digest!r} of kind {image.kind!r}")
    return image._replace(archs=tuple(image.archs))


def _target(name: str, row: Mapping[str, Any], images: Mapping[str, CodeImage]) -> ImageTarget:
    target = ImageTarget(**row)
    _texts(target.platform, target.stages["execute"], *target.stages.values())
    if images[target.image].kind != "library" or not name.startswith(target_name(target.image, "")):
        raise ValueError(f"the target {name!r} of the image {target.image!r}")
    return target


def _texts(*values: object) -> None:
    for value in values:
        typed(str, value)


def typed(kind: type[T], value: object) -> T:
    """Return a value of an index, whose type must be this one; TypeError if it is another one."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


@contextlib.contextmanager
def reading(where: str) -> Iterator[None]:
    """Say that an index is damaged where a value in it means nothing.

    Raises
    ------
    LoadError
        For such a value; errors of ours pass.
    """
    try:
        yield
    except BeRuntimeError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise LoadError(
            f"{where} has a damaged index: {type(error).__name__}: {error}", hints=("copy, install or build it again",)
        ) from error
