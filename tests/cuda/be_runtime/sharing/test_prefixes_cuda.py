"""What one installation compiles by its nvcc, another takes from the remote cache, whose nvcc is in other folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from tests.support.file_server import serving
from tests.support.prefixes import SITE, Prefix


def _has_nvcc_in_its_packages() -> bool:
    cuda = resolve(ToolchainRequest(need_cuda=True)).cuda
    return cuda is not None and cuda.root.is_relative_to(SITE)


def test_a_cuda_module_of_another_prefix_is_taken(tmp_path: Path):
    if not _has_nvcc_in_its_packages():
        pytest.skip("needs, which is optional here: nvcc among the environment's packages, to be copied with them")
    first, second = Prefix(tmp_path / "first"), Prefix(tmp_path / "elsewhere/a second", whole=True)
    with serving() as server:
        settings = {"BE_REMOTE_CACHE": server.url, "BE_COMPUTE_CAPABILITIES": "9.0"}
        source, said = first.load("load_cuda_file", "k.cu", **settings, BE_REMOTE_CACHE_WRITE="1")
        assert source == "", said
        source, said = second.load("load_cuda_file", "k.cu", **settings)
        assert source == server.url, said
