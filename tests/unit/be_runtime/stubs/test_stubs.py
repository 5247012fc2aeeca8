"""Stubs of an author's Python module and of its kernels, and the command that writes them."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from be_runtime.call.resolve import CallSignature
from be_runtime.cli import main as cli
from be_runtime.cli.parser import build_parser
from be_runtime.signature.grammar import parse_spec
from be_runtime.signature.model import Role
from be_runtime.stubs import (
    MARK,
    StubFunction,
    StubModule,
    class_name,
    imported_names,
    python_stub,
    render_class,
    render_function,
    render_stub,
)
from tests.support.hostile_files import full_disk
from tests.unit.be_runtime.compile.codegen.golden_files import check_golden

GOLDEN = Path(__file__).parent / "golden"


def stub(source: str) -> str:
    """The stub of a module that has the kernels ``ops`` and ``fire``, and the names in its first comment.

    Releases of Python place blank lines differently.
    """
    names = re.match("# names: (.*)", source)
    text = python_stub(source, {"ops", "fire"}, names[1].split() if names else ())
    return "\n".join(filter(None, text.splitlines()))


def test_stubs_of_python_modules() -> None:
    cases = (GOLDEN / "python_modules.txt").read_text().split("\n====\n")
    sources = [case.partition("\n--\n")[0] for case in cases]
    text = "\n====\n".join(f"{each}\n--\n{stub(each)}" for each in sources)
    check_golden(GOLDEN / "python_modules.txt", f"{text}\n")


def test_names_from_elsewhere() -> None:
    assert imported_names("import a.b, c as d\nfrom e import f as g, h\nx = 3") == {"a", "d", "g", "h"}


FUNCTIONS = {
    "matvec": "arg[n k]; arg[k]; ret[n]:like(0); attr.alpha:float32=1; stream",
    "scan": "arg; arg?; arg...; arg?; ret; ret...; attr.flag:bool=true; attr.count:uint8; attr.z:complex64",
    "step": "arg[n]; ret[n]; attr.mode:enum(up down)=up; attr.name:string=a; attr.t:float64[]; attr.dtype:dtype; "
    "attr.config:{lr:float32 n:int32=3 in:bool}; attr.lambda:int32; scratch[n*4]; state",
    "empty": "ret[3]:float32; attr.limit:float32=inf",
    "path": "arg; ret",
    "complex": "arg; ret",
    "a.f": "arg; ret",
}
DOC = 'Ends with a quote "\n\n    Indented \\ and """ \x1b \udc80.'


def functions() -> list[StubFunction]:
    found = []
    for name, tokens in FUNCTIONS.items():
        names = iter(["x", "lambda", "xs"])
        parsed = parse_spec(tokens.split("; "))
        params = (each if each.role is Role.ATTR else each._replace(name=next(names, "")) for each in parsed)
        signature = CallSignature(f"ops.{name}", tuple(params), DOC if name == "matvec" else "")
        found.append(StubFunction(name, signature, has_outs=name == "scan"))
    return found


def test_the_stub_of_kernels() -> None:
    parts = [render_class("Ops", StubModule(functions(), hidden=["path"])), render_function(functions()[2])]
    text = render_stub(parts)
    check_golden(GOLDEN / "every_kind.pyi.txt", text)
    found = {node.name: node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert ast.get_docstring(found["matvec"]) == (
        'Ends with a quote "\n\n    Indented \\ and """ \\x1b \\x80.\n\n'
        "arg_spec: arg[n k] arg[k] ret[n]:like(0) attr.alpha:float32=1.0 stream"
    )


def test_a_module_of_items_alone_and_a_python_part() -> None:
    text = render_stub([render_class("Ops", StubModule(functions()[-1:]))], python='"""Doc."""\nx: typing.Any\n')
    assert text.startswith(f'{MARK}\n"""Doc."""\nx: typing.Any\n\nimport be_runtime\n')
    assert text.endswith("class Ops(be_runtime.LoadedModule):\n    ...\n")
    assert ast.get_docstring(ast.parse(text)) == "Doc."


def test_names_of_classes() -> None:
    names = {"spiking_ops": "SpikingOps", "my-kernels.v2": "MyKernelsV2", "2d": "_2d", "none": "_None", "-": "_"}
    assert {name: class_name(name) for name in names} == names


TOLD = GOLDEN / "command.txt"
FIRE = """
/// Fire neurons.
// @BE fire arg[n] ret[n]:bool attr.threshold:float32=1{stream}
void fire(const BE::Tensor v, BE::Tensor spikes, float threshold{parameter}) {{}}
"""
CPP = FIRE.format(stream="", parameter="")
CUDA = FIRE.format(stream=" stream", parameter=", int64_t stream")
EMPTY = "// @BE {0}\nvoid {0}(BE::Tensor y) {{}}\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    write({"kernels/fire.cc": CPP})


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)


def classes(path: str) -> dict[str, list[str]]:
    """The functions of each class of a stub."""
    found = [node for node in ast.parse(Path(path).read_text()).body if isinstance(node, ast.ClassDef)]
    return {node.name: [each.name for each in node.body if isinstance(each, ast.FunctionDef)] for node in found}


