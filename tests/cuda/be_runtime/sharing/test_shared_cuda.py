"""CUDA modules in the processes of a job, whose GPUs differ: each architecture is compiled once."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support import jobs
from tests.support.cuda import KERNELS


def load(folder: Path) -> tuple[list[Path], list[str]]:
    """Load a kernel in three processes, the last of which has another GPU; return their caches and what they say."""
    archs = ["9.0", "9.0", "8.0"]
    plans = [[["load_cuda_file", [str(KERNELS / "sibling.cu")], {"compute_capability": arch}]] for arch in archs]
    caches = [folder / f"host{number}" for number in range(3)]
    variables = [{"BE_CLUSTER": "1", "BE_CACHE_DIR": str(cache)} for cache in caches]
    with jobs.running(jobs.LOADER, [(json.dumps(plan),) for plan in plans], variables) as job:
        answers = job.answers(patience_s=280)
        said = job.end()
    libraries = [answer["rows"][0][0] for answer in answers]
    assert libraries[0] == libraries[1] != libraries[2], said
    return caches, said


def test_each_architecture_is_compiled_once(tmp_path: Path):
    """On a machine that stands still for seconds a process takes a builder for dead, and builds too."""
    for attempt in range(3):
        caches, said = load(tmp_path / str(attempt))
        sources = [jobs.module_source(cache) for cache in caches]
        assert sources[2] == ""
        assert [text for text in said if "asks for another kernel" in text] == []
        if sources[:2] != ["", ""]:
            break
    assert sorted(sources[:2]) == ["", "another process of the job"], said
