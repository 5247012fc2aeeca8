"""The site builds from the extra `docs` without a warning; the gallery's pages run in tests of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from release import ROOT
from tests.packaging.wheel.conftest import Distribution, run, succeed, uv

pytestmark = pytest.mark.xdist_group("site")

PARTS = {
    "index.html": ("be_toolchain doctor", "load_cuda_inline", "handler on ffi.h"),
    "reference/cpp.html": ("data_ptr", "BE_CHECK_KERNEL_LAUNCH", "warp_reduce_sum_f32"),
    "reference/commands.html": ("be_toolchain install", "be_runtime cache why"),
    "reference/python.html": ("load_cpp_inline", "be_toolchain.resolve"),
    "errors.html": ('id="be301"', 'id="tc403"'),
}
"""What shows that a part of a page was made: pages, and texts of them."""


def test_the_site_builds_without_a_warning(distribution: Distribution, tmp_path: Path):
    environment = tmp_path / "env"
    python = environment / "bin" / "python"
    succeed(run(uv(), "venv", "--quiet", "--python", sys.executable, environment, cwd=tmp_path))
    wanted = f"brainevent-toolchain[docs] @ {distribution.wheel.as_uri()}"
    succeed(run(uv(), "pip", "install", "--quiet", "--python", python, wanted, cwd=tmp_path))
    extensions = sorted((ROOT / "docs" / "extensions").glob("*.py"))
    succeed(run(python, "-m", "doctest", *extensions, cwd=ROOT, PYTHONPATH=str(ROOT)))
    options = (
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "-D",
        "nb_execution_mode=off",
        "-d",
        str(tmp_path / "doctrees"),
    )
    succeed(run(python, "-m", "sphinx", *options, "-b", "html", ROOT / "docs", tmp_path / "html", cwd=tmp_path))
    for page, texts in PARTS.items():
        text = (tmp_path / "html" / page).read_text(encoding="utf-8")
        assert [each for each in texts if each not in text] == []
