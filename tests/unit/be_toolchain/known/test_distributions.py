"""Names, versions and requirements as they are found, also odd ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from be_toolchain.known.distributions import normalize, parse_dist_info, parse_dist_infos, parse_requirement

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("folder", "row"),
    [
        ("nvidia_cuda_nvcc-13.0.88.dist-info", ("nvidia-cuda-nvcc", "13.0.88")),
        ("Nvidia.CUDA__nvcc-13.0.dist-info", ("nvidia-cuda-nvcc", "13.0")),
        ("nvidia-nvvm-13.0.88.dist-info", ("nvidia-nvvm", "13.0.88")),
        ("jaxlib-0.11.0rc1.dist-info", ("jaxlib", "0.11.0rc1")),
        ("jaxlib-0.11.0.dev20261101.dist-info", ("jaxlib", "0.11.0.dev20261101")),
        ("jaxlib-0.11.0+CU_130.dist-info", ("jaxlib", "0.11.0+CU_130")),
        ("jaxlib-1!2.0.0.dist-info", ("jaxlib", "1!2.0.0")),
        ("JAX_-a.b.dist-info", None),
        ("Jax-a.b.dist-info", ("jax", "a.b")),
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


def test_a_search_loads_no_library_for_records_that_are_named_as_wheels_are():
    folders = ("nvidia_cuda_nvcc-13.0.88.dist-info", "jaxlib-0.11.0rc1.dist-info", "PyYAML-6.0.dist-info")
    code = f"import sys; from be_toolchain.known import distributions; distributions.parse_dist_infos({folders!r})"
    code += "; print('packaging' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("version", "normalized"),
    [
        ("13.0.88", "13.0.88"),
        ("13.0.0", "13.0.0"),
        ("13.1.0-RC.1", "13.1.0rc1"),
        ("13.0-1", "13.0.post1"),
        ("2.9.0+CU-130", "2.9.0+cu.130"),
        ("1!2.0", "1!2.0"),
        ("a.b", "a.b"),
    ],
)
def test_a_name_and_a_version_have_one_spelling(version: str, normalized: str):
    assert normalize("NVIDIA__Cuda.nvcc", version) == ("nvidia-cuda-nvcc", normalized)


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
