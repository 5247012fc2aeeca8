"""The doctor's verdicts, its exit codes, its JSON and its trials, and the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from be_toolchain import ToolchainRequest, __version__, resolve
from be_toolchain.cli import main as cli
from be_toolchain.machine.system import System
from be_toolchain.terminal import USAGE_ERROR
from tests.support.machines import SITE, Answering, Libcuda, MemorySystem, healthy, with_compiler
from tests.support.terminals import Terminal

ROOT = Path(__file__).parents[3]
TARGET = "/usr/local/cuda/targets/x86_64-linux"


def doctor(machine: System, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = cli.main(["doctor", *arguments], system=machine)
    return code, capsys.readouterr().out


def test_a_report_is_short_and_names_an_error_once(capsys: pytest.CaptureFixture[str]):
    code, text = doctor(healthy(), capsys)
    assert code == 0
    assert max(map(len, text.splitlines())) <= 120
    assert re.search(r"^ok    components +13\.0 \(\d+ parts\)", text, re.MULTILINE)
    assert re.search(r"^  ptxas +13\.0\.88  /usr/", doctor(healthy(), capsys, "--verbose")[1], re.MULTILINE)
    assert "CUDA kernels can be built here, but not run" in " ".join(text.split())
    assert "can be built here" not in doctor(with_compiler(), capsys)[1]
    code, text = doctor(MemorySystem(), capsys)
    assert (code, text.count("explain TC301")) == (2, 1)


def test_a_defect_of_ours_is_called_one(capsys: pytest.CaptureFixture[str]):
    machine = healthy()
    machine.site_dirs = None  # type: ignore[assignment]
    assert cli.main(["doctor"], system=machine) == 3
    assert "internal error of be_toolchain" in capsys.readouterr().err


def test_json(capsys: pytest.CaptureFixture[str]):
    code, text = doctor(healthy(), capsys, "--json")
    data: dict[str, Any] = json.loads(text)
    assert (code, data["schema"], data["version"], data["problems"]) == (0, 1, __version__, [])
    assert (data["toolchain"]["cuda"]["release"], data["toolchain"]["cuda"]["archs"][0]) == ("13.0", "8.0")
    (chosen,) = (probe for probe in data["probes"]["CUDA toolkit"] if probe["chosen"])
    assert (chosen["place"], chosen["found_via"]) == ("/usr/local/cuda/bin/nvcc", "well-known folder")
    code, text = doctor(with_compiler(), capsys, "--json")
    data = json.loads(text)
    assert (code, data["problems"][0]["code"], data["toolchain"]["cuda"]) == (1, "TC201", None)


def test_the_compiler_of_cpp_kernels_and_another_one_of_nvcc(capsys: pytest.CaptureFixture[str]):
    """`load_cpp_*` uses the answer of `resolve()`, without CUDA."""
    machine = healthy()
    text = doctor(machine, capsys)[1]
    assert re.search(r"^ok    C\+\+ compiler +gcc 12.*g\+\+ \(from PATH\); also nvcc's host", text, re.MULTILINE)
    assert "host compiler  " not in text
    machine.gxx("/usr/bin/g++", "99.1.0")
    machine.gxx("/usr/bin/g++-12")
    text = doctor(machine, capsys)[1]
    assert re.search(r"^ok    C\+\+ compiler +gcc 99\.1\.0, /usr/bin/g\+\+ \(from PATH\)$", text, re.MULTILINE)
    assert re.search(r"^ok    host compiler +gcc 12.*, /usr/bin/g\+\+-12; nvcc accepts", text, re.MULTILINE)
    found = resolve(ToolchainRequest(need_cuda=True), system=machine)
    assert found.cxx == resolve(system=machine).cxx
    assert found.cuda is not None
    assert found.cuda.host_compiler.path == Path("/usr/bin/g++-12")
    for _ in range(2):  # the variables of `env` choose the same compilers
        cli.main(["env", "--shell", "json"], system=machine)
        named = json.loads(capsys.readouterr().out)
        assert [named["CXX"], named["CUDAHOSTCXX"]] == ["/usr/bin/g++", "/usr/bin/g++-12"]
        machine.environ = {**machine.environ, **named}
    machine.environ = {**machine.environ, "BE_ALLOW_UNSUPPORTED_COMPILER": "1", "NVCC_CCBIN": "/usr/bin/g++"}
    text = doctor(machine, capsys)[1]
    assert "also nvcc's host" not in text
    assert re.search(r"^warn  host compiler +gcc 99\.1\.0", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ("nvcc", "/usr/local/cuda/bin/nvcc"),
        ("cxx", "/usr/bin/g++"),
        ("host", "/usr/bin/g++"),
        ("root", "/usr/local/cuda"),
        ("cudafe++", "/usr/local/cuda/bin/cudafe++"),
        ("cicc", "/usr/local/cuda/nvvm/bin/cicc"),
        ("cudart", f"{TARGET}/lib/libcudart.so"),
        ("cudart-static", f"{TARGET}/lib/libcudart_static.a"),
        ("include", f"{TARGET}/include"),
        ("crt", f"{TARGET}/include/crt/host_config.h"),
        ("cccl", f"{TARGET}/include/cccl/nv/target"),
    ],
)
def test_which(part: str, path: str, capsys: pytest.CaptureFixture[str]):
    machine = healthy()
    assert cli.main(["which", part], system=machine) == 0
    assert capsys.readouterr().out == f"{path}\n"
    if part == "cudart-static":
        del machine.files[path]
        assert cli.main(["which", part], system=machine) == 1
        assert "has no cudart-static" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("machine", "words", "code", "says"),
    [
        (with_compiler(BE_NVCC_PREFER="moon"), "which nvcc", 1, "TC102: BE_NVCC_PREFER is 'moon'"),
        (with_compiler(BE_NVCC_PREFER="moon"), "which cxx", 2, "TC102: BE_NVCC_PREFER is 'moon'"),
        (with_compiler(BE_NVCC_PREFER="moon"), "env", 2, "TC102: BE_NVCC_PREFER is 'moon'"),
        (with_compiler(), "which nvcc", 1, "TC201: no complete CUDA toolkit was found"),
        (MemorySystem(), "which cxx", 2, "TC301: "),
    ],
)
def test_why_not(machine: MemorySystem, words: str, code: int, says: str, capsys: pytest.CaptureFixture[str]):
    """Commands for programs print nothing that a program would take for an answer."""
    assert cli.main(words.split(), system=machine) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {says}")


@pytest.mark.parametrize("words", ["wich", "doctor --jsn", "which", "which gcc", "doctor extra"])
def test_arguments_that_mean_nothing(words: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        cli.main(words.split(), system=healthy())
    assert caught.value.code == USAGE_ERROR
    assert words.rpartition(" ")[2] in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert cli.main([]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"be_toolchain {__version__}\n")
    assert "doctor" in said


IN_A_PROCESS = """
import os, sys
from be_toolchain.cli import main as cli
from tests.support.machines import MemorySystem
machine = MemorySystem()
machine.gxx(os.environ["BE_CXX"])
machine.environ = {"BE_CXX": os.environ["BE_CXX"]}
sys.exit(cli.main(sys.argv[1:], system=machine))
"""


def in_a_process(words: str, stdout: int, **environ: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", IN_A_PROCESS, *words.split()]
    known = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
    return subprocess.run(command, env=known, stdout=stdout, stderr=subprocess.PIPE, check=False, timeout=60)


@pytest.mark.parametrize("words", ["which cxx", "doctor"])
def test_a_path_that_is_no_text_is_printed_as_it_is(words: str):
    path = os.fsdecode(b"/opt/\xff/g++")
    done = in_a_process(words, subprocess.PIPE, PYTHONIOENCODING="utf-8:strict", BE_CXX=path)
    assert os.fsencode(path) in done.stdout, done.stderr
    assert not done.stderr


def test_a_narrow_terminal_shows_paths_to_their_end():
    path = "/opt/a-folder-with-a-long-name/and-one-below-it/bin/g++"
    with Terminal() as terminal:
        in_a_process("doctor", terminal.handle, COLUMNS="40", TERM="xterm", BE_CXX=path)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.text).partition("TC201")[0].splitlines()
    assert max(map(len, lines)) <= 40
    assert path in "".join(line[19:].strip() for line in lines)


def test_the_home_folder_is_not_named_in_text_but_in_json(capsys: pytest.CaptureFixture[str]):
    machine = with_compiler(HOME="/home/ada", CUDA_HOME="/home/ada/cuda")
    machine.runfile("/home/ada/cuda")
    _, text = doctor(machine, capsys, "--verbose")
    assert "~/cuda/bin/nvcc" in text
    assert "/home/ada" not in text
    assert "/home/ada/cuda" in doctor(machine, capsys, "--json")[1]


def test_a_program_before_the_compilers_is_shown(capsys: pytest.CaptureFixture[str]):
    assert "launcher" not in doctor(healthy(), capsys)[1]
    machine = healthy(BE_COMPILER_LAUNCHER="ccache --quiet")
    code, text = doctor(machine, capsys)
    lines = " ".join(text.split())
    assert (
        "BE_COMPILER_LAUNCHER=ccache --quiet: the program ccache was not found, so modules that need a build fail"
        in lines
    )
    assert "correct BE_COMPILER_LAUNCHER, or leave it out" in lines
    machine.links["/usr/bin/ccache"] = "/usr/bin/g++"
    code, text = doctor(machine, capsys)
    assert code == 0
    assert "BE_COMPILER_LAUNCHER=ccache --quiet: /usr/bin/ccache starts every compiler" in " ".join(text.split())
    _, text = doctor(healthy(BE_COMPILER_LAUNCHER="'ccache"), capsys)
    assert text.count("'ccache") == 1, "a value that is no command is reported with all other settings"


@pytest.mark.parametrize(
    "value",
    [
        "https://user:SECRET@host/k",
        "https://user:SECRET?z@host/k",
        "https://user:x/SECRET@host/k",
        "https://host/k?sig=SECRET",
        "s3://KEY:SECRET@bucket/k",
        "private-ed25519:SECRET",
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_doctor_shows_no_secret(value: str, options: list[str], capsys: pytest.CaptureFixture[str]):
    variable = "BE_REMOTE_CACHE" if "//" in value else "BE_REMOTE_CACHE_PRIVATE_KEY"
    cli.main(["doctor", *options], system=MemorySystem(environ={"PATH": "/usr/bin", variable: value}))
    shown = capsys.readouterr()
    assert "remote cache" in shown.out or variable in shown.out
    assert "SECRET" not in shown.out + shown.err


def trial(prints: str = "sum 4950, started", *, jax: bool = False, gpu: bool = False, **facts: Any) -> Answering:
    """A machine whose programs answer at once; tests/compile and tests/cuda have the real ones."""
    machine = Answering(built_prints=prints, **facts)
    if jax:
        machine.write(f"{SITE}/jaxlib-0.10.2.dist-info/METADATA")
    if gpu:
        machine.libraries["libcuda.so.1"] = Libcuda()
    return machine


@pytest.mark.parametrize(
    ("machine", "code", "says"),
    [
        (trial(jax=True), 0, ("built and ran a program", "there is no GPU to run it on", "called it from JAX")),
        (trial("sum 4950, sum 500500", gpu=True), 0, ("ran it on NVIDIA H200", "jax is not installed")),
        (trial("", build_fails=True), 2, ("smoke: C++", "exit status 1: compilation stopped", "error: no such thing")),
        (trial("sum 4950"), 1, ("it printed 'sum 4950' instead of 'started'",)),
        (trial(jax=True, ffi_prints="sum 0 on cpu"), 2, ()),
        (MemorySystem(), 2, ("there is no compiler", "there is no toolkit")),
    ],
)
def test_trials(machine: MemorySystem, code: int, says: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    found, text = doctor(machine, capsys, "--smoke")
    assert found == code
    assert [part for part in says if part not in text] == []
    if machine.libraries:
        assert any("-gencode=arch=compute_90,code=sm_90" in argv for argv in machine.commands)
