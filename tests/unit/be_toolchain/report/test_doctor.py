"""The doctor's verdicts, its exit codes, and the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from be_toolchain import __version__
from be_toolchain.cli import main as cli
from be_toolchain.machine.system import System
from be_toolchain.report.doctor import examine_machine
from be_toolchain.report.exit_codes import USAGE_ERROR
from be_toolchain.report.report_text import render_report
from tests.support.machines import Libcuda, MemorySystem, healthy
from tests.support.terminals import Terminal

ROOT = Path(__file__).parents[4]


def without_cuda() -> MemorySystem:
    machine = MemorySystem()
    machine.gxx("/usr/bin/g++")
    return machine


def doctor(machine: System, *arguments: str) -> int:
    return cli.main(["doctor", *arguments], system=machine)


def test_all_works_without_a_gpu(capsys: pytest.CaptureFixture[str]):
    assert doctor(healthy()) == 0
    text = capsys.readouterr().out
    for part in (
        "gcc 12.2.0, /usr/bin/g++",
        "13.0 (nvcc 13.0.88), /usr/local/cuda",
        "compute_capability=",
        "can work here.",
    ):
        assert part in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 240


def test_no_cuda(capsys: pytest.CaptureFixture[str]):
    assert doctor(without_cuda()) == 1
    text = capsys.readouterr().out
    assert "TC201" in text
    assert "/usr/local/cuda: no such folder" in text
    assert "C++ builds can work here; CUDA builds cannot." in text


def test_no_cxx(capsys: pytest.CaptureFixture[str]):
    assert doctor(MemorySystem()) == 2
    assert capsys.readouterr().out.count("explain TC301") == 1


def test_settings_that_mean_nothing():
    machine = healthy()
    machine.environ = {**machine.environ, "BE_ALLOW_UNSUPPORTED_COMPILER": "maybe"}
    report = examine_machine(machine)
    assert report.exit_code == 2
    assert "BE_ALLOW_UNSUPPORTED_COMPILER is 'maybe', expected 1, true" in render_report(report)


def test_internal_error(capsys: pytest.CaptureFixture[str]):
    machine = healthy()
    machine.site_dirs = None  # type: ignore[assignment]
    assert doctor(machine) == 3
    assert "internal error" in capsys.readouterr().err


def test_json(capsys: pytest.CaptureFixture[str]):
    assert doctor(healthy(), "--json") == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert data["schema"] == 1
    assert data["version"] == __version__
    assert data["toolchain"]["cuda"]["release"] == "13.0"
    assert data["toolchain"]["cuda"]["archs"][0] == "8.0"
    (chosen,) = (probe for probe in data["probes"]["CUDA toolkit"] if probe["chosen"])
    assert (chosen["place"], chosen["found_via"]) == ("/usr/local/cuda/bin/nvcc", "well-known folder")
    assert data["problems"] == []
    assert doctor(without_cuda(), "--json") == 1
    data = json.loads(capsys.readouterr().out)
    assert data["problems"][0]["code"] == "TC201"
    assert data["toolchain"]["cuda"] is None


def test_verbose_lists_every_place_and_part(capsys: pytest.CaptureFixture[str]):
    doctor(healthy(), "--verbose")
    text = capsys.readouterr().out
    assert "/usr/bin/g++: chosen" in text
    assert "CUDA_HOME" in text
    assert "/usr/local/cuda/nvvm/bin/cicc  (version.json)" in text


@pytest.mark.parametrize(
    ("version", "gpu", "says"),
    [
        (13000, ("NVIDIA H200", 9, 0), ()),
        (12080, ("NVIDIA H200", 9, 0), ("kernels of CUDA 13.0 don't run on it", "driver 580")),
        (13000, ("NVIDIA V100", 7, 0), ("cannot target sm_70", "older CUDA release")),
        (13000, ("NVIDIA X", 15, 0), ("cannot target sm_150", "newer CUDA release")),
    ],
)
def test_driver_and_gpu_against_the_toolkit(version: int, gpu: tuple[str, int, int], says: tuple[str, ...]):
    machine = healthy()
    machine.libraries["libcuda.so.1"] = Libcuda(gpus=(gpu,), version=version)
    report = examine_machine(machine)
    text = render_report(report)
    assert gpu[0] in text
    assert all(part in text for part in says)
    assert any(finding.status == "warn" for finding in report.findings) == bool(says)
    assert report.exit_code == 0


def test_variables_that_change_compiles_are_shown():
    machine = healthy()
    machine.environ = {**machine.environ, "CPATH": "/opt/include"}
    assert "CPATH=/opt/include changes what the compilers do" in render_report(examine_machine(machine))


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ("nvcc", "/usr/local/cuda/bin/nvcc"),
        ("cxx", "/usr/bin/g++"),
        ("host", "/usr/bin/g++"),
        ("root", "/usr/local/cuda"),
        ("cudafe++", "/usr/local/cuda/bin/cudafe++"),
        ("cicc", "/usr/local/cuda/nvvm/bin/cicc"),
        ("cudart", "/usr/local/cuda/targets/x86_64-linux/lib/libcudart.so"),
        ("cudart-static", "/usr/local/cuda/targets/x86_64-linux/lib/libcudart_static.a"),
        ("include", "/usr/local/cuda/targets/x86_64-linux/include"),
        ("crt", "/usr/local/cuda/targets/x86_64-linux/include/crt/host_config.h"),
        ("cccl", "/usr/local/cuda/targets/x86_64-linux/include/cccl/nv/target"),
    ],
)
def test_which(part: str, path: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["which", part], system=healthy()) == 0
    assert capsys.readouterr().out == f"{path}\n"


@pytest.mark.parametrize("command", [["which", "nvcc"], ["which", "cxx"], ["env"]])
def test_a_setting_that_means_nothing_is_no_defect_of_ours(command: list[str], capsys: pytest.CaptureFixture[str]):
    machine = healthy()
    machine.environ = {**machine.environ, "BE_NVCC_PREFER": "moon"}
    assert cli.main(command, system=machine) in (1, 2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("TC102: BE_NVCC_PREFER is 'moon'")


def test_which_says_why_not(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["which", "nvcc"], system=without_cuda()) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "TC201: no complete CUDA toolkit was found" in captured.err
    assert cli.main(["which", "cxx"], system=MemorySystem()) == 2


@pytest.mark.parametrize("arguments", [["wich"], ["doctor", "--jsn"], ["which"], ["which", "gcc"], ["doctor", "extra"]])
def test_arguments_that_mean_nothing(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments, system=healthy())
    assert caught.value.code == USAGE_ERROR
    assert arguments[-1] in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert __version__ in capsys.readouterr().out
    assert cli.main([]) == 0
    assert "doctor" in capsys.readouterr().out


def test_a_broken_toolkit_that_was_passed_over_is_shown_with_its_repair():
    machine = healthy()
    machine.pip_cu13(nvvm="13.5")
    report = examine_machine(machine)
    text = render_report(report)
    assert report.exit_code == 0
    assert "nvidia/cu13/bin/nvcc (from pip wheels): parts of different releases" in text
    assert "next: python -m be_toolchain doctor --fix, or " in text
    assert 'python -m pip install "cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]==13.0.*"' in text


def test_which_says_that_a_part_is_not_there(capsys: pytest.CaptureFixture[str]):
    machine = healthy()
    del machine.files["/usr/local/cuda/targets/x86_64-linux/lib/libcudart_static.a"]
    assert cli.main(["which", "cudart-static"], system=machine) == 1
    assert "has no cudart-static" in capsys.readouterr().err


def test_a_path_that_is_no_text_is_printed_as_it_is():
    code = (
        "import os, sys; from be_toolchain.cli import main as cli\n"
        "from tests.support.machines import healthy\n"
        "machine = healthy(); machine.gxx(os.fsdecode(b'/opt/\\xff/g++'))\n"
        "machine.environ = {'BE_CXX': os.fsdecode(b'/opt/\\xff/g++')}\n"
        "sys.exit(cli.main(sys.argv[1:], system=machine))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8:strict"}
    for command in (["which", "cxx"], ["doctor"]):
        done = subprocess.run([sys.executable, "-c", code, *command], env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert b"/opt/\xff/g++" in done.stdout


def test_a_narrow_terminal_shows_paths_to_their_end():
    code = (
        "import sys; from be_toolchain.cli import main as cli; from tests.support.machines import MemorySystem\n"
        "machine = MemorySystem(); machine.gxx('/opt/a-folder-with-a-long-name/and-one-below-it/bin/g++')\n"
        "machine.environ = {'BE_CXX': '/opt/a-folder-with-a-long-name/and-one-below-it/bin/g++'}\n"
        "sys.exit(cli.main(['doctor'], system=machine))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "40", "TERM": "xterm"}
    with Terminal() as terminal:
        subprocess.run([sys.executable, "-c", code], env=environment, stdout=terminal.handle, check=False, timeout=60)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.text).partition("TC201")[0].splitlines()
    assert max(map(len, lines)) <= 40
    assert "/opt/a-folder-with-a-long-name/and-one-below-it/bin/g++" in "".join(line[19:].strip() for line in lines)


def test_the_home_folder_is_not_named_in_text_but_in_json(capsys: pytest.CaptureFixture[str]):
    machine = MemorySystem()
    machine.gxx("/usr/bin/g++")
    machine.runfile("/home/ada/cuda")
    machine.environ = {**machine.environ, "HOME": "/home/ada", "CUDA_HOME": "/home/ada/cuda"}
    doctor(machine, "--verbose")
    text = capsys.readouterr().out
    assert "~/cuda/bin/nvcc" in text
    assert "/home/ada" not in text
    doctor(machine, "--json")
    assert "/home/ada/cuda" in capsys.readouterr().out
