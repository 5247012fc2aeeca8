"""The command ``stubs``: which file it writes, and what it refuses."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from be_runtime.cli import main as cli
from be_runtime.cli.parser import build_parser

FIRE = """
/// Fire neurons.
// @BE fire arg[n] ret[n]:bool attr.threshold:float32=1{stream}
void fire(const BE::Tensor v, BE::Tensor spikes, float threshold{parameter}) {{}}
"""
CPP = FIRE.format(stream="", parameter="")
CUDA = FIRE.format(stream=" stream", parameter=", int64_t stream")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "kernels").mkdir()


def write(**files: str) -> None:
    for name, text in files.items():
        stem, _, ending = name.rpartition("_")
        Path("kernels", f"{stem}.{ending}").write_text(text)


def classes(path: str) -> dict[str, list[str]]:
    """The functions of each class of a stub."""
    found = [node for node in ast.parse(Path(path).read_text()).body if isinstance(node, ast.ClassDef)]
    return {node.name: [each.name for each in node.body if isinstance(each, ast.FunctionDef)] for node in found}


@pytest.mark.parametrize("source", ["kernels", "kernels/", "./kernels", "../{here}/kernels"])
def test_a_folder_has_its_stub_beside_it(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(fire_cc=CPP, other_cxx="// @BE reset\nvoid reset(BE::Tensor v) {}", hidden_txt="x")
    Path("kernels/.#fire.cc").write_text("// @BE wrong")
    assert cli.main(["stubs", source.format(here=Path.cwd().name)]) == 0
    assert capsys.readouterr().out.endswith("kernels_types.pyi: Kernels\n")
    assert classes("kernels_types.pyi") == {"Kernels": ["fire", "reset"]}
    assert "Fire neurons." in Path("kernels_types.pyi").read_text()
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["kernels", "kernels_types.pyi"]


def test_the_working_folder_and_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write(fire_cc=CPP)
    monkeypatch.chdir("kernels")
    for source, name in ((".", "../kernels_types.pyi"), ("fire.cc", "fire_types.pyi"), ("../kernels/fire.cc", "x.pyi")):
        assert cli.main(["stubs", source, *(["--output", name] if name == "x.pyi" else [])]) == 0
        assert list(classes(name)) == ["Kernels" if source == "." else "Fire"]


def test_both_languages_are_one_class_if_they_are_called_alike() -> None:
    write(fire_cc=CPP, fire_cu=CUDA)
    assert cli.main(["stubs", "kernels"]) == 0
    assert classes("kernels_types.pyi") == {"Kernels": ["fire"]}
    write(more_cu="// @BE more\nvoid more(BE::Tensor v, int n, int64_t stream) {}")
    assert cli.main(["stubs", "kernels"]) == 0, "its own stub is replaced"
    assert classes("kernels_types.pyi") == {"KernelsCuda": ["fire", "more"], "KernelsCpp": ["fire"]}


def test_a_name_of_two_files_is_an_item_and_one_of_the_module_itself_a_function() -> None:
    write(a_cc="// @BE f\nvoid f(BE::Tensor y) {}", b_cc="// @BE f\nvoid f(BE::Tensor y) {}")
    write(c_cc="// @BE path\nvoid path(BE::Tensor y) {}\n// @BE lambda\nvoid lambda(BE::Tensor y) {}")
    assert cli.main(["stubs", "kernels"]) == 0
    assert classes("kernels_types.pyi") == {"Kernels": ["path"]}


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command that fails says, and that it leaves no file behind."""
    before = sorted(Path.cwd().rglob("*"))
    assert cli.main(["stubs", *arguments]) == 1
    assert sorted(Path.cwd().rglob("*")) == before
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    return said.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere/else"], "BE102: nowhere/else is neither a folder or a file"),
        (["nowhere"], "BE101: nowhere can't be imported: ModuleNotFoundError: No module named 'nowhere'\n"),
        (["ops.py"], "for package/module.py, write package.module"),
        (["missing.cc"], "BE102: no such file: {here}/missing.cc"),
        (["bad"], "BE101: bad can't be imported: ZeroDivisionError: division by zero\nhint: raised at {here}/bad.py:2"),
        (["leaves"], "leaves can't be imported: SystemExit: 3"),
        (["syntax"], "syntax can't be imported: SyntaxError"),
        (["plain"], "BE101: plain has no kernels among its names"),
        (["math"], "BE102: math has no Python source"),
        (["sys"], "BE102: sys has no Python source"),
        (["kernels", "--output", "no/folder/x.pyi"], "BE101: no/folder/x.pyi can't be written: No such file"),
        (["kernels", "--output", "kernels"], "BE101: kernels can't be written: Is a directory"),
        (["kernels", "--output", "plain.py"], "BE101: plain.py was not written by this command"),
        (["unannotated"], "or name the Python module that loads it with functions="),
        (["wrong"], "BE201: fire: the arg_spec has 2 tokens"),
        (["hiding"], "hiding_types.pyi would hide hiding_types.py"),
    ],
)
def test_what_is_refused(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(fire_cc=CPP)
    for folder in ("unannotated", "wrong", "hiding"):
        Path(folder).mkdir()
    Path("unannotated/a.cc").write_text("void f(BE::Tensor y) {}")
    Path("wrong/a.cc").write_text("// @BE fire arg ret\nvoid fire(const BE::Tensor v, BE::Tensor s, float t) {}")
    Path("hiding/a.cc").write_text(CPP)
    Path("hiding_types.py").touch()
    Path("ops.py").touch()
    Path("bad.py").write_text("print('x')\n1 / 0\n")
    Path("leaves.py").write_text("import sys\nsys.exit(3)\n")
    Path("syntax.py").write_text("(\n")
    Path("plain.py").write_text("import be_runtime\nx = 3\n")
    said = refused(capsys, *arguments).replace("x\nBE", "BE")
    assert text.format(here=Path.cwd()) in said


def test_a_full_disk_leaves_the_old_stub(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write(fire_cc=CPP)
    assert cli.main(["stubs", "kernels"]) == 0
    before = Path("kernels_types.pyi").read_bytes()
    capsys.readouterr()

    def fail(_self: Path, *_: object, **__: object) -> int:
        _self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    assert "kernels_types.pyi can't be written: No space left on device" in refused(capsys, "kernels")
    assert Path("kernels_types.pyi").read_bytes() == before


def test_programs_are_told_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    write(fire_cc=CPP)
    assert cli.main(["stubs", "kernels", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "command": "stubs",
        "stub": "kernels_types.pyi",
        "names": ["Kernels"],
    }
    assert cli.main(["stubs", "no/where", "--json"]) == 1
    problem = json.loads(capsys.readouterr().out)["problem"]
    assert (problem["code"], bool(problem["message"]), bool(problem["hints"])) == ("BE102", True, True)


def test_help_version_and_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "stubs" in capsys.readouterr().out
    for arguments, code in ((["--version"], 0), (["stubs"], 64), (["bogus"], 64), (["stubs", "-h"], 0)):
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        assert caught.value.code == code
    (commands,) = (action.choices for action in build_parser()._actions if action.dest == "command")  # noqa: SLF001
    assert commands is not None
    assert set(commands) == set(cli.COMMANDS)
