"""What a package may declare, which files its kernels are made from, and how a mistake in it is named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from be_runtime.errors import ArgumentError, SourceNotFoundError, SpecError
from be_runtime.ship.changes import MISSING, changed_source, record_sources
from be_runtime.ship.declaration import Declaration, parse_declaration
from be_runtime.ship.hooks.wheel_kernels import project_table
from be_runtime.ship.kernel_builds import build_function
from be_runtime.ship.kernel_tables import call_options, declared_function, read_table
from be_runtime.ship.links_out import refuse_links_out
from be_runtime.ship.modules import request_of
from be_runtime.ship.package import Package
from be_runtime.ship.package_build import build_package
from tests.support.hostile_files import refused_at_once

MISTAKES = (Path(__file__).parent / "golden" / "mistakes.txt").read_text(encoding="utf-8")
GOOD = """
archs = ["8.0", "9.0"]
[modules.neurons]
sources = "neurons"
functions = ["fire"]
extra_include_paths = ["include"]
[modules.spikes]
sources = ["a.cu", "b/c.cu"]
allow_cuda_graph = false
[kernels.scale]
source = "scale.cu"
block = 256
"""


def parsed(text: str) -> Declaration:
    return parse_declaration(text, "p/kernels.toml", lambda _path: False)


def test_a_declaration_is_read():
    found = parsed(GOOD)
    neurons, spikes = found.modules["neurons"], found.modules["spikes"]
    assert (found.archs, found.kernels["scale"]["block"]) == (("8.0", "9.0"), 256)
    assert (neurons.language, neurons.options) == ("cpp", {"extra_include_paths": ["include"]})
    assert (spikes.language, spikes.sources) == ("cuda", ("a.cu", "b/c.cu"))
    found = parse_declaration(GOOD, "p", lambda path: path == "neurons")
    assert found.modules["neurons"].language == "cuda", "a folder with CUDA files"


def mistake(text: str) -> str:
    with refused_at_once(), pytest.raises(ArgumentError) as caught:
        [read_table(name, table) for name, table in parsed(text).kernels.items()]
    return str(caught.value).rpartition("\nsee ")[0]


def test_a_mistake_is_named():
    texts = [case.partition("\n---\n")[0] for case in MISTAKES.split("===\n")]
    assert "===\n".join(f"{text}\n---\n{mistake(text)}\n" for text in texts) == MISTAKES


@pytest.mark.parametrize(
    ("message", "texts"),
    [
        (
            "' can't be a path: it is too long",
            [f"[modules.a]\nsources = '{path}.cc'" for path in ("x" * 300, "x/" * 1500)],
        ),
        ("' can't be a path: it is too long", [f"[kernels.a]\nsource = '{'x' * 300}'"]),
        ("p/kernels.toml is not TOML", ["modules = ", f"modules = {'9' * 5000}"]),
        ("is not TOML: a line has more than 500 dots", [f"{'a.' * 15_000}a = 1"]),
        ("is not TOML: its values are nested too deeply", [f"a = {'[' * 20_000}"]),
    ],
)
def test_what_would_take_long_or_end_in_an_error_of_pythons_is_named(message: str, texts: list[str]):
    for text in texts:
        assert message in mistake(text)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff", "p/kernels.toml is not TOML: it is not UTF-8"),
        (GOOD.encode("utf-16"), "p/kernels.toml is not TOML: it is not UTF-8"),
        (b"#" * 70_000, "p/kernels.toml can't be read: it is larger than 64 KiB"),
        (None, "the package p has no kernels.toml"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, data: bytes | None, message: str):
    (tmp_path / "pyproject.toml").write_bytes(b"\xff")
    with pytest.raises(ArgumentError, match=r"pyproject\.toml can't be read"):
        project_table(tmp_path)
    if data is not None:
        (tmp_path / "kernels.toml").write_bytes(data)
    with pytest.raises(ArgumentError, match=message):
        Package("p", tmp_path).declaration()


RAW: dict[str, Any] = {"source": "scale.cu", "signature": "arg[n] ret[n]:like(0)", "grid": "ceil(n/256)", "block": 256}


def test_a_kernels_table_has_the_options_of_the_public_function(tmp_path: Path):
    (tmp_path / "scale.cu").write_text("__global__ void scale(const float* x, float* y) {}")
    read = read_table("scale", RAW | {"cluster": 2, "input_output_aliases": {"0": 0}, "use_fast_math": True})
    assert read.launch == {"grid": "ceil(n/256)", "block": 256, "cluster": 2}
    assert read.compiling == {"use_fast_math": True}
    assert call_options(read.call).aliases == ((0, 0),)
    assert declared_function("scale", RAW, tmp_path).__name__ == "scale"


def test_a_build_checks_a_kernel_before_it_compiles_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def require_refused(kind: type[Exception], words: str, table: dict[str, Any]) -> Any:
        session: Any = None
        with pytest.raises(kind, match=words) as caught:
            build_function("k", table, tmp_path, ["9.0"], "", session)
        return caught.value

    (tmp_path / "scale.cu").write_text("__global__ void k(const float* x, float* y) {}")
    require_refused(ArgumentError, r"ordered must be True or False, not 'yes'", RAW | {"ordered": "yes"})
    require_refused(SpecError, r"has 'm', which is not an axis of an input", RAW | {"grid": "m"})
    pytest.importorskip("numba")
    (tmp_path / "needing.py").write_text("import not_installed.part")
    monkeypatch.syspath_prepend(tmp_path)
    table = {"numba": "json:dumps", "signature": "arg[n] ret[n]"}
    require_refused(ArgumentError, r"kernels.k: json:dumps: kernel must be a function decorated with @numba", table)
    words = r"install not_installed where the kernels are built"
    require_refused(SourceNotFoundError, words, table | {"numba": "needing:f"})
    assert require_refused(SourceNotFoundError, "needless", table | {"numba": "needless:f"}).hints == ()


def test_cuda_code_is_not_built_for_no_architecture(tmp_path: Path):
    signature = 'signature = "arg[n] ret[n]"\ngrid = 1\nblock = 32'
    (tmp_path / "kernels.toml").write_text(f'[kernels.scale]\nsource = "scale.cu"\n{signature}')
    with pytest.raises(ArgumentError, match=r"p declares CUDA code \(scale\) and no architecture to build it for"):
        build_package(Package("p", tmp_path))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package's folder, beside another one with files of the same names."""
    for name in ("package/src", "package/include/deep", "outside/deep"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("include/own.h", "../outside/b.cc", "../outside/b.h", "../outside/deep/b.h", "kernels.toml"):
        (tmp_path / "package" / name).write_text("")
    source = "// @BE f arg ret\nvoid f(const BE::Tensor x, BE::Tensor y) {}\n"
    (tmp_path / "package" / "src" / "a.cc").write_text(source)
    return tmp_path / "package"


MODULES = parsed("""
[modules.file]
sources = "src/a.cc"
[modules.folder]
sources = "src"
[modules.headers]
sources = "src/a.cc"
extra_include_paths = ["include"]
""").modules


@pytest.mark.parametrize(
    ("link", "target", "modules"),
    [
        ("src/a.cc", "b.cc", [*MODULES]),
        ("src/b.cc", "b.cc", [*MODULES]),
        ("src/b.h", "b.h", [*MODULES]),
        ("src", "", [*MODULES]),
        ("include", "", ["headers"]),
        ("include/deep/b.h", "b.h", ["headers"]),
        ("include/deep/more", "deep", ["headers"]),
    ],
)
def test_a_link_out_of_the_package_is_refused_by_name(root: Path, link: str, target: str, modules: list[str]):
    aim = root.parent / "outside" / target
    if (root / link).exists():
        (root / link).rename(root / "old")
    (root / link).symlink_to(aim)
    for module in modules:
        with pytest.raises(ArgumentError) as caught:
            request_of("package", root, MODULES[module])
        assert caught.value.message == f"modules.{module}: {link} is a link to {aim}, which is outside the package"


def test_a_kernels_source_is_a_file_of_the_package(root: Path):
    (root / "scale.cu").symlink_to("../outside/b.cc")
    with pytest.raises(ArgumentError, match=r"kernels.scale: scale.cu is a link to .*/b.cc, which is outside"):
        declared_function("scale", RAW, root)
    (root / "scale.cu").unlink()
    with pytest.raises(SourceNotFoundError, match=r"scale.cu can't be read: No such file"):
        declared_function("scale", RAW, root)


def test_links_within_the_package_and_of_the_package_are_fine(root: Path):
    (root / "include" / "own_too.h").symlink_to("own.h")
    (root / "src" / "own.h").symlink_to("../include/own.h")
    (root / "src" / "data.csv").symlink_to(root.parent / "outside" / "b.h")
    (root.parent / "link").symlink_to(root)
    for place in (root, root.parent / "link"):
        for module in MODULES.values():
            request_of("package", place, module)


def test_an_installer_may_make_each_file_a_link_to_its_copy(root: Path, tmp_path: Path):
    installed = tmp_path / "site" / "package"
    (installed / "src").mkdir(parents=True)
    for name in ("kernels.toml", "src/a.cc"):
        (installed / name).symlink_to(root / name)
    refuse_links_out("modules.m", installed, [installed / "src"], [])
    (installed / "src" / "x.cc").symlink_to(tmp_path / "x.cc")
    with pytest.raises(ArgumentError, match=r"src/x\.cc is a link"):
        refuse_links_out("modules.m", installed, [installed / "src"], [])


def test_what_changed_appeared_or_was_added_is_named_and_what_is_gone_is_not(root: Path):
    """The declaration is a source, and files elsewhere are none; a pipe in the place of a source does not block."""
    sources = record_sources(root, [root / "src" / "a.cc", Path(os.__file__)])
    assert sorted(sources) == ["kernels.toml", "src/a.cc"]
    sources |= {"src/a.h": MISSING, "src/": ".cc .cu"}
    assert changed_source(root, sources) == changed_source(None, sources) == ""
    for name in ("src/a.cc", "src/a.h", "src/b.cu", "kernels.toml"):
        before = (root / name).read_text() if (root / name).exists() else None
        (root / name).write_text("edited")
        assert changed_source(root, sources) == name
        (root / name).unlink()
        assert changed_source(root, sources) == ""
        if before is not None:
            (root / name).write_text(before)
    (root / "src" / "a.cc").unlink()
    os.mkfifo(root / "src" / "a.cc")
    assert changed_source(root, sources) == ""
