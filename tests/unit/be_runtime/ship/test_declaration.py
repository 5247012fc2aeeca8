"""What a package may declare, and how a mistake in it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.ship.declaration import parse_declaration
from be_runtime.ship.hooks.wheel_kernels import project_table
from be_runtime.ship.package import Package
from tests.support.hostile_files import refused_at_once

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


def test_a_declaration_is_read():
    found = parse_declaration(GOOD, "p/kernels.toml", lambda _path: False)
    assert found.archs == ("8.0", "9.0")
    assert found.modules["neurons"].language == "cpp"
    assert found.modules["neurons"].options == {"extra_include_paths": ["include"]}
    assert found.modules["spikes"].language == "cuda"
    assert found.modules["spikes"].sources == ("a.cu", "b/c.cu")
    assert found.kernels["scale"]["block"] == 256


def test_a_folder_with_cuda_files_is_a_cuda_module():
    assert parse_declaration(GOOD, "p", lambda path: path == "neurons").modules["neurons"].language == "cuda"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modules = ", "p/kernels.toml is not TOML"),
        (f"modules = {'[' * 5000}", "p/kernels.toml is not TOML"),
        (f"modules = {'9' * 5000}", "p/kernels.toml is not TOML"),
        ("", "declares no kernels"),
        ("[module.a]\nsources = 'a.cc'", "'module' is unknown"),
        ("modules = 3", "modules must hold tables"),
        (
            "[modules.a]\nsource = 'a.cc'",
            "p/kernels.toml: modules.a: 'source' is unknown\nhint: did you mean 'sources'",
        ),
        ("[modules.a]\nsorces = 'b.cc'\nsources = 'a.cc'", "did you mean 'sources'"),
        ("[modules.a]\nfunctions = 'x'", "p/kernels.toml: modules.a needs sources"),
        ("[modules.a]\nsources = []", "needs sources"),
        ("[modules.a]\nsources = 3", "needs sources"),
        ("[modules.a]\nsources = '../a.cc'", "'../a.cc' is outside the package"),
        ("[modules.a]\nsources = '/a.cc'", "'/a.cc' is outside the package"),
        ("[modules.a]\nsources = 'a.cc'\nextra_include_paths = ['../x']", "'../x' is outside the package"),
        ("[modules.a]\nsources = 'a.cc'\nextra_include_paths = 'inc'", "modules.a.extra_include_paths must be a list"),
        ("[kernels.a]\nsource = 'a.cu'\nextra_include_paths = ['../x']", "'../x' is outside the package"),
        ("[kernels.a]\nnumba = 'p:a'\ndtypes = 'float32'", "kernels.a.dtypes must be a list of texts"),
        ("[modules.a]\nsources = 'a.cc'\nnative = true", "'native' is unknown"),
        ("[modules.a]\nsources = 'a.cc'\nextra_cuda_cflags = []", "'extra_cuda_cflags' is unknown"),
        ("archs = '9.0'\n[modules.a]\nsources = 'a.cc'", "archs must be a list of texts"),
        ("[kernels.a]\nblock = 1", "needs one of source, numba, numba_cuda"),
        ("[kernels.a]\nsource = 'a.cu'\nnumba = 'p:a'", "needs one of source, numba, numba_cuda"),
        ("[kernels.a]\nsource = '/a.cu'", "outside the package"),
        ("[modules.a]\nsources = 'a.cc'\n[kernels.a]\nsource = 'a.cu'", "declared as a module and as a kernel"),
    ],
)
def test_a_mistake_is_named(text: str, message: str):
    with pytest.raises(ArgumentError) as caught:
        parse_declaration(text, "p/kernels.toml", lambda _path: False)
    assert message in str(caught.value)


HOSTILE = {
    "NUL": ('[modules.a]\nsources = "a\\u0000.cc"', "'a\\x00.cc' can't be a path: it is too long, or has a NUL"),
    "long name": (f"[modules.a]\nsources = '{'x' * 300}.cc'", "xxx' can't be a path: it is too long"),
    "long path": (f"[modules.a]\nsources = '{'x/' * 1500}.cc'", "/x/' can't be a path: it is too long"),
    "header": ('[modules.a]\nsources = "a.cc"\nextra_include_paths = ["\\u0000"]', "'\\x00' can't be a path"),
    "kernel": (f"[kernels.a]\nsource = '{'x' * 300}.cu'", "can't be a path: it is too long"),
    "dots": (f"{'a.' * 15_000}a = 1", "is not TOML: a line has more than 500 dots"),
    "nest": (f"a = {'[' * 20_000}", "is not TOML: its values are nested too deeply"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_would_take_long_or_end_in_an_error_of_pythons_is_named(kind: str):
    text, message = HOSTILE[kind]
    with refused_at_once(1.0), pytest.raises(ArgumentError) as caught:
        parse_declaration(text, "p/kernels.toml", lambda path: Path(path).is_dir())
    assert message in str(caught.value)


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
    if data is not None:
        (tmp_path / "kernels.toml").write_bytes(data)
    with pytest.raises(ArgumentError, match=message):
        Package("p", tmp_path).declaration()


def test_a_project_whose_file_is_no_text_is_named(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_bytes(b"\xff")
    with pytest.raises(ArgumentError, match=r"pyproject\.toml can't be read"):
        project_table(tmp_path)
