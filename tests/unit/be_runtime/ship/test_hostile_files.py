"""Files that were made to harm: we neither wait for one nor take in gigabytes, and we name it."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import be_runtime
from be_runtime.cli.main import main
from be_runtime.errors import ArgumentError, LoadError, SourceNotFoundError
from be_runtime.jax.exporting import read_program
from be_runtime.load.prebuilt import PrebuiltFolder, prebuilt_query
from be_runtime.request import arguments, options
from be_runtime.ship import declaration, package, show
from be_runtime.store import artifact, signing
from be_runtime.store.index import LARGEST_INDEX, CodeImage, ImageTarget, Index, image_file, parse_index, render_index
from be_runtime.tune.winners import write_package
from be_toolchain.find.record import load_record, record_path
from be_toolchain.machine import local_system, trust, zips
from tests.support.hostile_files import KINDS, plant, refused_at_once

NAME = "be_hostile_files"
RAW = declaration.read_table("k", {"source": "k.cu", "signature": "", "grid": 1, "block": 1})
WANTED = prebuilt_query(arguments.cpp_request("ops", (options.Unit(stem="ops", sources=()),), None))
PREBUILT = f"prebuilt/ops/{WANTED.key.digest[:32]}-host/index.json"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package with kernels, beside other files that are read."""
    folder = tmp_path / NAME
    index = render_index(Index("x86_64", {}))
    files = {"__init__.py": "", "kernels.toml": '[modules.ops]\nsources = "ops.cc"\n', PREBUILT: index}
    for name, text in {**files, "_kernels/index.json": index}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path / "cache"))
    yield folder
    sys.modules.pop(NAME, None)


def load_prebuilt(root: Path) -> None:
    assert PrebuiltFolder(root / "prebuilt").get(WANTED) is None
    raise LoadError(PrebuiltFolder(root / "prebuilt").explain(WANTED))


def run(*words: str | Path) -> None:
    if main([*map(str, words)]) != 0:
        raise ArgumentError("the command has said why")


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a source": ("ops.cc", lambda root: arguments.file_units(root / "ops.cc")),
    "a source, when it is loaded": ("ops.cc", lambda root: be_runtime.load_cpp_file(root / "ops.cc")),
    "a raw kernel's source": ("k.cu", lambda root: declaration.read_source("k", RAW, root)),
    "a declaration": ("kernels.toml", lambda _root: package.find_package(NAME).declaration()),
    "a package's index": ("_kernels/index.json", lambda _root: dir(be_runtime.package_kernels(NAME))),
    "a bundle's index": ("_kernels/index.json", lambda root: artifact.open_folder(root / "_kernels")),
    "a prebuilt module's index": (PREBUILT, load_prebuilt),
    "a package's choices": ("tuned.json", lambda root: write_package(root, ())),
    "an exported program": ("program.be", lambda root: be_runtime.load_exported(root / "program.be")),
    "show": ("program.be", lambda root: run("show", root / "program.be")),
    "show of a folder": ("_kernels/index.json", lambda root: run("show", root)),
    "cache import": ("a.zip", lambda root: run("cache", "import", root / "a.zip")),
    "a private key": ("a.key", lambda root: signing.read_signer(root / "a.key", "--key")),
    "public keys": ("a.pub", lambda root: signing.read_verifier(str(root / "a.pub"), "--public-key")),
}


@pytest.mark.parametrize("reader", READERS)
def test_it_is_refused_at_once_and_named(root: Path, reader: str, capsys: pytest.CaptureFixture[str]):
    """A folder in the place of some files may hold a bundle, or is a package without the file."""
    name, read = READERS[reader]
    if "key" in reader:
        pytest.importorskip("cryptography")
    for kind in KINDS[:2] if name.endswith((".toml", ".json", ".be")) else KINDS:
        path = plant(root / name, kind)
        with refused_at_once(), pytest.raises((ArgumentError, LoadError, SourceNotFoundError)) as caught:
            read(root)
        text = f"{caught.value} {capsys.readouterr().err}"
        assert path.name in text or NAME in text
        assert "internal error" not in text


def test_an_index_that_others_may_write_is_not_opened_and_a_toolchains_record_that_is_none_not_read(root: Path):
    for kind in KINDS:
        with refused_at_once():
            assert load_record(plant(record_path(root, []), kind).parent, [], local_system.LocalSystem()) is None
    for kind in KINDS[:2]:
        plant(root / PREBUILT, kind).chmod(0o666)
        with refused_at_once(), pytest.raises(be_runtime.CacheError, match="can be written by other users"):
            PrebuiltFolder(root / "prebuilt").get(WANTED)
        with refused_at_once():
            assert "can be written by other users" in PrebuiltFolder(root / "prebuilt").explain(WANTED)


