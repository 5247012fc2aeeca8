"""Which prebuilt module serves a request, and why none does."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from be_runtime import errors, own_files
from be_runtime.load import identity, prebuilt
from be_runtime.request import arguments, build_tools, options
from be_runtime.signature import SourceText
from be_runtime.store import artifact, cache, eviction, keys
from be_runtime.store.index import IMAGES, INDEX, CodeImage, Handlers, ModuleRecord, render_contents, serves
from be_toolchain import arch, values
from tests.support.accounts import STRANGER, needs_root, open_place

__all__ = ["open_place"]  # a fixture

REQUEST = arguments.cuda_request("kernels", arguments.inline_units("kernels", "void f();", "sources"), None)
prebuilt_query = prebuilt.prebuilt_query
KEY = prebuilt_query(REQUEST)
FUNCTIONS = {"f": Handlers("be_f", "be_f_graph")}

Fill = Callable[..., Path]


def find(folder: Path, wanted: prebuilt.PrebuiltQuery = KEY, archs: str = "") -> artifact.Artifact | None:
    return prebuilt.PrebuiltFolder(folder, arch.parse_archs(archs) if archs else ()).get(wanted)


def explain(folder: Path, wanted: prebuilt.PrebuiltQuery = KEY, archs: str = "") -> str:
    return prebuilt.PrebuiltFolder(folder, arch.parse_archs(archs) if archs else ()).explain(wanted)


@pytest.fixture
def header(tmp_path: Path) -> Path:
    path = tmp_path / "author.h"
    path.write_text("#define N 1\n")
    return path


@pytest.fixture
def fill(tmp_path: Path, header: Path) -> Fill:
    """Builds modules into a cache with some compiler, and exports all of them."""
    store, folder = cache.Cache(tmp_path / "cache"), tmp_path / "prebuilt"

    def run(*archs: str, request: options.BuildRequest = REQUEST, version: str = "12.2.0") -> Path:
        cxx = values.HostCompiler(Path("/usr/bin/g++"), "gcc", version, "x86_64", "PATH")
        for text in archs:
            image = CodeImage("library", "CUDA", 0, tuple(map(str, arch.parse_archs(text))))

            def build(staging: Path, image: CodeImage = image) -> cache.BuildOutput:
                (staging / "module.so").write_bytes(b"code")
                record = ModuleRecord("cuda", "", render_contents(FUNCTIONS), {})
                return cache.BuildOutput(
                    artifact.keep_library(staging, "module.so", image, {request.name: record}), (header,)
                )

            tools = build_tools.BuildTools(
                cxx=cxx, cuda=None, archs=arch.parse_archs(text), ffi_include=Path("/site/jaxlib/include")
            )
            store.get_or_build(identity.module_key(request, tools, values.Toolchain(cxx=cxx)), build)
        prebuilt.export(store, folder)
        return folder

    return run


SERVING = (
    *(("9.0", "9.0"), ("8.0", "8.6"), ("9.0a", "9.0"), ("10.0f", "10.3"), ("8.0,9.0", "8.6,9.0")),
    ("8.0", "9.0"),  # by its PTX
)
NOT_SERVING = (
    *(("8.6", "8.0"), ("9.0a", "10.0"), ("10.0a", "10.3"), ("9.0", "9.0a"), ("10.0f", "12.0"), ("9.0", "8.6,9.0")),
    ("7.5,12.0", "8.6"),  # there is PTX for 12.0 only
)


@pytest.mark.parametrize(("built", "wanted"), [*SERVING, *NOT_SERVING])
def test_code_serves_the_devices_that_can_run_it(built: str, wanted: str):
    assert serves(arch.parse_archs(built), arch.parse_archs(wanted)) is ((built, wanted) in SERVING)


def test_a_module_is_found_whatever_compiler_made_it_and_the_one_for_the_device_is_taken(fill: Fill):
    folder = fill("7.5", "9.0a", version="99.0")
    found = find(folder, archs="9.0a")
    assert found is not None
    assert found.where.endswith("sm_90a")
    assert found.image(found.table.image) == b"code"
    assert ModuleRecord(**found.table.modules["kernels"]).contents() == FUNCTIONS
    assert find(folder) is not None, "any module serves where nothing says what it runs on"
    assert all(words in explain(fill("9.0"), archs="7.0") for words in ("for sm_90", "sm_70"))
    assert explain(folder, prebuilt_query(REQUEST._replace(name="strange"))).endswith("no module has the name strange")


def test_exporting_again_keeps_one_copy_that_every_user_can_read(fill: Fill):
    before = os.umask(0o077)
    try:
        folder = fill("9.0")
    finally:
        os.umask(before)
    written = sorted(folder.rglob("*"))
    assert all(path.stat().st_mode & 0o004 for path in (folder, *written))
    assert sorted(fill("9.0").rglob("*")) == written


def test_code_for_one_cpu_is_not_exported(fill: Fill):
    native = REQUEST._replace(compile=options.CompileOptions(native="a1"))
    with pytest.raises(errors.CacheError, match="kernels: compiled with native=True"):
        fill("9.0", request=native)


@pytest.mark.parametrize(
    ("changed", "label"),
    [
        (REQUEST._replace(compile=options.CompileOptions(use_fast_math=True)), "use_fast_math"),
        (REQUEST._replace(compile=options.CompileOptions(active="positive")), "active"),
        (REQUEST._replace(functions=["g"]), "functions"),
        (REQUEST._replace(language="cpp"), "language"),
    ],
)
def test_another_request_finds_nothing_and_is_told_what_differs(fill: Fill, changed: options.BuildRequest, label: str):
    folder, wanted = fill("9.0"), prebuilt_query(changed)
    assert find(folder, wanted) is None
    assert f"kernels was built with other {label}" in explain(folder, wanted)


def test_another_release_finds_it_and_a_later_abi_says_what_to_update(fill: Fill, monkeypatch: pytest.MonkeyPatch):
    folder = fill("9.0")
    releases = iter(["another release"])
    monkeypatch.setattr(identity, "own_code_digest", lambda: next(releases, "this release"))
    assert find(folder, prebuilt_query(REQUEST)) is not None
    (index,) = folder.rglob(INDEX)
    index.write_text(index.read_text().replace(f'"abi": {own_files.ABI}', f'"abi": {own_files.ABI + 1}'))
    assert find(folder) is None
    assert "update brainevent-toolchain here" in explain(folder)


def test_the_authors_folders_may_be_elsewhere(fill: Fill, tmp_path: Path):
    def request(folder: Path) -> options.BuildRequest:
        unit = options.Unit(stem="a", sources=(SourceText(str(folder / "a.cu"), "void f();"),), path=folder / "a.cu")
        return REQUEST._replace(units=(unit,), compile=options.CompileOptions(include_paths=(folder / "include",)))

    folder = fill("9.0", request=request(tmp_path / "here"))
    assert find(folder, prebuilt_query(request(tmp_path / "there"))) is not None


def test_what_another_release_left_in_the_cache_is_not_exported(fill: Fill, monkeypatch: pytest.MonkeyPatch):
    releases = iter(["another release"])
    monkeypatch.setattr(identity, "own_code_digest", lambda: next(releases, "this release"))
    with pytest.raises(errors.CacheError, match="nothing to export"):
        fill("9.0")


def _reading(header: Path) -> options.BuildRequest:
    return REQUEST._replace(compile=options.CompileOptions(include_paths=(header.parent,)))


@pytest.mark.parametrize("way", ["folder", "flag"])
def test_a_changed_header_makes_a_module_stale(fill: Fill, header: Path, way: str):
    by_flag = REQUEST._replace(compile=options.CompileOptions(cflags=(f"-include={header}",)))
    request = _reading(header) if way == "folder" else by_flag
    folder, wanted = fill("9.0", request=request), prebuilt_query(request)
    assert find(folder, wanted) is not None
    header.write_text("#define N 2\n")
    assert find(folder, wanted) is None
    assert f"{header} changed" in explain(folder, wanted)


IN_ITS_PLACE: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("kind", IN_ITS_PLACE)
def test_a_header_that_is_not_there_does_not_matter_nor_what_is_no_file_in_its_place(
    fill: Fill, header: Path, kind: str
):
    """It may be where anyone can put one, and a pipe or a device would never end."""
    request = _reading(header)
    folder = fill("9.0", request=request)
    header.unlink()
    IN_ITS_PLACE[kind](header)
    assert find(folder, prebuilt_query(request)) is not None


def test_a_damaged_library_is_never_loaded(fill: Fill):
    folder = fill("9.0")
    (library,) = folder.rglob("*.so")
    library.write_bytes(b"cod")
    assert find(folder) is None
    assert "is damaged" in explain(folder)


@pytest.mark.parametrize(
    "request_", [None, "x", "{}", "[]", '{"kind": 7, "fields": []}', '{"kind": "\\ud800", "fields": []}']
)
def test_a_record_or_a_request_that_means_nothing_is_passed_over_and_named(fill: Fill, request_: str | None):
    folder = fill("9.0")
    (record,) = folder.rglob(INDEX)
    index = json.loads(record.read_text())
    index["modules"]["kernels"]["request"] = request_
    record.write_text("{}" if request_ is None else json.dumps(index))
    assert find(folder) is None
    assert "has a damaged index" in explain(folder)


LEVELS = ("", "kernels", "kernels/*", f"kernels/*/{INDEX}", f"kernels/*/{IMAGES}", f"kernels/*/{IMAGES}/*.so")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", [0o775, 0o1777, pytest.param(0, marks=needs_root)])
def test_every_level_that_others_can_write_or_own_is_refused(fill: Fill, level: str, mode: int):
    folder = fill("9.0")
    (place,) = folder.glob(level) if level else (folder,)
    words = rf"can be written by other users \(mode {mode:o}\)"
    if mode:
        place.chmod(mode)
    else:
        os.chown(place, STRANGER, STRANGER)
        words = f"{place} belongs to another user"
    with pytest.raises(errors.CacheError, match=words) as caught:
        find(folder)
    assert caught.value.hints[0] == f"chmod -R go-w {place}" or not mode


@needs_root
def test_a_link_of_another_user_is_refused_and_ones_own_is_followed(fill: Fill, tmp_path: Path):
    (tmp_path / "link").symlink_to(fill("9.0"))
    assert find(tmp_path / "link") is not None
    os.chown(tmp_path / "link", STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(errors.CacheError, match="link is a symbolic link made by another user"):
        find(tmp_path / "link")


def test_a_folder_that_others_could_exchange_is_refused(fill: Fill, open_place: Path):
    (open_place / "open").mkdir()
    (open_place / "open").chmod(0o777)
    folder = shutil.copytree(fill("9.0"), open_place / "open" / "prebuilt")
    with pytest.raises(
        errors.CacheError, match=f"{folder} can't be trusted: {open_place}/open can be written"
    ) as caught:
        find(folder)
    assert f"BE_SAFE_FOLDERS={open_place}/open" in caught.value.hints[0]
    (open_place / "open").chmod(0o755)
    assert find(folder) is not None


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path):
    with pytest.raises(errors.CacheError, match="BE_PREBUILT_DIR"):
        find(tmp_path / "nowhere")


class ClearedWhile(cache.Cache):
    """A cache that another process clears while its entries are exported."""

    def entries(self) -> Iterator[eviction.EntryInfo]:
        for info in super().entries():
            if self.root.name == "listed":
                self.clear()
            yield info

    def get(self, key: keys.CacheKey) -> cache.Entry | None:
        found = super().get(key)
        if self.root.name == "found":
            self.clear()
        return found


@pytest.mark.parametrize("moment", ["listed", "found"])
def test_modules_that_are_removed_meanwhile_are_left_out(fill: Fill, tmp_path: Path, moment: str):
    fill("8.0")
    (tmp_path / "cache").rename(tmp_path / moment)
    with pytest.raises(errors.CacheError, match="there is nothing to export"):
        prebuilt.export(ClearedWhile(tmp_path / moment), tmp_path / "out")


def test_an_empty_cache_and_a_folder_that_cannot_be_made_are_named(fill: Fill, tmp_path: Path):
    with pytest.raises(errors.CacheError, match="nothing to export"):
        prebuilt.export(cache.Cache(tmp_path / "empty"), tmp_path / "out")
    fill("9.0")
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.CacheError, match="file/kernels can't be written: Not a directory"):
        prebuilt.export(cache.Cache(tmp_path / "cache"), tmp_path / "file")
