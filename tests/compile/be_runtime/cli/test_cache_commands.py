"""Commands on compiled modules: why one was built, entries that travel to other folders, and reports."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.cli import main as cli
from be_runtime.cli.main import main
from tests.compile.be_runtime.scaling import scaling

SOURCE = """#include "brainevent/common.h"
#include "near.h"
// @BE f
void f(BE::Tensor y) { CHECK(y.numel() > 0); }
"""
PLAIN, NAMING = (f"#include <cassert>\n#define CHECK(x) {how}(x)\n" for how in ("(void)", "assert"))

Told = Callable[..., dict[str, Any]]


@pytest.fixture
def told(tmp_cache: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """Run a command in the cache of a folder, and return what it printed as JSON."""

    def run(folder: Path, *words: str, code: int = 0) -> dict[str, Any]:
        be_runtime.set_cache_dir(folder / "cache")
        capsys.readouterr()
        assert cli.main(["cache", *words, "--json"]) == code
        printed: dict[str, Any] = json.loads(capsys.readouterr().out)
        return printed

    return run


def project(folder: Path, header: str = PLAIN) -> Path:
    """Write a kernel and its header into a folder."""
    (folder / "include").mkdir(parents=True)
    (folder / "near.h").write_text(header)
    (folder / "k.cc").write_text(SOURCE)
    return folder


def load(folder: Path, **options: Any) -> Path:
    be_runtime.set_cache_dir(folder / "cache")
    include = [folder / "include"]
    return be_runtime.load_cpp_file(folder / "k.cc", extra_include_paths=include, auto_register=False, **options).path


def test_why_names_the_header_and_the_flag(told: Told, tmp_path: Path):
    here = project(tmp_path / "here")
    load(here)
    (here / "near.h").write_text("#define CHECK(x) (void)0\n")
    assert told(here, "why", "k")["problem_now"] == f"{here}/near.h changed"
    load(here)
    assert told(here, "why", "k")["reason"] == f"{here}/near.h changed"
    load(here, extra_cflags=["-DX=1"])
    found = told(here, "why", "k")
    assert (found["reason"], found["differs"]) == ("it was not in the cache", ["cflags: added '-DX=1'"])
    load(here, extra_cflags=["-DX=/home/ada/x"])
    found = told(here, "why", "k")
    assert found["elsewhere"] == "other machines can use it only if they have the same paths:"
    assert found["paths_elsewhere"] == ["cflags: -DX=/home/ada/x"]
    assert told(here, "verify")["damaged"] == []


def test_an_imported_module_is_not_compiled(told: Told, tmp_path: Path):
    file = str(tmp_path / "kernels.be")
    load(project(tmp_path / "first"))
    (entry,) = told(tmp_path / "first", "export", file)["entries"]
    assert entry["name"] == "k"
    second = project(tmp_path / "second")
    assert told(second, "import", file)["is_signed"] is False
    assert told(second, "stats")["imported"]["archives"] == 1
    path = load(second)
    (row,) = told(second, "list", "--all")["entries"]
    assert (row["name"], row["source"]) == ("k", f"{second}/cache/imported"), "nothing else was compiled"
    assert told(second, "show", "k")["is_valid"] is True
    assert f"{second}/near.h" in told(second, "show", "k")["dependencies"]
    assert load(second) == path
    for name, text in (("near.h", "#define CHECK(x) (void)0\n"), ("include/cassert", "#include_next <cassert>\n")):
        other = project(tmp_path / f"other {name.partition('/')[0]}")
        (other / name).write_text(text)
        told(other, "import", file)
        load(other)
        assert told(other, "list")["entries"][0]["source"] == "", "a build here would read something else"
    assert len(told(second, "clear")["imported"]) == 1
    assert told(second, "stats")["imported"]["archives"] == 0


def test_code_that_names_its_folder_stays_unless_it_was_built_to_travel(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first, file = project(tmp_path / "first", NAMING), str(tmp_path / "kernels.be")
    load(first)
    refused = told(first, "export", file, "k", code=1)["problem"]
    assert refused["message"] == "there is nothing to export"
    assert any(re.search(f"its [0-9a-f]{{12}} names the folder {first}", hint) for hint in refused["hints"])
    assert "is for this machine alone" in told(first, "why", "k")["elsewhere"]
    assert not Path(file).exists()
    monkeypatch.setenv("BE_CLUSTER", "1")
    load(first)
    monkeypatch.delenv("BE_CLUSTER")
    exported = told(first, "export", file)
    assert (len(exported["entries"]), len(exported["left_out"])) == (1, 1)
    second = project(tmp_path / "second", NAMING)
    told(second, "import", file)
    load(second)
    assert told(second, "list")["entries"][0]["source"] == f"{second}/cache/imported"


def test_signed_exports_need_the_key(told: Told, tmp_path: Path):
    pytest.importorskip("cryptography")
    first, file, private = project(tmp_path / "first"), str(tmp_path / "kernels.be"), str(tmp_path / "key")
    load(first)
    told(first, "export", file)
    public = told(first, "keygen", "--out", private)["public_key"]
    other = told(first, "keygen", "--out", f"{private}2")["public_key"]
    assert "is not signed" in told(first, "import", file, "--public-key", public, code=1)["problem"]["message"]
    told(first, "sign", file, "--key", private)
    problem = told(first, "import", file, "--public-key", other, code=1)["problem"]
    assert "is not signed by a trusted key" in problem["message"]
    assert "if you trust the signer, add their key to --public-key" in problem["hints"]
    assert not (first / "cache" / "imported").exists()
    assert told(first, "import", file, "--public-key", public)["is_signed"] is True


SQUARES = scaling("squares", "x.data_ptr<float>()[i]")


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["report", *arguments, "--json"]) == 0
    modules: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["modules"]
    return modules


def test_a_file_of_cpp_has_the_phases_and_on_request_the_loops(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, sums = (
        tmp_path / "k.cc",
        "for (int64_t i = 0; i < x.numel(); ++i) y.at<float>(i) = s = 2 * s + x.at<float>(i);",
    )
    file.write_text(f"{SQUARES}// @BE sums\nvoid sums(const BE::Tensor x, BE::Tensor y) {{\nfloat s = 0;\n{sums}\n}}\n")
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
    (package / "k.cc").write_text(SQUARES)
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
        (["no_package"], "neither a package nor a folder"),
        ([".", "--blocks", "many"], "--blocks 128,256"),
    ],
)
def test_the_rest_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert main(["report", *arguments]) == 1
    assert said in capsys.readouterr().err