CODE = b"code" * 2**18
DIGEST = hashlib.sha256(CODE).hexdigest()
Info = tuple[tuple[str, int], ...]
INDEX = Index("x86_64", {DIGEST: CodeImage("library", "cpu", len(CODE))}, program={"function": "f"})


def zipped(index: str = render_index(INDEX), program: bytes = b"program", info: Info = ()) -> bytes:
    """Return a program as releases before the artifact's file wrote it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(image_file(DIGEST, INDEX.images[DIGEST]), CODE, zipfile.ZIP_STORED)
        archive.writestr("program.stablehlo", program)
        archive.writestr("index.json", index)
        for name, value in info:
            setattr(archive.getinfo("program.stablehlo"), name, value)
    return out.getvalue()


def test_what_was_written_is_opened():
    for data in (artifact.pack(INDEX, {DIGEST: CODE}), zipped()):
        assert artifact.unpack(data, "here").image(DIGEST) == CODE
    older = artifact.unpack(zipped(), "here")
    assert older.image(older.table.program["image"]) == b"program"


def test_a_file_that_is_no_artifact_or_a_zip_of_very_many_files_is_no_program():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", b"")
        archive.filelist *= zips.MOST_FILES + 1
    none = "is not a complete exported program"
    for data, words in (
        (b"", none),
        (b"PK\3\4", "is damaged"),
        (b"no zip at all", none),
        (out.getvalue(), "is damaged"),
    ):
        with refused_at_once(), pytest.raises(LoadError, match=words):
            artifact.unpack(data, "here")


@pytest.mark.parametrize(
    ("unit", "times", "info", "words"),
    [
        (b"\0", trust.LARGE + 1, (), f"it would have {trust.LARGE + 1} bytes"),
        (os.urandom(4096) + bytes(4096 * 13), 1200, (), r"it would have \d+ bytes"),  # however well it is packed
        (b"\0", trust.LARGE + 1, (("file_size", 10),), "Bad CRC"),
        (b"program", 1, (("flag_bits", 1),), r"here is damaged: the zip can't be read: File .* is encrypted"),
    ],
    ids=["large", "packed", "says less", "encrypted"],
)
def test_a_program_that_unpacks_to_gigabytes_is_damage(unit: bytes, times: int, info: Info, words: str):
    data = zipped(program=unit * times, info=info)
    with refused_at_once(most_bytes=64 << 20), pytest.raises(LoadError, match=words):
        artifact.unpack(data, "here")


def test_an_index_of_more_than_it_may_have_is_neither_written_nor_read():
    targets = {f"be.{DIGEST[:32]}.f{n}": ImageTarget(DIGEST, "cpu", {"execute": "f"}) for n in range(30_000)}
    with pytest.raises(ArgumentError, match="an index of more than 4 MiB"):
        render_index(INDEX._replace(targets=targets))
    with refused_at_once(), pytest.raises(LoadError, match="it has more than 4 MiB"):
        parse_index("[" * (LARGEST_INDEX + 1), "here")
    with pytest.raises(LoadError, match=r"the zip can't be read: it would have \d+ bytes"):
        artifact.unpack(zipped(index=" " * (LARGEST_INDEX + 1)), "here")


@pytest.mark.parametrize("data", [b"", b"hello", b"\0" * 4096], ids=["empty", "text", "zeros"])
def test_a_program_that_is_none_is_an_error_of_ours(data: bytes):
    with pytest.raises(LoadError, match=r"can't read the program, which JAX 0\.6\.0 exported"):
        read_program(data, {"jax": "0.6.0", "devices": 1})


def test_an_image_in_a_wheel_is_not_unpacked_to_gigabytes(tmp_path: Path):
    size = trust.LARGE + 1
    digest = hashlib.sha256(bytes(size)).hexdigest()
    index = Index("x86_64", {digest: CodeImage("library", "cpu", size)})
    with zipfile.ZipFile(tmp_path / "a.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("pkg/_kernels/index.json", render_index(index))
        wheel.writestr(f"pkg/_kernels/{image_file(digest, index.images[digest])}", bytes(size))
    with refused_at_once(most_bytes=32 << 20), pytest.raises(LoadError, match=f"it would have {size} bytes"):
        show.describe_file(tmp_path / "a.whl")
    with pytest.raises(LoadError, match="damaged index"):
        parse_index(render_index(Index("x86_64", {digest: CodeImage("library", "cpu", 1 << 40)})), "here")
