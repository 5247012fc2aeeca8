"""Names, versions and requirements as they are found, also odd ones."""

from __future__ import annotations

import pytest

from be_toolchain.known.distributions import normalize, parse_dist_info, parse_dist_infos, parse_requirement


@pytest.mark.parametrize(
    ("folder", "row"),
    [
        ("nvidia_cuda_nvcc-13.0.88.dist-info", ("nvidia-cuda-nvcc", "13.0.88")),
        ("Nvidia.CUDA__nvcc-13.0.dist-info", ("nvidia-cuda-nvcc", "13.0")),
        ("nvidia-nvvm-13.0.88.dist-info", ("nvidia-nvvm", "13.0.88")),
        ("jaxlib-0.11.0rc1.dist-info", ("jaxlib", "0.11.0rc1")),
        ("jaxlib-0.11.0.RC.1.dist-info", ("jaxlib", "0.11.0rc1")),
        ("jaxlib-0.11.0.dev20261101.dist-info", ("jaxlib", "0.11.0.dev20261101")),
        ("torch-2.9.0+cu130.dist-info", ("torch", "2.9.0+cu130")),
        ("torch-2.9.0+CU_130.dist-info", ("torch", "2.9.0+cu.130")),
        ("epoch-1!2.0.0.dist-info", ("epoch", "1!2.0.0")),
        ("old-a.b.dist-info", ("old", "a.b")),
        ("~vidia_nvvm-13.0.88.dist-info", None),
        ("-13.0.88.dist-info", None),
        ("x.dist-info", None),
        ("nvidia-13.0", None),
        ("nvidia", None),
    ],
)
def test_a_record_s_name(folder: str, row: tuple[str, str] | None):
    assert parse_dist_info(folder) == row
    assert parse_dist_infos((folder, "lib")) == (dict([row]) if row else {})


def test_what_an_index_says_and_what_is_installed_are_the_same():
    assert normalize("Torch", "2.9.0+cu-130") == parse_dist_info("torch-2.9.0+cu_130.dist-info")
    assert normalize("x", "13.0") != normalize("x", "13.0.0"), "a folder's name is compared"


@pytest.mark.parametrize(
    ("text", "name", "specifier"),
    [
        ("nvidia-cuda-nvcc>=13.0.48", "nvidia-cuda-nvcc", ">=13.0.48"),
        ("nvidia_nvvm [a,b] (>=13.0)", "nvidia_nvvm", ">=13.0"),
        ('nvidia.nvvm ==13.0.* ; python_version < "4"', "nvidia.nvvm", "==13.0.*"),
        ("ziglang", "ziglang", ""),
    ],
)
def test_a_requirement(text: str, name: str, specifier: str):
    found = parse_requirement(text)
    assert found is not None
    assert (found.name, str(found.specifier)) == (name, specifier)


@pytest.mark.parametrize("text", ["", "# via x", "-e ./here", "--index-url https://example.org", "x>=", "a b"])
def test_what_is_no_requirement(text: str):
    assert parse_requirement(text) is None
