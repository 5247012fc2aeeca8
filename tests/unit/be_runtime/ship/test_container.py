"""Files of exported programs that were made to harm: each is refused, at little cost."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Callable

import pytest

from be_runtime.bundle.index import LARGEST_INDEX, CodeImage, ImageTarget, Index, image_file, parse_index, render_index
from be_runtime.errors import ArgumentError, LoadError
from be_runtime.ship.programs.container import _SEAL_BYTES, PROGRAM, _seal, open_container, write_container
from be_runtime.xla.jax_export import read_program
from be_toolchain.machine.trust.regular_file import LARGE
from be_toolchain.machine.trust.zip_files import MOST_FILES
from tests.support.hostile_files import refused_at_once

CODE = b"code" * 2**18
DIGEST = hashlib.sha256(CODE).hexdigest()
INDEX = Index("x86_64", {DIGEST: CodeImage("library", "cpu", len(CODE))}, program={"function": "f"})
Change = Callable[[zipfile.ZipFile], object]


def sealed(index: str = render_index(INDEX), change: Change = lambda _: None, program: bytes = b"program") -> bytes:
    """Return a file with a right seal, if it can be sealed."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(image_file(DIGEST, INDEX.images[DIGEST]), CODE, zipfile.ZIP_STORED)
        archive.writestr(PROGRAM, program)
        archive.writestr("index.json", index)
        change(archive)
        archive.comment = b" " * _SEAL_BYTES
    data = out.getvalue()
    with zipfile.ZipFile(out) as archive:
        return data[:-_SEAL_BYTES] + _seal(archive, memoryview(data))


@pytest.mark.parametrize("program", [b"program", bytes(LARGE + 1)], ids=["small", "large"])
def test_what_was_written_is_opened(program: bytes):
    bundle = open_container(write_container(INDEX, program, {DIGEST: CODE}), "here")
    assert bundle.file(PROGRAM) == program
    assert bundle.image(DIGEST) == CODE


@pytest.mark.parametrize("data", [b"", b"PK\3\4", b"no zip at all"])
def test_a_file_that_is_no_zip_is_no_program(data: bytes):
    with pytest.raises(LoadError, match="is not an exported program"):
        open_container(data, "a.bex")


def lie(archive: zipfile.ZipFile) -> None:
    archive.getinfo(PROGRAM).file_size = 10


def encrypt(archive: zipfile.ZipFile) -> None:
    archive.getinfo(PROGRAM).flag_bits |= 1


@pytest.mark.parametrize(
    ("program", "change", "words"),
    [
        (bytes(LARGE + 1), lambda _: None, f"it would have {LARGE + 1} bytes"),
        ((os.urandom(4096) + bytes(4096 * 13)) * 1200, lambda _: None, r"it would have \d+ bytes"),  # packed well
        (bytes(LARGE + 1), lie, "Bad CRC"),
        (b"program", encrypt, r"program\.stablehlo can't be read: File .* is encrypted"),
    ],
    ids=["larger than any", "packed well", "says less", "encrypted"],
)
def test_a_program_that_unpacks_to_gigabytes_or_not_at_all_is_damage(program: bytes, change: Change, words: str):
    bundle = open_container(sealed(change=change, program=program), "here")
    with refused_at_once(most_bytes=64 << 20), pytest.raises(LoadError, match=words):
        bundle.file(PROGRAM)


def test_a_zip_of_very_many_files_is_not_opened():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", b"")
        archive.filelist *= MOST_FILES + 1
        archive.comment = b"sha256 of all but the images: " + b"0" * 64
    with refused_at_once(), pytest.raises(LoadError, match="is damaged"):
        open_container(out.getvalue(), "here")


def test_an_index_of_more_than_it_may_have_is_neither_written_nor_read():
    targets = {f"be.{DIGEST[:32]}.f{n}": ImageTarget(DIGEST, "cpu", {"execute": "f"}) for n in range(30_000)}
    with pytest.raises(ArgumentError, match="an index of more than 4 MiB"):
        render_index(INDEX._replace(targets=targets))
    with refused_at_once(), pytest.raises(LoadError, match="it has more than 4 MiB"):
        parse_index("[" * (LARGEST_INDEX + 1), "here")
    with pytest.raises(LoadError, match=r"index\.json can't be read: it would have \d+ bytes"):
        open_container(sealed(" " * (LARGEST_INDEX + 1)), "here")


def test_entries_that_share_bytes_are_not_hashed_again_and_again():
    with pytest.raises(ValueError, match=DIGEST):
        sealed(change=lambda archive: archive.filelist.append(archive.filelist[0]))


@pytest.mark.parametrize("data", [b"", b"hello", b"\0" * 4096], ids=["empty", "text", "zeros"])
def test_a_program_that_is_none_is_an_error_of_ours(data: bytes):
    with pytest.raises(LoadError, match=r"can't read the program, which JAX 0\.6\.0 exported"):
        read_program(data, {"jax": "0.6.0", "devices": 1})
