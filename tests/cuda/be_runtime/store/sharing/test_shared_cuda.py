"""What one installation compiles by its nvcc, another takes from the remote cache, whose nvcc is in other folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from tests.support.file_server import serving
from tests.support.prefixes import SITE, Prefix
from tests.support.requirements import OPTIONAL


@pytest.mark.full
def test_a_cuda_module_of_another_prefix_is_taken(tmp_path: Path):
    cuda = resolve(ToolchainRequest(need_cuda=True)).cuda
    if cuda is None or not cuda.root.is_relative_to(SITE):
        pytest.skip(OPTIONAL + "nvcc among the environment's packages, to be copied with them")
    first, second = Prefix(tmp_path / "first"), Prefix(tmp_path / "elsewhere/a second", whole=True)
    with serving() as server:
        settings = {"BE_REMOTE_CACHE": server.url, "BE_COMPUTE_CAPABILITIES": "9.0"}
        source, said = first.load("load_cuda_file", "k.cu", **settings, BE_REMOTE_CACHE_WRITE="1")
        assert source == "", said
        source, said = second.load("load_cuda_file", "k.cu", **settings)
        assert source == server.url, said
