"""Every Python block of the pages that need no GPU runs, and prints what the page says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.docs import run_page
from tests.support.runtime import real_compiler

PAGES = (
    "README.md",
    "docs/arg-spec.md",
    "docs/building.md",
    "docs/caching.md",
    "docs/calling.md",
    "docs/cluster.md",
    "docs/cpp-api.md",
    "docs/debugging.md",
    "docs/errors.md",
    "docs/exported-programs.md",
    "docs/from-brainevent.md",
    "docs/profiling.md",
    "docs/live-editing.md",
    "docs/reliability.md",
    "docs/settings.md",
    "docs/transforms.md",
    "docs/tuning.md",
    "docs/tutorial-cpp.md",
)


@pytest.mark.filterwarnings("ignore:kernels can't be used as it is saved")  # docs/live-editing.md
@pytest.mark.usefixtures("tmp_cache")
@pytest.mark.parametrize("page", PAGES)
def test_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert run_page(page, with_cuda=False, with_openmp=has_openmp(tmp_path)) > 0


def has_openmp(folder: Path) -> bool:
    """Whether the host compiler has OpenMP's header and library: clang++ comes without."""
    (folder / "omp.cc").write_text("#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }\n")
    command = [real_compiler(), "-fopenmp", "omp.cc"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0
