"""A package with kernels of Triton and a cubin, built and called where there is no GPU."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.cuda import ARCH
from tests.support.packages import TRITON_TABLES, run_beside, write_triton_package
from tests.support.requirements import OPTIONAL
from tests.support.runtime import ROOT

triton: Any = pytest.importorskip("triton", reason=f"{OPTIONAL}triton", exc_type=ImportError)

PLACES = os.pathsep.join([str(ROOT), str(Path(triton.__file__).parents[1])])
CALLS = """
import json, sys
import jax, numpy as np, be_runtime, shipped
from be_runtime.kernels.launcher import archs_of
from be_runtime.store import artifact
from tests.support.kernel_calls import attributes, kernel_calls

def call(name, x, **scalars):
    (equation,) = kernel_calls(lambda x: getattr(shipped.ops, name)(*[x] * (2 if name == "add" else 1), **scalars), x)
    given = attributes(equation)
    params = given["params"].reshape(-1, 4)[:, :2].tolist()
    return given["kernel"], given["launch"].tolist(), params, [str(var.aval) for var in equation.outvars]

def refused(name, x, **scalars):
    try:
        call(name, x, **scalars)
    except ValueError as error:
        return str(error)

f32 = np.float32
made = [call("add", np.zeros(n, dtype), scale=2) for n, dtype in ((512, f32), (500, f32), (512, "f2"), (1024, f32))]
made += [call("described", np.zeros(512, f32)), call("times", np.zeros(64, f32))]
def exported(name, archs):
    x = np.zeros((16, 5), f32)
    program = be_runtime.export(jax.jit(getattr(shipped.ops, name)), x, platforms=["cuda"], archs=archs)
    program.save("program.be")
    (row,) = artifact.unpack(open("program.be", "rb").read(), "program.be").table.kernels.values()
    return archs_of(row)

rows = [call("row_sums", np.zeros(shape, f32))[0] for shape in ((16, 32), (16, 5), (3, 32), (3, 5))]
refusals = refused("add", np.zeros(3, "i4"), scale=2), refused("times", np.zeros(256, f32))
try:
    exported("row_sums", "8.0")
except Exception as error:
    refusals = *refusals, str(error)
print(json.dumps([made, rows, refusals, exported("row_sums", "9.0"), "triton" in sys.modules]))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = write_triton_package(tmp_path_factory.mktemp("home") / "shipped", ARCH)
    tables = TRITON_TABLES.replace('grid = "n"', 'grid = "n"\ncompute_capability = "9.0"')
    (written / "kernels.toml").write_text(tables)
    run_beside(written, "-m", "be_runtime", "build", "shipped", PYTHONPATH=PLACES)
    return written


def test_each_type_is_built_for_numbers_divisible_by_16_and_for_any(package: Path):
    index = json.loads((package / "_kernels" / "index.json").read_text())
    variants = {name: [each["types"] for each in row["variants"]] for name, row in index["functions"].items()}
    add = [["*fp32:16"] * 3 + ["i32:16", "fp32"], ["*fp32:16"] * 3 + ["i32", "fp32"], ["*fp32"] * 3 + ["i32", "fp32"]]
    add += [[text.replace("*fp32", "*fp16") for text in each] for each in add]
    assert variants == {
        "add": add,
        "described": [["*fp32:16"] * 2 + ["i32:16"], ["*fp32:16"] * 2 + ["i32"]],
        "row_sums": [["*fp32:16"] * 2 + ["i32:16"] * 2, ["*fp32:16"] * 2 + ["i32"] * 2],
        "times": [[]],
    }
    archs = {
        row["name"]: [(each["arch"], each["is_ptx"]) for each in row["images"]] for row in index["kernels"].values()
    }
    assert archs == {
        "add": [("8.0", False), ("8.0", True), ("9.0a", False)],
        "described": [("8.0", False), ("8.0", True), ("9.0a", False)],
        "row_sums": [("9.0a", False)],
        "scale": [("9.0", False)],
    }
    sources = {name: [*row["sources"]] for name, row in index["functions"].items()}
    python = ["gpu/triton_kernels.py", "kernels.toml"]
    assert sources == {"add": python, "described": python, "row_sums": python, "times": ["kernels.toml", "scale.cubin"]}


def test_calls_need_neither_triton_nor_a_compiler(package: Path, tmp_path: Path):
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise ImportError('not here')")
    bare = {"BE_JIT": "never", "BE_CACHE_DIR": str(tmp_path / "unused")}
    printed = run_beside(package, "-c", CALLS, PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]), **bare)
    (aligned, any_size, half, large, described, times), rows, refusals, archs, has_triton = json.loads(printed)
    assert not has_triton
    assert archs == ["9.0a"]
    assert len({*rows}) == 2
    assert len({*rows[1:]}) == 1, "code for any integers serves integers of both kinds"
    assert aligned[0] == large[0]
    assert len({each[0] for each in (aligned, any_size, half, described, times)}) == 5
    assert aligned[1] == [2, 1, 1, 64, 1, 1, 0, 1, 1, 1, 0, 0]
    assert aligned[2] == [[0, 0], [0, 1], [0, 2], [2, 512], [2, 0x40000000], [2, 0], [2, 0]]
    assert described[3] == ["float32[512]", "uint8[512]"]
    assert times[1:3] == [[2, 1, 1, 32, 1, 1, 0, 1, 1, 1, 0, 0], [[0, 0], [0, 1], [2, 0x40000000]]]
    assert refusals[0].startswith("add was not built for *i32, *i32, *i32, i32, fp32; it was built for *fp32")
    assert "scale was compiled for a block of at most 64 threads, and block=(128, 1, 1)" in refusals[1]
    assert "was built for 9.0a ahead of time, and not for 8.0" in refusals[2]


def test_while_an_author_develops_the_kernels_are_compiled(package: Path, tmp_path: Path):
    built = run_beside(package, "-c", CALLS, PYTHONPATH=PLACES)
    compiled = run_beside(package, "-c", CALLS, PYTHONPATH=PLACES, BE_JIT="always")
    assert [row[1:] for row in json.loads(built)[0]] == [row[1:] for row in json.loads(compiled)[0]]


def test_a_mistake_ends_the_build(tmp_path: Path):
    package = write_triton_package(tmp_path / "home" / "shipped", ARCH)
    for before, after, words in (
        ("BLOCK = 256", "SIZE = 256", "add has no constant SIZE"),
        ("gpu/triton_kernels.py:add", "gpu/triton_kernels.py:added", "has no attribute 'added'"),
        ("attr.by:float32=2", "attr.by:float64=2", "scale in scale.cubin: parameter 2 has 4 bytes"),
        ('cubin = "scale.cubin"', 'cubin = "none.cubin"', "none.cubin' can't be read"),
    ):
        (package / "kernels.toml").write_text(TRITON_TABLES.replace(before, after))
        with pytest.raises(AssertionError, match=words):
            run_beside(package, "-m", "be_runtime", "build", "shipped", PYTHONPATH=PLACES)
