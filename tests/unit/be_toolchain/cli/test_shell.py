"""Variables for other tools."""

from __future__ import annotations

import json
import subprocess

import pytest

from be_toolchain.cli import main as cli
from be_toolchain.cli.shell import render_variables
from tests.support.machines import SITE, MemorySystem

PIP = f"{SITE}/nvidia/cu13"


def variables(machine: MemorySystem, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    cli.main(["env", "--shell", "json"], system=machine)
    named: dict[str, str] = json.loads(capsys.readouterr().out)
    return named


def test_all_that_other_tools_need_which_chooses_the_same_again(capsys: pytest.CaptureFixture[str]):
    machine = MemorySystem()
    machine.gxx("/usr/bin/g++")
    machine.pip_cu13()
    machine.environ = {**machine.environ, "CPATH": "/opt/include:"}
    once = variables(machine, capsys)
    assert once == {
        "CUDA_HOME": PIP,
        "CUDA_PATH": PIP,
        "CUDACXX": f"{PIP}/bin/nvcc",
        "CUDAHOSTCXX": "/usr/bin/g++",
        "NVCC_CCBIN": "/usr/bin/g++",
        "PATH": f"{PIP}/bin:/usr/local/bin:/usr/bin",
        "CPATH": f"{PIP}/include:{PIP}/include/cccl:/opt/include",
        "LIBRARY_PATH": f"{PIP}/lib",
        "CXX": "/usr/bin/g++",
    }
    machine.runfile("/usr/local/cuda")
    machine.environ = {**machine.environ, **once}
    assert variables(machine, capsys) == once


def test_without_cuda(capsys: pytest.CaptureFixture[str]):
    machine = MemorySystem()
    machine.gxx("/usr/bin/g++")
    assert cli.main(["env"], system=machine) == 1
    captured = capsys.readouterr()
    assert captured.out == "export CXX=/usr/bin/g++\n"
    assert "TC201" in captured.err
    assert cli.main(["env"], system=MemorySystem()) == 2


def test_shells_read_back_what_is_printed():
    values = ("/plain", "/with space", "it's", 'a"b', "$HOME `ls` \\n", "a\\'b")
    script = "".join(f'{render_variables((("NAME", value),), "bash")}\nprintf "%s\\n" "$NAME"\n' for value in values)
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(values)
    assert render_variables((("NAME", "it's a\\b"),), "fish") == "set -gx NAME 'it\\'s a\\\\b';"
