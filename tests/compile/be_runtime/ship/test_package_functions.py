"""Raw and Numba kernels of a package: as they are declared, and as they were built, in a process without anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.packages import run_beside, write_package
from tests.support.runtime import environment, without_compilers

pytest.importorskip("numba.cuda")
pytestmark = pytest.mark.full

CALLS = """
import jax, jax.numpy as jnp, numpy as np, sys
import be_runtime, shipped
decay = shipped.ops.decay
x = jnp.arange(4.0)
print(decay(x, np.float32(0.5)).tolist(), jax.vmap(decay, (0, None))(jnp.ones((2, 2)), np.float32(0.5)).tolist())
try:
    jax.block_until_ready(decay(x, np.float32(2)))
except Exception as error:
    print(str(error).splitlines()[0])
try:
    decay(jnp.arange(4), np.float32(0.5))
except be_runtime.ArgumentError as error:
    print(error)
print(decay.__doc__, decay.__name__, shipped.ops.wave.__name__, shipped.ops.scale.__name__, "numba" in sys.modules)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return write_package(tmp_path / "home" / "shipped")


def test_a_process_without_compiler_numba_and_cache_calls_them_as_while_one_develops(package: Path, tmp_path: Path):
    as_declared = run_beside(package, "-c", CALLS)
    assert as_declared.splitlines()[0] == "[0.0, 0.5, 1.0, 1.5] [[0.5, 0.5], [0.5, 0.5]]"
    run_beside(package, "-m", "be_runtime", "build", "shipped", "--out", str(tmp_path / "first"))
    run_beside(package, "-m", "be_runtime", "build", "shipped", BE_CACHE_DIR=str(tmp_path / "another cache"))
    first, second = (
        {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("**/*") if path.is_file()}
        for folder in (tmp_path / "first", package / "_kernels")
    )
    assert first == second, "two builds are the same bytes"
    for folder in ("raw", "host.py", "device.py"):
        (package / folder).rename(tmp_path / folder)
    unused = tmp_path / "unused"
    (tmp_path / "blocked" / "numba").mkdir(parents=True)
    (tmp_path / "blocked" / "numba" / "__init__.py").write_text("raise ImportError('not here')\n")
    path = f"{tmp_path / 'blocked'}:{environment()['PYTHONPATH']}"
    as_built = run_beside(
        package,
        "-c",
        CALLS,
        BE_JIT="never",
        BE_CACHE_DIR=str(unused),
        PATH=without_compilers(tmp_path / "bin"),
        PYTHONPATH=path,
    )
    assert [path.name for path in unused.iterdir()] == ["images"]  # where checked files are remembered, and no code
    lines, expected = as_built.splitlines(), as_declared.splitlines()
    assert lines[:2] == [expected[0], "INTERNAL: decay: ValueError: by is more than 1"]
    assert lines[2].startswith(
        "decay was not built for (int32[:], float32[]) -> (int32[:]); it was built for (float32[:]"
    )
    assert lines[-1] == "Decay towards zero. decay wave scale False"


def test_code_for_other_gpus_is_refused_by_name_and_ptx_serves_later_ones(package: Path):
    from be_runtime.bundle.mapped_images import open_folder
    from be_runtime.kernels.cuda.images import kernel_of, lacking
    from be_toolchain.arch import Arch

    run_beside(package, "-m", "be_runtime", "build", "shipped")
    bundle = open_folder(package / "_kernels")
    assert bundle is not None
    for kernel_id, row in bundle.table.kernels.items():
        assert lacking(row, (Arch(7, 5),)) == "it has code for 8.0, 9.0, 9.0+PTX, and the GPU here is 7.5"
        assert not lacking(row, (Arch(12, 0),))
        kernel = kernel_of(kernel_id, row, bundle.image)
        assert [(str(image.arch), image.is_ptx) for image in kernel.images if not image.form] == [
            ("8.0", False),
            ("9.0", False),
            ("9.0", True),
        ]
        assert all(image.entry.encode() in image.data for image in kernel.images)
    assert json.dumps(dict(bundle.table.functions)).count(str(package.parent)) == 0
