"""The script that puts a precompiled beginning in place of text, and the one that makes it, as the shell runs them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import be_runtime
from be_runtime.compile.nvcc.plan_preamble import make_preamble, use_preamble
from be_runtime.compile.plan.build_plan import Edge, UnitBuild
from be_runtime.compile.plan.unit_files import files_named

SCRIPT = Path(be_runtime.__file__).parent / "native" / "with_preamble.sh"
PREAMBLE = '#pragma GCC diagnostic ignored "-Wx"\n# 1 "/cuda/cuda_runtime.h"\nint a;\nint b;\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "preamble.h").write_text(PREAMBLE)
    (tmp_path / "pragmas.h").write_text('#pragma GCC diagnostic ignored "-Wx"\n')
    (tmp_path / "size").write_text(f"{len(PREAMBLE)}\n")
    return tmp_path


def compile_with(folder: Path, whole: str, *, path: str | None = None) -> tuple[list[str], str]:
    """What the compiler was given: its arguments, and the text of the file it was to compile."""
    (folder / "k.cpp").write_text(whole)
    argv = ["/bin/sh", str(SCRIPT), str(folder), str(folder / "k.cpp"), "/bin/echo", "-O3", "-c", "-o", "k.o"]
    environ = {**os.environ, **({} if path is None else {"PATH": path})}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=environ)
    arguments = done.stdout.split()
    return arguments, Path(arguments[-1]).read_text()


def test_the_same_beginning_comes_from_the_header(folder: Path):
    arguments, text = compile_with(folder, f'# 1 "k.cu"\n{PREAMBLE}# 4 "k.cu"\nint mine;\n')
    header, pragmas = str(folder / "preamble.h"), str(folder / "pragmas.h")
    given = ["-iquote", str(folder), "-include", header, "-include", pragmas, "-x", "c++"]
    assert arguments[:-1] == ["-O3", "-c", "-o", "k.o", *given]
    assert text == '# 1 "k.cu"\n# 4 "k.cu"\nint mine;\n'


@pytest.mark.parametrize(
    "whole",
    [
        pytest.param(f'# 1 "k.cu"\n{PREAMBLE.replace("int b", "int c")}int mine;\n', id="another header"),
        pytest.param(f'# 1 "k.cu"\n{PREAMBLE[:-5]}', id="shorter"),
        pytest.param("", id="empty"),
    ],
)
def test_another_beginning_is_compiled_as_it_is(folder: Path, whole: str):
    arguments, text = compile_with(folder, whole)
    assert arguments == ["-O3", "-c", "-o", "k.o", "-x", "c++", str(folder / "k.cpp")]
    assert text == whole


def test_a_machine_without_the_programs_compiles_it_as_it_is(folder: Path, tmp_path: Path):
    arguments, _ = compile_with(folder, f'# 1 "k.cu"\n{PREAMBLE}int mine;\n', path=str(tmp_path / "nothing"))
    assert arguments[-1] == str(folder / "k.cpp")


def test_a_lost_header_compiles_it_as_it_is(folder: Path):
    (folder / "preamble.h").unlink()
    arguments, _ = compile_with(folder, f'# 1 "k.cu"\n{PREAMBLE}int mine;\n')
    assert arguments[-1] == str(folder / "k.cpp")


PHASES = UnitBuild(
    unit=files_named("k", "cuda"),
    edges=(
        Edge(
            ("g++", "-E", "-I/mine", "src/k.cu", "-o", "obj/k.ii"),
            *(("src/k.cu",), ("obj/k.ii",), "1", "preprocess", "obj/k.ii.d"),
        ),
        Edge(
            ("/c/cudafe++", "--gen_c_file_name", "obj/k.cpp", "obj/k.ii"),
            *(("obj/k.ii",), ("obj/k.cpp",), "2", "cudafe++"),
        ),
        Edge(
            ("g++", "-O3", "-S", "-x", "c++", "-I/mine", "obj/k.cpp", "-o", "obj/k.s"),
            *(("obj/k.cpp",), ("obj/k.s",), "3", "compile"),
        ),
        Edge(("g++", "-c", "obj/k.s", "-o", "obj/k.o"), ("obj/k.s",), ("obj/k.o",), "4", "assemble"),
    ),
)


def test_only_the_host_compilers_command_changes():
    used = use_preamble(PHASES, "/s.sh", "/kept")
    assert (*used.edges[:2], used.edges[3]) == (*PHASES.edges[:2], PHASES.edges[3])
    assert used.edges[2].argv == (
        *("/bin/sh", "/s.sh", "/kept", "obj/k.cpp"),
        *("g++", "-O3", "-S", "-I/mine", "-o", "obj/k.s"),
    )
    assert used.edges[2].outputs == ("obj/k.s",)


def test_a_failing_compiler_leaves_no_preamble_and_no_failure(tmp_path: Path):
    making = make_preamble(PHASES, ["-I/mine"])
    for file in making.files:
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
    assert "-I/mine" not in making.files[-1].text
    (edge,) = making.edges
    done = subprocess.run(edge.argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
    assert (tmp_path / edge.outputs[0]).is_file()
    assert not list(tmp_path.rglob("*.gch"))
