"""CUDA modules in the processes of a job, whose GPUs differ: each architecture is compiled once."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support import jobs
from tests.support.cuda import KERNELS


def test_each_architecture_is_compiled_once(tmp_path: Path):
    source = KERNELS / "sibling.cu"
    archs = ["9.0", "9.0", "8.0"]
    plans = [[["load_cuda_file", [str(source)], {"compute_capability": arch}]] for arch in archs]
    caches = [tmp_path / f"host{number}" for number in range(3)]
    variables = [{"BE_CLUSTER": "1", "BE_CACHE_DIR": str(cache)} for cache in caches]
    with jobs.running(jobs.LOADER, [(json.dumps(plan),) for plan in plans], variables) as job:
        answers = job.answers(patience_s=280)
        said = job.end()
    libraries = [answer["rows"][0][0] for answer in answers]
    assert libraries[0] == libraries[1] != libraries[2], said
    assert sorted(map(jobs.module_source, caches[:2])) == ["", "another process of the job"]
    assert jobs.module_source(caches[2]) == ""
    assert [text for text in said if "asks for another kernel" in text] == []
