"""What a package may declare, and how a mistake in it is named."""

from __future__ import annotations

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.ship.declaration import parse_declaration

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
        ("[modules.a]\nsource = 'a.cc'", "p/kernels.toml: modules.a needs sources"),
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
