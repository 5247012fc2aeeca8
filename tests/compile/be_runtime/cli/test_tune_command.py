"""A package that carries its choices: made by the command, used without timing, ignored after an edit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from be_runtime.cli.main import main
from be_runtime.ship.hooks.wheel_kernels import source_files
from be_runtime.ship.package import Package
from tests.compile.be_runtime.processes import python

INIT = """
import jax.numpy as jnp
from be_runtime import autotune, load_cpp_file
from pathlib import Path

HERE = Path(__file__).parent

def make_scale(sleep_us):
    return load_cpp_file(HERE / "k.cc", name=f"scale_{sleep_us}", extra_cflags=[f"-DSLEEP_US={sleep_us}"]).scale

scale = autotune(make_scale, {"sleep_us": [20000, 50]}, lambda: [jnp.ones(64)], package=__name__, runs=12)
"""
SOURCE = r"""
#include "brainevent/common.h"
#include <unistd.h>
// @BE scale arg[n] ret[n]
void scale(const BE::Tensor x, BE::Tensor y) {
  usleep(SLEEP_US);
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
}
"""
USE = """
import json, jax.numpy as jnp, tunedpkg
x = jnp.ones(50)
print(json.dumps([tunedpkg.scale.config(x), len(tunedpkg.scale.results), tunedpkg.scale(x).tolist()[0]]))
"""


def test_a_package_carries_its_choices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    package = tmp_path / "tunedpkg"
    package.mkdir()
    (package / "__init__.py").write_text(INIT)
    (package / "k.cc").write_text(SOURCE)

    def used(**environ: Any) -> Any:
        return json.loads(python(tmp_path, "-c", USE, **environ).stdout)

    assert used() == [{"sleep_us": 20000}, 0, 2.0], "an import times nothing"
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["tune", "tunedpkg", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tunings"] == [{"name": "make_scale", "bucket": "float32[64]", "chosen": {"sleep_us": 50}}]
    (row,) = json.loads((package / "tuned.json").read_text())["rows"]
    assert row["us"] < row["first_us"]
    assert used(BE_CACHE_DIR=str(tmp_path / "cache")) == [{"sleep_us": 50}, 0, 2.0], (
        "another cache: the package's choice"
    )
    assert "tunedpkg/tuned.json" in source_files(Package("tunedpkg", package), tmp_path)
    (package / "k.cc").write_text(SOURCE.replace("2 * x", "4 * x"))
    assert used() == [{"sleep_us": 20000}, 0, 4.0], "the choice was for another source"


def test_a_package_that_tunes_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "plainpkg").mkdir()
    (tmp_path / "plainpkg" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["tune", "plainpkg"]) == 1
    said = capsys.readouterr().err
    assert "plainpkg declares nothing to tune" in said
    assert "package='plainpkg'" in said