@pytest.mark.parametrize("source", ["kernels", "kernels/", "./kernels", "../{here}/kernels"])
def test_a_folder_has_its_stub_beside_it(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    write({"kernels/other.cxx": EMPTY.format("reset"), "kernels/hidden.txt": "x", "kernels/.#fire.cc": "// @BE wrong"})
    assert cli.main(["stubs", source.format(here=Path.cwd().name)]) == 0
    assert capsys.readouterr().out.endswith("kernels_types.pyi: Kernels\n")
    assert classes("kernels_types.pyi") == {"Kernels": ["fire", "reset"]}
    assert "Fire neurons." in Path("kernels_types.pyi").read_text()
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["kernels", "kernels_types.pyi"]


def test_the_working_folder_and_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("kernels")
    for source, name in ((".", "../kernels_types.pyi"), ("fire.cc", "fire_types.pyi"), ("../kernels/fire.cc", "x.pyi")):
        assert cli.main(["stubs", source, *(["--output", name] if name == "x.pyi" else [])]) == 0
        assert list(classes(name)) == ["Kernels" if source == "." else "Fire"]


def test_both_languages_are_one_class_if_they_are_called_alike() -> None:
    write({"kernels/fire.cu": CUDA})
    assert cli.main(["stubs", "kernels"]) == 0
    assert classes("kernels_types.pyi") == {"Kernels": ["fire"], "KernelsBoth": ["fire"]}
    write({"kernels/more.cu": "// @BE more\nvoid more(BE::Tensor v, int n, int64_t stream) {}"})
    assert cli.main(["stubs", "kernels"]) == 0, "its own stub is replaced"
    found = {"KernelsCuda": ["fire", "more"], "KernelsCpp": ["fire"], "KernelsBoth": ["fire", "more"]}
    assert classes("kernels_types.pyi") == found
    assert "class KernelsBoth(be_runtime.LoadedPlatformModule):" in Path("kernels_types.pyi").read_text()
    write({"kernels/more.cc": EMPTY.format("more") + EMPTY.format("parts")})
    assert cli.main(["stubs", "kernels"]) == 0
    assert set(classes("kernels_types.pyi")) == {"KernelsCuda", "KernelsCpp"}, "load_dir refuses two signatures"


def test_a_package_has_one_class_for_the_sources_of_both_languages() -> None:
    write({
        "shipped/__init__.py": "import be_runtime\nops = be_runtime.package_kernels(__name__)\n",
        "shipped/kernels.toml": "[modules.spikes]\ncpp = ['fire.cc', 'own.cc']\ncuda = ['fire.cu', 'more.cu']\n",
        "shipped/fire.cc": CPP, "shipped/own.cc": EMPTY.format("parts"), "shipped/fire.cu": CUDA,
        "shipped/more.cu": "// @BE more\nvoid more(BE::Tensor v, int n, int64_t stream) {}",
    })  # fmt: skip
    assert cli.main(["stubs", "shipped"]) == 0
    found = classes("shipped/__init__.pyi")
    assert found == {"_OpsSpikes": ["fire", "more"], "_Ops": ["__getitem__"]}, "parts is the module's own"
    text = Path("shipped/__init__.pyi").read_text()
    assert "class _OpsSpikes(be_runtime.LoadedPlatformModule):" in text
    assert "    more = _OpsSpikes.more\n" in text
    assert "parts" not in text
    sys.modules.pop("shipped")


def test_a_name_of_two_files_is_an_item_and_one_of_the_module_itself_a_function() -> None:
    write({"kernels/a.cc": CPP, "kernels/c.cc": EMPTY.format("path") + EMPTY.format("lambda")})
    assert cli.main(["stubs", "kernels"]) == 0
    assert classes("kernels_types.pyi") == {"Kernels": ["path"]}


def test_what_is_told_and_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that fails leaves no file behind."""
    write({
        "unannotated/a.cc": "void f(BE::Tensor y) {}",
        "wrong/a.cc": "// @BE fire arg ret\nvoid fire(const BE::Tensor v, BE::Tensor s, float t) {}",
        "hiding/a.cc": CPP, "hiding_types.py": "", "ops.py": "", "bad.py": "print('x')\n1 / 0\n",
        "leaves.py": "import sys\nsys.exit(3)\n", "syntax.py": "(\n", "plain.py": "import be_runtime\nx = 3\n",
    })  # fmt: skip
    told = ""
    for line in re.findall(r"^\$ (.*)$", TOLD.read_text(), re.MULTILINE):
        before = sorted(Path.cwd().rglob("*"))
        code = cli.main(line.split())
        assert (sorted(Path.cwd().rglob("*")) == before) == bool(code or "--json" in line)
        printed = capsys.readouterr()
        assert not (printed.out and printed.err)
        told += f"$ {line}\n{printed.out}{printed.err}[{code}]\n".replace(str(Path.cwd()), "HERE")
    check_golden(TOLD, told)


def test_a_full_disk_leaves_the_old_stub(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stubs", "kernels"]) == 0
    before = Path("kernels_types.pyi").read_bytes()
    with full_disk():
        assert cli.main(["stubs", "kernels"]) == 1
    assert "kernels_types.pyi can't be written: File too large" in capsys.readouterr().err
    assert {path.name for path in Path.cwd().iterdir()} == {"kernels", "kernels_types.pyi"}
    assert Path("kernels_types.pyi").read_bytes() == before


def test_help_version_and_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "stubs" in capsys.readouterr().out
    for arguments, code in ((["--version"], 0), (["stubs"], 64), (["bogus"], 64), (["stubs", "-h"], 0)):
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        assert caught.value.code == code
    (commands,) = (action.choices for action in build_parser()._actions if action.dest == "command")  # noqa: SLF001
    assert commands is not None
    assert set(commands) == {name.partition(" ")[0] for name in cli.COMMANDS}
