"""Whatever stands in the place of a file that we read, we neither wait for it nor take in gigabytes, and we name it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import be_runtime
from be_runtime.bundle.index import Index, render_index
from be_runtime.bundle.mapped_images import open_folder
from be_runtime.cli.main import main
from be_runtime.errors import ArgumentError, LoadError, SourceNotFoundError
from be_runtime.load import prebuilt
from be_runtime.request.arguments import cpp_request, file_units
from be_runtime.request.options import Unit
from be_runtime.sharing.signing import read_signer, read_verifier
from be_runtime.ship.kernel_tables import read_source, read_table
from be_runtime.ship.package import find_package
from be_runtime.tune.winners import write_package
from be_toolchain.find.record import load_record, record_path
from be_toolchain.machine.local_system import LocalSystem
from tests.support.hostile_files import KINDS, plant, refused_at_once

NAME = "be_hostile_files"
WANTED = prebuilt.wanted_of(cpp_request("ops", (Unit(stem="ops", sources=()),), None))
PREBUILT = f"prebuilt/ops/{WANTED.key.digest[:32]}-host/index.json"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package with kernels, beside other files that are read."""
    folder = tmp_path / NAME
    for name, text in {
        "__init__.py": "",
        "kernels.toml": '[modules.ops]\nsources = "ops.cc"\n',
        "_kernels/index.json": render_index(Index("x86_64", {})),
        PREBUILT: render_index(Index("x86_64", {})),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path / "cache"))
    yield folder
    sys.modules.pop(NAME, None)


def load_prebuilt(root: Path) -> None:
    assert prebuilt.find(root / "prebuilt", WANTED, ()) is None
    raise LoadError(prebuilt.explain(root / "prebuilt", WANTED, ()))


def run(*words: str | Path) -> None:
    if main([*map(str, words)]) != 0:
        raise ArgumentError("the command has said why")


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a source": ("ops.cc", lambda root: file_units(root / "ops.cc")),
    "a source, when it is loaded": ("ops.cc", lambda root: be_runtime.load_cpp_file(root / "ops.cc")),
    "a raw kernel's source": (
        "k.cu",
        lambda root: read_source(
            "k", read_table("k", {"source": "k.cu", "signature": "", "grid": 1, "block": 1}), root
        ),
    ),
    "a declaration": ("kernels.toml", lambda _root: find_package(NAME).declaration()),
    "a package's index": ("_kernels/index.json", lambda _root: [*find_package(NAME).bundles()]),
    "a bundle's index": ("_kernels/index.json", lambda root: open_folder(root / "_kernels")),
    "a prebuilt module's index": (PREBUILT, load_prebuilt),
    "a package's choices": ("tuned.json", lambda root: write_package(root, ())),
    "an exported program": ("program.be", lambda root: be_runtime.load_exported(root / "program.be")),
    "show": ("program.be", lambda root: run("show", root / "program.be")),
    "show of a folder": ("_kernels/index.json", lambda root: run("show", root)),
    "cache import": ("a.zip", lambda root: run("cache", "import", root / "a.zip")),
    "a private key": ("a.key", lambda root: read_signer(root / "a.key", "--key")),
    "public keys": ("a.pub", lambda root: read_verifier(str(root / "a.pub"), "--public-key")),
}


# A folder in the place of these is one that may hold a bundle, or a package without the file.
CASES = [
    (reader, kind)
    for reader, (name, _) in READERS.items()
    for kind in KINDS
    if kind != "folder" or not name.endswith((".toml", ".json", ".be"))
]


@pytest.mark.parametrize(("reader", "kind"), CASES)
def test_it_is_refused_at_once_and_named(root: Path, reader: str, kind: str, capsys: pytest.CaptureFixture[str]):
    name, read = READERS[reader]
    if "key" in reader:
        pytest.importorskip("cryptography")
    path = plant(root / name, kind)
    with refused_at_once(), pytest.raises((ArgumentError, LoadError, SourceNotFoundError)) as caught:
        read(root)
    text = f"{caught.value} {capsys.readouterr().err}"
    assert path.name in text or NAME in text
    assert "internal error" not in text


@pytest.mark.parametrize("kind", ["pipe", "gigabytes"])
def test_an_index_that_others_may_write_is_not_opened(root: Path, kind: str):
    plant(root / PREBUILT, kind).chmod(0o666)
    with refused_at_once(), pytest.raises(be_runtime.CacheError, match="can be written by other users"):
        prebuilt.find(root / "prebuilt", WANTED, ())
    with refused_at_once():
        assert "can be written by other users" in prebuilt.explain(root / "prebuilt", WANTED, ())


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_of_a_toolchain_that_can_not_be_read_is_none(tmp_path: Path, kind: str):
    plant(record_path(tmp_path, []), kind)
    with refused_at_once():
        assert load_record(tmp_path, [], LocalSystem()) is None
