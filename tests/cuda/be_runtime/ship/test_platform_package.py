"""A package's functions for CPU and GPU, built ahead of time on a machine without a device."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import be_runtime
from be_runtime.ship import build, package
from tests.support.cuda import ARCH
from tests.support.platforms import CPP, CUDA
from tests.support.runtime import ROOT, environment, run_python

TABLE = '[modules.ops]\ncpp = "ops"\ncuda = "ops"\n'
USE = """
import re, jax, jax.numpy as jnp, be_runtime
ops = be_runtime.package_kernels("dual").ops
x = jnp.arange(3.0)
print(ops.scale(x).tolist(), [*ops.parts], ops.function_names)
lowered = jax.jit(ops.scale).trace(x).lower(lowering_platforms=("cpu", "cuda")).as_text()
print(len({*re.findall(r"@be[.]\\w+[.]\\w+", lowered)}))
"""
BARE = {"BE_CACHE_DIR": "/proc/none", "PATH": "/nowhere", "BE_JIT": "never"}


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    root = tmp_path / "dual"
    (root / "ops").mkdir(parents=True)
    for name, text in (("kernels.toml", TABLE), ("__init__.py", ""), ("ops/a.cc", CPP), ("ops/a.cu", CUDA)):
        (root / name).write_text(text)
    return root


def use(root: Path, **environ: str) -> list[str]:
    known = {"PYTHONPATH": f"{root.parent}:{ROOT}", "CUDA_VISIBLE_DEVICES": "", "BE_COMPUTE_CAPABILITIES": None}
    return run_python(USE, env=environment(**{**known, **environ}), cwd=root.parent).stdout.splitlines()


def test_what_is_built_for_both_platforms_is_one_function_without_a_compiler(root: Path):
    built = build.build_package(package.package_in(root), archs=[str(ARCH)])
    assert {(report.name, report.language) for report in built.reports} == {("ops", "cpp"), ("ops", "cuda")}
    assert [*built.table.modules] == ["ops:cpp", "ops:cuda"]
    assert {image.platform for image in built.table.images.values()} == {"cpu", "CUDA"}
    found = ["[0.0, 2.0, 4.0] ['cpp', 'cuda'] ['scale', 'only_cpu', 'only_gpu']", "2"]
    assert use(root, **BARE) == found
    (root / "ops" / "more.cu").write_text("// no entry point\n")
    assert use(root) == [found[0].replace("'cpp', 'cuda'", "'cpp'").replace(", 'only_gpu'", ""), "1"]
    assert use(root, BE_COMPUTE_CAPABILITIES=str(ARCH)) == found


def test_declarations_that_differ_end_a_build_before_it_compiles(root: Path):
    (root / "ops" / "a.cu").write_text(CUDA.replace("by:float32=2", "by:float32=3"))
    with pytest.raises(be_runtime.SpecError, match=re.escape("attr.by:float32=2.0, and the other attr.by:float32=3.0")):
        build.build_package(package.package_in(root), archs=[str(ARCH)])
    assert not (root / "_kernels").exists()
