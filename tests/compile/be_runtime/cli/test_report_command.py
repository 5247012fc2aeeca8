"""The command ``report``: a file, a folder and a package of C++, and what is none of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from be_runtime.cli.main import main
from tests.compile.be_runtime.scaling import scaling

SOURCE = scaling("squares", "x.data_ptr<float>()[i]")


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["report", *arguments, "--json"]) == 0
    modules: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["modules"]
    return modules


def test_a_file_of_cpp_has_the_phases_and_on_request_the_loops(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, sums = (
        tmp_path / "k.cc",
        "for (int64_t i = 0; i < x.numel(); ++i) y.at<float>(i) = s = 2 * s + x.at<float>(i);",
    )
    file.write_text(f"{SOURCE}// @BE sums\nvoid sums(const BE::Tensor x, BE::Tensor y) {{\nfloat s = 0;\n{sums}\n}}\n")
    (module,) = reported(capsys, str(file))
    assert (module["name"], module["kernels"], module["notes"], module["loops"]) == ("k", [], [], [])
    assert [each["name"] for each in module["entries"]] == ["squares", "sums"]
    assert 100 < module["entries"][0]["code_bytes"] < 100_000
    assert {"compile", "link"} <= {phase["name"] for phase in module["phases"]}
    (module,) = reported(capsys, str(file), "--loops")
    assert all(each.startswith(f"{file}:") for each in module["loops"])
    assert any(":4:" in each and "vectorized" in each for each in module["loops"]), module["loops"]
    assert any(":9:" in each and ("missed" in each or "not v" in each) for each in module["loops"]), module["loops"]
    assert main(["report", str(file), "--loops"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("k: 2 entry points\n")
    assert module["loops"][0] in shown


def test_a_package_a_folder_and_a_file_without_functions(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "k.cc").write_text(SOURCE)
    (package / "help.cc").write_text("float twice(float x) { return 2 * x; }\n")
    assert [module["name"] for module in reported(capsys, str(package))] == ["pkg"]
    assert [module["name"] for module in reported(capsys, str(package / "help.cc"))] == ["help"]
    (package / "__init__.py").touch()
    (package / "kernels.toml").write_text('[modules.one]\nsources = ["k.cc"]\n')
    assert [module["name"] for module in reported(capsys, str(package))] == ["pkg.one"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["k.f90"], "neither a source"),
        (["nowhere.cc"], "no such file"),
        (["no_package"], "no package"),
        ([".", "--blocks", "many"], "--blocks 128,256"),
    ],
)
def test_the_rest_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert main(["report", *arguments]) == 1
    assert said in capsys.readouterr().err
