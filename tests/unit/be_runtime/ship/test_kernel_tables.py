"""Tables of kernels without host code, and why some are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from be_runtime import ArgumentError, SpecError
from be_runtime.errors import SourceNotFoundError
from be_runtime.ship.kernel_builds import build_function
from be_runtime.ship.kernel_tables import call_options, declared_function, read_table
from be_runtime.ship.package import Package
from be_runtime.ship.package_build import build_package

RAW: dict[str, Any] = {"source": "scale.cu", "signature": "arg[n] ret[n]:like(0)", "grid": "ceil(n/256)", "block": 256}


def test_a_table_has_the_options_of_the_public_function(tmp_path: Path):
    (tmp_path / "scale.cu").write_text("__global__ void scale(const float* x, float* y) {}")
    read = read_table("scale", RAW | {"cluster": 2, "input_output_aliases": {"0": 0}, "use_fast_math": True})
    assert read.launch == {"grid": "ceil(n/256)", "block": 256, "cluster": 2}
    assert read.compiling == {"use_fast_math": True}
    assert call_options(read.call).aliases == ((0, 0),)
    assert declared_function("scale", RAW, tmp_path).__name__ == "scale"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            RAW | {"gird": 1},
            "kernels.k: 'gird' is unknown\nhint: did you mean 'grid'[?]\nhint: known are: block, cluster",
        ),
        (RAW | {"block": 1.5}, "block must be numbers or arithmetic"),
        (RAW | {"block": [32, True]}, "block must be numbers or arithmetic"),
        ({"source": "a.cu", "grid": 1, "block": 1}, "kernels.k has no signature"),
        ({"source": "a.cu", "signature": "arg ret", "block": 1}, "kernels.k has no grid"),
        ({"numba": "module.function", "signature": "arg ret"}, "must be 'module:function'"),
        ({"numba": "m:f", "signature": "arg ret", "dtypes": ["float31"]}, "dtypes has 'float31'"),
        ({"numba": "m:f", "signature": "arg ret", "grid": 1}, "'grid' is unknown"),
    ],
)
def test_a_bad_table_is_refused_with_its_name(table: dict[str, Any], message: str):
    with pytest.raises(ArgumentError, match=message):
        read_table("k", table)


def test_sources_are_files_of_the_package(tmp_path: Path):
    package = tmp_path / "package"
    package.mkdir()
    (tmp_path / "outside.cu").write_text("")
    (package / "scale.cu").symlink_to(tmp_path / "outside.cu")
    with pytest.raises(ArgumentError, match=r"kernels.scale: scale.cu is a link to .*/outside.cu, which is outside"):
        declared_function("scale", RAW, package)
    (package / "scale.cu").unlink()
    with pytest.raises(SourceNotFoundError, match=r"other.cu can't be read: No such file"):
        declared_function("scale", RAW | {"source": "other.cu"}, package)


def test_a_build_checks_a_kernel_before_it_compiles_it(tmp_path: Path):
    (tmp_path / "scale.cu").write_text("__global__ void scale(const float* x, float* y) {}")
    session: Any = None
    with pytest.raises(ArgumentError, match=r"ordered must be True or False, not 'yes'"):
        build_function("scale", RAW | {"ordered": "yes"}, tmp_path, ["9.0"], "", session)
    with pytest.raises(SpecError, match=r"has 'm', which is not an axis of an input"):
        build_function("scale", RAW | {"grid": "m"}, tmp_path, ["9.0"], "", session)


def test_cuda_code_is_not_built_for_no_architecture(tmp_path: Path):
    (tmp_path / "kernels.toml").write_text(
        '[kernels.scale]\nsource = "scale.cu"\nsignature = "arg[n] ret[n]"\ngrid = 1\nblock = 32'
    )
    with pytest.raises(ArgumentError, match=r"p declares CUDA code \(scale\) and no architecture to build it for"):
        build_package(Package("p", tmp_path))


def test_a_name_that_is_no_kernel_or_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("numba")
    (tmp_path / "needing.py").write_text("import not_installed.part")
    monkeypatch.syspath_prepend(tmp_path)
    session: Any = None
    with pytest.raises(ArgumentError, match=r"kernels.k: json:dumps: kernel must be a function decorated with @numba"):
        build_function("k", {"numba": "json:dumps", "signature": "arg[n] ret[n]"}, tmp_path, [], "", session)
    with pytest.raises(SourceNotFoundError, match=r"install not_installed where the kernels are built"):
        build_function("k", {"numba": "needing:f", "signature": "arg[n] ret[n]"}, tmp_path, [], "", session)
    with pytest.raises(SourceNotFoundError) as caught:
        build_function("k", {"numba": "needless:f", "signature": "arg[n] ret[n]"}, tmp_path, [], "", session)
    assert caught.value.hints == ()
