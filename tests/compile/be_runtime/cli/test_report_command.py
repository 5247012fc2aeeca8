"""The command ``report``: a file, a folder and a package of C++, and what is none of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from be_runtime.cli.main import main

SOURCE = """
#include "brainevent/common.h"
__attribute__((noinline)) float square(float x) { return x * x; }
// @BE squares arg[n] ret[n]
void squares(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = square(x.data_ptr<float>()[i]);
}
"""


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["report", *arguments, "--json"]) == 0
    modules: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["modules"]
    return modules


def test_a_file_of_cpp_has_the_phases(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "k.cc").write_text(SOURCE)
    (module,) = reported(capsys, str(tmp_path / "k.cc"))
    assert module["name"] == "k"
    assert module["kernels"] == []
    assert module["notes"] == module["loops"] == []
    (entry,) = module["entries"]
    assert entry["name"] == "squares"
    assert 100 < entry["code_bytes"] < 100_000
    assert {"compile", "link"} <= {phase["name"] for phase in module["phases"]}
    assert main(["report", str(tmp_path / "k.cc")]) == 0
    assert "k: " in capsys.readouterr().out


def test_loops_of_the_source_are_listed_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "k.cc").write_text(
        SOURCE.replace("__attribute__((noinline)) float", "static float")
        + """// @BE sums arg[n] ret[n]
void sums(const BE::Tensor x, BE::Tensor y) {
  float sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = sum = 2 * sum + x.data_ptr<float>()[i];
}
"""
    )
    (module,) = reported(capsys, str(tmp_path / "k.cc"), "--loops")
    assert all(each.startswith(f"{tmp_path}/k.cc:") for each in module["loops"])
    assert any(":6:" in each and "vectorized" in each for each in module["loops"]), module["loops"]
    assert any(":11:" in each and ("missed" in each or "not vectorized" in each) for each in module["loops"]), module[
        "loops"
    ]
    assert [each["name"] for each in module["entries"]] == ["squares", "sums"]
    assert main(["report", str(tmp_path / "k.cc"), "--loops"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("k: 2 entry points\n")
    assert module["loops"][0] in shown


def test_a_folder_and_a_file_without_functions(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "k.cc").write_text(SOURCE)
    (folder / "help.cc").write_text("float twice(float x) { return 2 * x; }\n")
    (module,) = reported(capsys, str(folder))
    assert module["name"] == "all"
    (alone,) = reported(capsys, str(folder / "help.cc"))
    assert alone["name"] == "help"


def test_a_package_is_reported_module_by_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "k.cc").write_text(SOURCE)
    (package / "kernels.toml").write_text('[modules.one]\nsources = ["k.cc"]\n')
    assert [module["name"] for module in reported(capsys, str(package))] == ["pkg.one"]


@pytest.mark.parametrize(
    ("source", "said"),
    [("k.f90", "neither a source"), ("nowhere.cc", "no such file"), ("no_package", "no package")],
)
def test_the_rest_is_refused(source: str, said: str, capsys: pytest.CaptureFixture[str]):
    assert main(["report", source]) == 1
    assert said in capsys.readouterr().err


def test_block_sizes_are_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["report", str(tmp_path), "--blocks", "many"]) == 1
    assert "--blocks 128,256" in capsys.readouterr().err
